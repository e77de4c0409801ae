"""Features on which a tiny model is trained in seconds."""

from __future__ import annotations

import json
from collections import namedtuple
from pathlib import Path

import numpy as np

FeatureSet = namedtuple("FeatureSet", "features labels")


def write_features(root: Path, n_videos: int = 5, length: int = 64, width: int = 6) -> FeatureSet:
    """Write features of two classes, in a folder without records; the last two videos are for validation."""
    random = np.random.default_rng(0)
    means = random.normal(size=(3, width + 2))
    database = {}
    for v in range(n_videos):
        classes, annotations = np.zeros(length, dtype=int), []
        for start in range(4, length - 8, 16):
            label = int(random.integers(1, 3))
            classes[start : start + 8] = label
            annotations.append({"label": "AB"[label - 1], "segment": [start / 4, (start + 8) / 4]})
        rows = (means[classes] + 0.5 * random.normal(size=(length, width + 2))).astype(np.float32)
        for folder, part in (("rgb_x", rows[:, :width]), ("flow_x", rows[:, width:])):
            (root / folder).mkdir(parents=True, exist_ok=True)
            np.save(root / folder / f"v{v}.npy", part)
        subset = "validation" if v >= n_videos - 2 else "training"
        database[f"v{v}"] = {"subset": subset, "duration": length / 4, "annotations": annotations}
    labels = root / "labels.json"
    labels.write_text(json.dumps({"classes": ["A", "B"], "database": database}))
    return FeatureSet(root, labels)


TINY = {"d_model": 16, "n_heads": 2, "d_feedforward": 16, "work_length": 8, "long_length": 16, "n0": 4, "n1": 4}

TINY_SETTINGS = {f"model.{name}": str(value) for name, value in TINY.items()}  # a millisecond per step

"""A small THUMOS'14 of drawn features: the published classes, ids and folders, few and short videos."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from lstr.labels.label_set import THUMOS_CLASSES
from tests.support.benchmarks import benchmark

TRAINING = ("video_validation_0000051", "video_validation_0000052", "video_validation_0000053")
TESTING = ("video_test_0000004", "video_test_0000006")
STREAMS = {"rgb": "rgb_kinetics_resnet50", "flow": "flow_kinetics_bninception"}


def write_synthetic(root: Path, rgb: int = 48, flow: int = 40, length: int = 160) -> Path:
    """The folder with the features of `benchmarks/synthetic_features.py`, their targets and data_info.json."""
    random, folder = np.random.default_rng(0), root / "THUMOS"
    labels = {name: _targets(random, length) for name in (*TRAINING, *TESTING)}
    generator = benchmark("synthetic_features").Generator(rgb=rgb, flow=flow, nuisance_rank=2)
    for stream in STREAMS.values():
        (folder / stream).mkdir(parents=True)
    (folder / "target_perframe").mkdir()
    for video in generator.draw(labels, 0):
        for stream, name in STREAMS.items():
            np.save(folder / name / f"{video.id}.npy", getattr(video.features, stream)[:])
        np.save(folder / "target_perframe" / f"{video.id}.npy", video.targets)
    about = {"what": "synthetic features on drawn labels", "generator": generator.settings()}
    (folder / "synthetic.json").write_text(json.dumps(about))
    entry = {"class_names": THUMOS_CLASSES, "ignore_index": 21, "metrics": "AP", "fps": 4}
    sessions = {"train_session_set": TRAINING, "test_session_set": TESTING}
    (root / "data_info.json").write_text(json.dumps({"THUMOS": {**entry, **sessions}}))
    return folder


def _targets(random: np.random.Generator, length: int) -> np.ndarray:
    """One-hot targets (L, 22) of a video: runs of actions with background between, and an ambiguous one."""
    on = np.zeros(length, dtype=int)
    for start in range(6, length - 20, 24):
        on[start : start + 12] = random.integers(1, 21)
    on[length - 20 : length - 16] = THUMOS_CLASSES.index("Ambiguous")
    return np.eye(len(THUMOS_CLASSES), dtype=np.uint8)[on]

"""Golden data of published code, and gradients under the published names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.window_samples import make_targets
from lstr.windows.windows import gather


def read_set(shared: Path, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray], np.ndarray]:
    """Return the JSON, the arrays, and the features (L, D) of a golden set."""
    folder = shared / "data" / "golden"
    about = json.loads((folder / f"{name}.json").read_text())
    with np.load(folder / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    return about, arrays, np.concatenate([arrays["rgb"], arrays["flow"]], axis=1)


def supervised_windows(model, arrays, ends, stretched=False):
    """Return training windows at chunks `ends`, their targets (B, N, C), and a mask of those that count (B, N)."""
    video = LabelledVideo("a", TwoStreamArray(arrays["rgb"], arrays["flow"]), arrays["target"])
    features = np.concatenate([arrays["rgb"], arrays["flow"]], axis=1)
    targets, counts = make_targets([video], [(0, int(end)) for end in ends], model.config, model.outputs())
    return gather(features, ends, model.config, stretched), targets, counts

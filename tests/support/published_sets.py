"""Golden data of published code, and gradients under the published names."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from lstr import checkpoint
from lstr.config import WindowConfig
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training.window_samples import make_targets
from lstr.windows import indices as memory
from lstr.windows.windows import Windows, gather


def read_set(shared: Path, name: str) -> tuple[dict[str, Any], dict[str, np.ndarray], np.ndarray]:
    """Return the JSON, the arrays, and the features (L, D) of a golden set."""
    folder = shared / "data" / "golden"
    about = json.loads((folder / f"{name}.json").read_text())
    with np.load(folder / f"{name}.npz") as file:
        arrays = {key: file[key] for key in file.files}
    return about, arrays, np.concatenate([arrays["rgb"], arrays["flow"]], axis=1)


class Golden:
    """A golden set with the published tensors and, after `load`, its model."""

    def __init__(self, folder: Path, name: str) -> None:
        self.about, self.arrays, self.features = read_set(folder.parents[1], name)
        self.tensors: dict[str, Tensor] = torch.load(folder / f"{name}.pth")

    def load(self, settings: Mapping[str, Any]) -> None:
        """Load the published tensors with the settings that cannot be inferred from them."""
        with NamedTemporaryFile(suffix=".pth") as file:
            torch.save(self.tensors, file.name)
            self.loaded = checkpoint.load(Path(file.name), settings)
        self.model, self.config = self.loaded.model, self.loaded.config


def supervised_windows(model, arrays, ends, stretched=False):
    """Return training windows at chunks `ends`, their targets (B, N, C), and a mask of those that count (B, N)."""
    video = LabelledVideo("a", TwoStreamArray(arrays["rgb"], arrays["flow"]), arrays["target"])
    features = np.concatenate([arrays["rgb"], arrays["flow"]], axis=1)
    targets, counts = make_targets([video], [(0, int(end)) for end in ends], model.config, model.outputs())
    return gather(features, ends, model.config, stretched), targets, counts


def in_doubles(windows: Windows) -> Windows:
    floats = {f.name: v for f in fields(windows) if (v := getattr(windows, f.name)).is_floating_point()}
    return replace(windows, **{name: values.double() for name, values in floats.items()})


def check_grids(arrays: Mapping[str, np.ndarray], config: WindowConfig) -> None:
    """Compare the chunks of the long memories, in scoring and in training."""
    for part, choose in (("window", memory.long_indices), ("train", memory.stretched_indices)):
        indices, visible = choose(arrays[f"{part}_start"] + config.work_length - 1, config)
        assert (visible == arrays[f"{part}_long_visible"]).all()
        assert (indices[visible] == arrays[f"{part}_long_index"][visible]).all()


def check_gradients(
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    renamed: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
    expected: Mapping[str, float | None],
) -> None:
    """Compare norms of gradients by the published names; some published tensors are parts of ours."""
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    checked = 0
    for name in tensors:
        if expected.get(name) is None:
            continue
        marked = renamed({other: torch.full_like(tensor, other == name) for other, tensor in tensors.items()})
        parts = [gradients[ours][mark.bool()] for ours, mark in marked.items() if ours in gradients and mark.any()]
        norm = torch.cat(parts).norm().item()
        # published sums that cancel have errors of 3e-5
        assert norm == pytest.approx(expected[name], rel=1e-4, abs=4e-5), name
        checked += 1
    assert checked == sum(norm is not None for norm in expected.values())

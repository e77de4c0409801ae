"""A small set of rendered videos, with the results of the real jobs."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lstr.extractors.presets import PRESETS, Preset, StreamPreset
from lstr.files.content import write_json

# without torchvision, whose import takes longer than torch's, in each process that a test starts
NAMES = {"rgb": "efficientnet-lite0", "flow": "resnet18"}
DIMS = (1280, 512)
PICTURES = {"long_side": 96, "short_side": 64, "crop": 64}


def small_preset(names: Mapping[str, str], pictures: Mapping[str, Any]) -> Preset:
    """Return `fast` with these networks and image sizes."""
    return replace(PRESETS["fast"], **{stream: StreamPreset(name) for stream, name in names.items()}, **pictures)


SMALL = small_preset(NAMES, PICTURES)
"""A recipe with small networks and images, because the networks of `fast` would take most of the time of many tests"""


@dataclass(frozen=True)
class SmallSet:
    """Four tiny videos, their labels, features and a checkpoint."""

    videos: Path
    labels: Path
    recipe: Path  # a file of SMALL, the recipe of the features
    features: Path
    checkpoint: Path


def write_small_set(
    root: Path, names: Mapping[str, str] = NAMES, pictures: Mapping[str, int] = MappingProxyType(PICTURES)
) -> SmallSet:
    """Render, extract and train, as a user does."""
    import pytest

    from lstr.extractors.video.inputs import find_videos
    from lstr.pipelines.features import video
    from lstr.pipelines.features.dataset import read_split
    from lstr.pipelines.features.extract import extract
    from lstr.pipelines.features.extraction import ExtractOptions, Outcome
    from lstr.pipelines.progress import Failed
    from lstr.pipelines.scenes import SceneConfig, render_scenes
    from lstr.pipelines.training.config import resolve
    from lstr.pipelines.training.train import Task, train_model

    labels = render_scenes(root, SceneConfig(n_videos=4, n_testing=1, seconds=5.0, width=96, height=64))
    recipe, features = root / "small.json", root / "features"
    networks = {stream: {"network": name} for stream, name in names.items()}
    write_json(recipe, {"based_on": "fast", **networks, **pictures})
    options = ExtractOptions(
        features, device="cpu", threads=2, workers=1, recipe=small_preset(names, pictures), calibrate=labels
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(video, "CALIBRATION_CHUNKS", 12)
        events = list(extract(find_videos([root / "videos"]), options))
    assert {e.state for e in events if isinstance(e, Outcome)} == {"done"}
    assert not [e for e in events if isinstance(e, Failed)]
    split = read_split(features, labels, "training")
    model, config = resolve("lstr-small", {"train.epochs": "40", "model.d_model": "64"}, split.dims)
    for _ in train_model(Task(split, model, config), root / "run"):
        pass
    return SmallSet(root / "videos", labels, recipe, features, root / "run" / "checkpoint.pt")

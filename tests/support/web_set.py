"""A model that was really taught of drawn videos, without flow and with small pictures, as a page in a folder."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lstr.extractors.presets import LITE, PRESETS, StreamPreset

SIZE = (48, 64)
SEEN = StreamPreset(LITE, crops=2, size=SIZE, margin=1.15)
SMALL = replace(
    PRESETS["pretrained"],
    long_side=128,
    rgb=replace(SEEN, crops=1),
    grey=SEEN,
    difference=SEEN,
    change=StreamPreset(LITE, size=(64, 85)),
)
"""All streams but flow; their networks are random, so that a model file can hold them"""


@dataclass(frozen=True)
class WebSet:
    """Drawn videos, the model that was exported to run, and its page."""

    videos: Path
    model: Path
    page: Path


def kept_runtime(root: Path) -> Path:
    """The npm package of ONNX Runtime Web, fetched once for all tests; skips where it cannot be had."""
    from lstr.extractors.errors import WeightsError
    from lstr.pipelines.exporting.web_runtime import ADDRESS, NAME, SHA256
    from lstr.pipelines.weights.download import download

    place = root / NAME
    if not place.is_file():
        try:
            download(ADDRESS, place, SHA256, lambda *_: None)
        except WeightsError as error:
            pytest.skip(f"ONNX Runtime Web cannot be fetched here: {error}")
    return place


def write_web_set(root: Path) -> WebSet:
    """Rendered, extracted, trained by two kinds of model, whose average is packed, exported, and made a page."""
    from lstr.extractors.video.inputs import find_videos
    from lstr.pipelines.datasets.dataset import read_split
    from lstr.pipelines.demo.scenes import SceneConfig, render_scenes
    from lstr.pipelines.exporting.job import ExportOptions, export
    from lstr.pipelines.exporting.web import WebOptions, export_web
    from lstr.pipelines.extraction.job import extract
    from lstr.pipelines.extraction.options import ExtractOptions
    from lstr.pipelines.model_files.averaging import averaged
    from lstr.pipelines.model_files.packing import write_model
    from lstr.pipelines.progress import Failed
    from lstr.pipelines.training.config import resolve
    from lstr.pipelines.training.run import Task, train_model

    runtime = kept_runtime(root)
    labels = render_scenes(root, SceneConfig(n_videos=4, n_testing=1, seconds=6.0))
    events = list(
        extract(
            find_videos([root / "videos"]),
            ExtractOptions(root / "features", device="cpu", threads=2, workers=1, recipe=SMALL),
        )
    )
    assert not [event for event in events if isinstance(event, Failed)]
    split = read_split(root / "features", labels, "training")
    runs = []
    for kind, settings in (("lstr-small", {"train.epochs": "40", "model.d_model": "64"}), ("rnn-small", {})):
        model, config = resolve(kind, settings, split.dims)
        for _ in train_model(Task(split, model, config), root / kind):
            pass
        runs.append(root / kind / "checkpoint.pt")
    packed, model, page = root / "both.lstr", root / "both-run.lstr", root / "page"
    with averaged(runs, packed) as checkpoint:
        write_model(packed, checkpoint, None, {"title": "Figures <that act>"})
    for _ in export(ExportOptions(packed, model)):
        pass
    for _ in export_web(WebOptions(model, page, runtime=runtime)):
        pass
    return WebSet(root / "videos", model, page)

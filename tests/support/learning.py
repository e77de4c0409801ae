"""Rendered videos, and runs of `learn` that take seconds."""

import json
from pathlib import Path

from lstr.pipelines.learning.learn import Learnt, learn
from lstr.pipelines.learning.plan import LearnOptions
from lstr.pipelines.progress import result_of
from lstr.pipelines.scenes import SceneConfig, render_scenes

SMALL = {"epochs": "1", "draws": "16", "short_side": "64", "crop": "64", "model.d_model": "32", "train.epochs": "4"}


def write_videos(root: Path) -> Path:
    """Render six videos, two of them held out, in a subfolder with a space in its name."""
    labels = render_scenes(root, SceneConfig(n_videos=6, n_testing=2, seconds=5.0, width=96, height=64))
    content = json.loads(labels.read_text())
    content["database"] = {f"day 1/{name}": entry for name, entry in content["database"].items()}
    labels.write_text(json.dumps(content))
    (root / "videos" / "day 1").mkdir()
    for path in (root / "videos").glob("*.mp4"):
        path.rename(root / "videos" / "day 1" / path.name)
    return root


def options(videos: Path, output: Path, **others) -> LearnOptions:
    changed = {"settings": SMALL, "cache": videos / "chunks", "device": "cpu", "algorithm": "dis", **others}
    return LearnOptions([str(videos / "videos")], str(videos / "labels.json"), output, **changed)


def run(chosen: LearnOptions) -> tuple[list, Learnt]:
    """Return all events and the result of `learn`."""
    events: list = []
    return events, result_of(learn(chosen), events.append)

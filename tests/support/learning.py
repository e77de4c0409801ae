"""Rendered videos, and runs of `learn` that take seconds."""

from pathlib import Path

from lstr.pipelines.learning.learn import Learnt, learn
from lstr.pipelines.learning.plan import LearnOptions
from lstr.pipelines.progress import result_of

SMALL = {"epochs": "1", "draws": "16", "short_side": "64", "crop": "64", "model.d_model": "32", "train.epochs": "4"}


def options(videos: Path, output: Path, **others) -> LearnOptions:
    changed = {"settings": SMALL, "cache": videos / "chunks", "device": "cpu", "algorithm": "dis", **others}
    return LearnOptions([str(videos / "videos")], str(videos / "labels.json"), output, **changed)


def run(chosen: LearnOptions) -> tuple[list, Learnt]:
    """Return all events and the result of `learn`."""
    events: list = []
    return events, result_of(learn(chosen), events.append)

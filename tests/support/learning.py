"""Rendered videos, and runs of `learn` that take seconds."""

import json
from collections.abc import Callable
from pathlib import Path

from lstr.pipelines.learning.learn import Learnt, learn
from lstr.pipelines.learning.plan import LearnOptions
from lstr.pipelines.progress import result_of

SMALL = {"epochs": "1", "draws": "16", "short_side": "64", "crop": "64", "model.d_model": "32", "train.epochs": "4"}


def change_labels(videos: Path, folder: Path, change: Callable[[dict[str, dict]], object]) -> str:
    """Write the labels to another folder, their entries by video id changed; return the path."""
    content = json.loads((videos / "labels.json").read_text())
    change(content["database"])
    (folder / "labels.json").write_text(json.dumps(content))
    return str(folder / "labels.json")


def use_all_for_training(database: dict[str, dict]) -> None:
    for entry in database.values():
        entry["subset"] = "training"


def name_validation(database: dict[str, dict]) -> None:
    """Use the first training video for validation."""
    database[min(i for i, entry in database.items() if entry["subset"] == "training")]["subset"] = "validation"


def options(videos: Path, output: Path, **others) -> LearnOptions:
    usual = {"videos": [str(videos / "videos")], "labels": str(videos / "labels.json"), "output": output}
    usual |= {"settings": SMALL, "cache": videos / "chunks", "device": "cpu", "algorithm": "dis"}
    return LearnOptions(**usual | others)


def run(chosen: LearnOptions) -> tuple[list, Learnt]:
    """Return all events and the result of `learn`."""
    events: list = []
    return events, result_of(learn(chosen), events.append)

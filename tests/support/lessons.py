"""Learnings of a labels project that take seconds, as the page begins them."""

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

from lstr.pipelines.labelling.job import LabelOptions
from lstr.pipelines.labelling.lesson import Lesson
from lstr.pipelines.labelling.lessons import Lessons
from tests.support.learning import SMALL, write_videos

SMALLEST = {**SMALL, "draws": "24", "train.epochs": "2"}
LEARNING = {"settings": SMALLEST, "algorithm": "dis", "recipe": "fast", "stream": "flow", "folds": 2}
PATIENCE = 300.0  # seconds that a learning may take on a machine with other work


def write_labelled(root: Path) -> Path:
    """Six drawn videos, and labels of them that hold out none."""
    write_videos(root)
    content = json.loads((root / "labels.json").read_text())
    for entry in content["database"].values():
        entry.pop("subset", None)
    (root / "labels.json").write_text(json.dumps(content))
    return root


def options(root: Path, output: Path, **others) -> LabelOptions:
    """Of a project in `output` that goes on, or begins with the labels of `root`."""
    labels = () if output.exists() else (str(root / "labels.json"),)
    return LabelOptions([str(root / "videos")], output, labels, learning=LEARNING, **others)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that another thread does."""
    begun = monotonic()
    while not condition():
        if monotonic() - begun > PATIENCE:
            raise AssertionError(f"never came: {what}")
        sleep(0.05)


def wait(lessons: Lessons) -> Lesson:
    """Wait until nothing is learnt any more; the newest learning."""
    until(lambda: lessons.state()["run"] is None, "the end of the learning")
    return newest(lessons)


def wait_for_step(lessons: Lessons, number: int) -> None:
    """Wait until a step of the plan has begun."""
    until(lambda: (lessons.state()["run"] or {"number": 99})["number"] >= number, f"step {number}")


def newest(lessons: Lessons) -> Lesson:
    """The newest learning, as it is on the disk."""
    numbers = [one["number"] for one in lessons.describe()["lessons"]]
    found = lessons.files(max(numbers)).read()
    assert found
    return found

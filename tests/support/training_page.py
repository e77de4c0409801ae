"""Trainings of a labels project that take seconds, as the page begins them."""

import json
from collections.abc import Callable
from pathlib import Path
from time import monotonic, sleep

from lstr.pipelines.labelling.label import label
from lstr.pipelines.labelling.training import Training
from tests.support.learning import SMALL, write_videos

SETTINGS = {**SMALL, "draws": "24", "train.epochs": "2", "learn.folds": "2"}
OPTIONS = ("--set", "recipe.flow_algorithm=dis", "--recipe", "fast", "--set", "recipe.stream=flow")
OPTIONS += tuple(word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}"))
PATIENCE = 300.0  # seconds that a training may take on a machine with other work


def write_labelled(root: Path) -> Path:
    """Six drawn videos, and labels of them that hold out none."""
    write_videos(root)
    content = json.loads((root / "labels.json").read_text())
    for entry in content["database"].values():
        entry.pop("subset", None)
    (root / "labels.json").write_text(json.dumps(content))
    return root


def serve(root: Path, output: Path):
    """Serve a project in `output` that is resumed, or begins with the labels of `root`; a context manager."""
    labels = () if output.exists() else (str(root / "labels.json"),)
    return label([str(root / "videos")], output, labels, training=OPTIONS)


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for something that another thread does."""
    begun = monotonic()
    while not condition():
        if monotonic() - begun > PATIENCE:
            raise AssertionError(f"never came: {what}")
        sleep(0.05)


def wait(training: Training) -> dict:
    """Wait until nothing is trained any more; the state."""
    until(lambda: training.describe()["progress"] is None, "the end of the training")
    return training.describe()


def wait_for_step(training: Training, number: int) -> None:
    """Wait until a step has begun."""
    until(lambda: (training.describe()["progress"] or {"step": 99})["step"] >= number, f"step {number}")

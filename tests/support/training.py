"""Train a model in seconds, and read the log of a training."""

from collections.abc import Mapping
from pathlib import Path

from lstr.files.content import read_jsonl
from lstr.pipelines.training.config import resolve
from lstr.pipelines.training.train import Task, train_model
from tests.support.feature_set import TINY_SETTINGS

MEASURED = ("rate", "waiting", "memory_mb")


def train_tiny(split, run: Path, changes: Mapping[str, str], validation=None, resume: bool = False):
    """Return the steps, to be taken, of a tiny model with changed settings, by default of two epochs."""
    model, config = resolve("lstr-small", {**TINY_SETTINGS, "train.epochs": "2", **changes}, split.dims)
    return train_model(Task(split, model, config, validation), run, resume=resume)


def read_log(run: Path, excluded=MEASURED) -> list[dict]:
    """Read the lines of metrics.jsonl, by default without times and memory."""
    lines = read_jsonl(run / "metrics.jsonl")
    return [{name: value for name, value in line.items() if name not in excluded} for line in lines]

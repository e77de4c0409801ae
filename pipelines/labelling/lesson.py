"""A learning from the labels of a project: what it is of, where its files are, and what came of it."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from lstr.labels.label_set import read_json
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.labelling.document import OURS, to_document
from lstr.pipelines.labelling.state import State
from lstr.pipelines.labelling.values import NOTHING, RefusedError

LEARNING, STOPPED, FAILED, LEARNT = "learning", "stopped", "failed", "learnt"
RECORD = "lesson.json"
OPTIONS = {"algorithm": "--flow"}
"""What `lstr learn` calls a field of `LearnOptions` that it calls otherwise; and those that it takes by --set:"""
SETTINGS = {"cache": "cache", "folds": "learn.folds", "seed": "seed"}


@dataclass(frozen=True)
class LessonOptions:
    """What every learning of a project takes besides its labels."""

    videos: Sequence[str]
    """The videos as the command line has them"""
    kept: int = 5
    """Learnings whose folders stay; those of older ones go, unless a person has named them"""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Fields of `LearnOptions` by name, but for videos, labels, output and time"""


@dataclass(frozen=True)
class Lesson:
    """One learning, as it is on the disk."""

    number: int
    begun: float
    """When, in seconds since 1970"""
    videos: int
    """How many have labels, or are complete"""
    labels: int
    seconds: float | None = None
    """All that it may take; None for all that it needs"""
    state: str = LEARNING
    """LEARNING, STOPPED, FAILED or LEARNT"""
    name: str = ""
    """What a person calls it"""
    error: str = ""
    hint: str = ""
    warnings: tuple[str, ...] = ()
    measured: dict[str, Any] | None = None
    """How good it is, see `lstr.pipelines.labelling.lesson_process.Measured`"""
    differences: dict[str, Any] | None = None
    """What became better and worse, see `lstr.pipelines.comparison.differences`; `old` is the number of the other"""


@dataclass(frozen=True)
class LessonFiles:
    """The folder of a learning: its labels, its model file, and what `lstr learn` keeps beside that."""

    folder: Path
    number: int

    @property
    def labels(self) -> Path:
        """The labels that it learns from, which change no more."""
        return self.folder / "labels.json"

    @property
    def model(self) -> Path:
        """The model file."""
        return self.folder / f"model-{self.number}.lstr"

    @property
    def parts(self) -> Path:
        """What the model is made of, as `learning.workspace.Workspace` has it, whose import brings torch."""
        return self.model.with_suffix(".learn")

    @property
    def report(self) -> Path:
        """What `lstr learn` says of the model."""
        return self.parts / "report"

    def write(self, lesson: Lesson) -> None:
        """Keep what is known of the learning. Raises OutputError."""
        write_json(self.folder / RECORD, asdict(lesson))

    def read(self) -> Lesson | None:
        """What is known of it; None where that cannot be read."""
        with suppress(Exception):  # another program's file, or one of a disk that failed
            return msgspec.convert(read_json(self.folder / RECORD), Lesson)
        return None

    def action_names(self) -> dict[str, str]:
        """The name that each action had in its labels, by id; empty where they cannot be read."""
        with suppress(Exception):
            return {str(action["id"]): str(action["name"]) for action in read_json(self.labels)[OURS]["actions"]}
        return {}


def files_of(folder: Path, number: int) -> LessonFiles:
    """The files of a learning among those of a project."""
    return LessonFiles(folder / str(number), number)


def command_of(options: LessonOptions, labels: Path, model: Path, seconds: float | None) -> str:
    """The command that makes the same model file."""
    words = ["lstr", "learn", *options.videos, str(labels), "-o", str(model)]
    if seconds is not None:
        words += ["--time", f"{seconds / 60:g}m" if seconds % 60 == 0 else f"{seconds:g}s"]
    for name, value in options.settings.items():
        if name in SETTINGS:
            words += ["--set", f"{SETTINGS[name]}={value}"]
        elif name == "settings":
            words += [word for setting in value.items() for word in ("--set", "=".join(setting))]
        else:
            words += [OPTIONS.get(name, f"--{name}"), str(value)]
    return shlex.join(words)


def learnable(state: State) -> State:
    """The values of a project from which something can be learnt: videos with a label, and complete ones.

    Raises RefusedError where there are none.
    """
    known = {video for video, about in state.abouts.items() if about.complete}
    known |= {video for video, labels in state.labels.items() if any(one.end is not None for one in labels.values())}
    labels = {video: held for video, held in state.labels.items() if video in known}
    abouts = {video: about for video, about in state.abouts.items() if video in known}
    kept = State(labels, abouts=abouts, actions=dict(state.actions), subjects=dict(state.subjects))
    if not n_labels(kept):
        raise RefusedError("Nothing is labelled yet.", "label an action in a few videos, then learn from them.")
    return kept


def n_labels(state: State) -> int:
    """How many labels have an action and an end."""
    every = (label for labels in state.labels.values() for label in labels.values())
    return sum(label.end is not None and label.action != NOTHING for label in every)


def write_snapshot(files: LessonFiles, state: State, durations: Mapping[str, float], revision: int) -> None:
    """Write the labels of a learning. Raises OutputError."""
    write_json(files.labels, to_document(state, durations, {"revision": revision}))

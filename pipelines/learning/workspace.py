"""The folder beside a model file, with all that it is made of, from which learning goes on."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from lstr.errors import OutputError
from lstr.files.atomic import lock, unwritable
from lstr.files.content import write_json
from lstr.labels.label_set import Labels
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.learning.plan import LearnPlan
from lstr.pipelines.training.run_folder import CONFIG

FORMAT = "lstr-learn/1"
LOCK = "lock"


@dataclass(frozen=True)
class Begun:
    """What an earlier run has begun."""

    request: str
    task: str
    """The request but for its time"""
    plan: LearnPlan


class Workspace:
    """The folder of a model file, fall.learn beside fall.lstr, and where each part of a learning is in it.

    labels: as they are learnt from, with their subsets. weights: the weights folder of the networks. features: the
    feature folder of all videos. run: the folder of the model's training, where some videos are held out; models: those
    of all and without each fold, where none is. report: what `lstr evaluate` writes. plan_file: the plan,
    and what it was made for.
    """

    def __init__(self, model: Path):
        self.path = model.with_suffix(".learn")
        self.labels, self.plan_file = self.path / "labels.json", self.path / "plan.json"
        self.weights, self.features, self.run = (self.path / name for name in ("weights", "features", "run"))
        self.report, self.models = self.path / "report", self.path / "models"

    def seen_features(self, fold: int) -> Path:
        """Features of the videos that the networks without a fold have learnt from, of all videos for fold 0."""
        return self.path / "seen" / (f"without_{fold}" if fold else "all")

    def fold(self, number: int) -> Path:
        """The folder of a model without one fold of the videos."""
        return self.path / "folds" / str(number)

    @property
    def is_foreign(self) -> bool:
        """Whether a folder of this name holds what no learning has made."""
        own = {LOCK, self.labels.name}  # what a learning that was stopped at once leaves
        there = self.path.is_dir() and any(path.name not in own for path in self.path.iterdir())
        return there and not self.plan_file.is_file()

    @property
    def has_networks(self) -> bool:
        """Whether the training of networks has begun, whose epochs are settled then."""
        return (self.weights / CONFIG).is_file()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep other learnings out of the folder; at the end it goes away if nothing came into it.

        Raises OutputError where another one holds it, or where it cannot be written.
        """
        try:
            lock = self._lock()
        except OSError as error:
            raise unwritable(self.path.parent, error) from error
        with lock:
            try:
                yield
            finally:
                with suppress(OSError):
                    if [path.name for path in self.path.iterdir()] == [LOCK]:
                        (self.path / LOCK).unlink()
                        self.path.rmdir()

    def _lock(self) -> TextIO:
        """The lock, with the number of this process; the system frees it even after a kill."""
        path = self.path / LOCK
        while True:
            self.path.mkdir(parents=True, exist_ok=True)
            file = path.open("a+", encoding="utf-8")
            if not lock(file):
                with file:
                    file.seek(0)
                    holder = file.read().strip()
                raise OutputError(
                    f"Another learning is writing {self.path}{holder and f' (process {holder})'}.",
                    "wait until it is done, or name another file with -o.",
                )
            with suppress(FileNotFoundError):  # its last holder has just taken it away
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    file.truncate(0)
                    file.write(f"{os.getpid()}\n")
                    file.flush()
                    return file
            file.close()

    def read_plan(self) -> Begun | None:
        """What was planned before and for which request; None where nothing was, or by another version."""
        try:
            content = json.loads(self.plan_file.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                return None
            return Begun(content["request"], content["task"], LearnPlan.from_dict(content["plan"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def begin(self, request: str, task: str, plan: LearnPlan, labels: Labels) -> None:
        """Write the plan and the labels; what an earlier request has left is removed. Raises OutputError."""
        for name in ("weights", "features", "run", "folds", "models", "seen", "report"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        self.go_on(request, task, plan, labels)

    def go_on(self, request: str, task: str, plan: LearnPlan, labels: Labels) -> None:
        """Write the plan, which may have another time than it began with, and the labels. Raises OutputError."""
        write_labels(self.labels, labels)  # also anew: one that began otherwise may have been stopped after this line
        write_json(self.plan_file, {"format": FORMAT, "request": request, "task": task, "plan": plan.to_dict()})


def write_labels(path: Path, labels: Labels) -> None:
    """Write labels in ActivityNet's form. Raises OutputError."""
    videos = {name: AnnotatedVideo(v.segments, v.subset, v.duration) for name, v in sorted(labels.videos.items())}
    write_json(path, to_activitynet(AnnotationSet(videos, labels.classes), results=False))

"""The working folder of a learning, from which it can be resumed."""

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

FORMAT = "lstr-learn/2"
LOCK = "lock"


@dataclass(frozen=True)
class StoredPlan:
    """The plan of an earlier run, what it was made for (`request`), and the same without the time limit (`task`)."""

    request: str
    task: str
    plan: LearnPlan


class Workspace:
    """The working folder of a model file: fall.learn next to fall.lstr.

    Attributes:
        labels: The labels with their subsets.
        weights: The weights folder of the networks.
        features: Features of all videos, by networks that have not learnt from them.
        models: The models that see the features.
        report: What `lstr evaluate` writes.
        plan_file: The plan, and what it was made for.
    """

    def __init__(self, model: Path):
        self.path = model.with_suffix(".learn")
        self.labels, self.plan_file = self.path / "labels.json", self.path / "plan.json"
        self.weights, self.features = self.path / "weights", self.path / "features"
        self.report, self.models = self.path / "report", self.path / "models"

    def seen_features(self, fold: int) -> Path:
        """Return the folder of features by the networks without a fold, of the videos that they have learnt from.

        fold: 0 for the networks of all videos.
        """
        return self.path / "seen" / (f"without_{fold}" if fold else "all")

    @property
    def is_foreign(self) -> bool:
        """Whether the folder has files that no learning has written."""
        own = {LOCK, self.labels.name}  # of a learning that was stopped at once
        has_others = self.path.is_dir() and any(path.name not in own for path in self.path.iterdir())
        return has_others and not self.plan_file.is_file()

    @property
    def has_networks(self) -> bool:
        """Whether the training of networks has started, so that their epochs are settled."""
        return (self.weights / CONFIG).is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder; remove it at the end if it is empty.

        Raises OutputError if another process holds it, or if it cannot be written.
        """
        try:
            lock_file = self._lock()
        except OSError as error:
            raise unwritable(self.path.parent, error) from error
        with lock_file:
            try:
                yield
            finally:
                with suppress(OSError):
                    if [path.name for path in self.path.iterdir()] == [LOCK]:
                        (self.path / LOCK).unlink()
                        self.path.rmdir()

    def _lock(self) -> TextIO:
        """Return the locked file, which has the number of this process; the system frees it even after a kill."""
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
            with suppress(FileNotFoundError):  # its last holder has just removed it
                if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                    file.truncate(0)
                    file.write(f"{os.getpid()}\n")
                    file.flush()
                    return file
            file.close()

    def read_plan(self) -> StoredPlan | None:
        """Return the stored plan; None if there is none, or if another version wrote it."""
        try:
            content = json.loads(self.plan_file.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                return None
            return StoredPlan(content["request"], content["task"], LearnPlan.from_dict(content["plan"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def write_plan(self, stored: StoredPlan, labels: Labels, is_resumed: bool) -> None:
        """Write labels and plan; remove the results of another plan unless this one is resumed. Raises OutputError."""
        for name in () if is_resumed else ("weights", "features", "models", "seen", "report"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        write_labels(self.labels, labels)  # also if resumed: another learning may have been stopped after this line
        content = {"format": FORMAT, "request": stored.request, "task": stored.task, "plan": stored.plan.to_dict()}
        write_json(self.plan_file, content)


def write_labels(path: Path, labels: Labels) -> None:
    """Write labels as ActivityNet JSON. Raises OutputError."""
    videos = {name: AnnotatedVideo(v.segments, v.subset, v.duration) for name, v in sorted(labels.videos.items())}
    write_json(path, to_activitynet(AnnotationSet(videos, labels.classes), results=False))

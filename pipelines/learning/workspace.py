"""The working folder of a learning, from which it can be resumed."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from lstr.errors import OutputError
from lstr.files.atomic import lock, unwritable
from lstr.files.content import write_json
from lstr.labels.label_set import Labels
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.learning.plan import LearnPlan
from lstr.pipelines.training.run_folder import CONFIG

FORMAT = "lstr-learn/2"


class StoredPlan(NamedTuple):
    """A plan, a hash of what it was made for (`request`), and the same without the time limit (`task`)."""

    request: str
    task: str
    plan: LearnPlan


class Workspace:
    """The working folder of a model file: fall.learn next to fall.lstr."""

    def __init__(self, model: Path):
        self.path = model.with_suffix(".learn")
        self.plan_file = self.path / "plan.json"
        self.labels = self.path / "labels.json"  # with their subsets
        self.weights, self.models = self.path / "weights", self.path / "models"
        self.features = self.path / "features"  # of all videos, by networks that have not learnt from them
        self.report = self.path / "report"  # of `lstr evaluate`

    def seen_features(self, fold: int) -> Path:
        """Return the folder of features by the networks without a fold (0: of all), of videos that they learnt from."""
        return self.path / "seen" / (f"without_{fold}" if fold else "all")

    @property
    def is_foreign(self) -> bool:
        """Whether the folder has files that no learning has written."""
        own = {"lock", self.labels.name}  # of a learning that was stopped at once, `lock` by an earlier version
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
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise unwritable(self.path.parent, error) from error
        try:
            if not lock(handle):  # the system frees the lock of a killed process
                raise OutputError(
                    f"Another learning is writing {self.path}.", "wait until it is done, or name another file with -o."
                )
            yield
        finally:
            with suppress(OSError):  # it is not empty
                self.path.rmdir()
            os.close(handle)

    def read_plan(self) -> StoredPlan | None:
        """Return the stored plan; None if there is none, or if another version wrote it."""
        try:
            content = json.loads(self.plan_file.read_text(encoding="utf-8"))
            plan = LearnPlan.from_dict(content["plan"])
            return StoredPlan(content["request"], content["task"], plan) if content["format"] == FORMAT else None
        except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError):
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

"""The folder beside a model file, with all that it is made of, from which learning goes on."""

import hashlib
import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lstr.labels.label_set import Labels
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.files.atomic import sweep
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.learning.plan import LearnPlan

FORMAT = "lstr-learn/1"


@dataclass(frozen=True)
class Workspace:
    """Where each part of a learning is."""

    path: Path

    @classmethod
    def beside(cls, model: Path) -> "Workspace":
        """The folder of a model file: fall.learn beside fall.lstr."""
        return cls(model.with_suffix(".learn"))

    @property
    def labels(self) -> Path:
        """The labels as they are learnt from, with their subsets."""
        return self.path / "labels.json"

    @property
    def weights(self) -> Path:
        """The weights folder of the networks."""
        return self.path / "weights"

    @property
    def features(self) -> Path:
        """The feature folder of all videos."""
        return self.path / "features"

    @property
    def run(self) -> Path:
        """The folder of the model's training."""
        return self.path / "run"

    @property
    def report(self) -> Path:
        """What `lstr evaluate` writes."""
        return self.path / "report"

    @property
    def plan_file(self) -> Path:
        """The plan, and what it was made for."""
        return self.path / "plan.json"

    def fold(self, number: int) -> Path:
        """The folder of a model without one fold of the videos."""
        return self.path / "folds" / str(number)

    def read_plan(self) -> tuple[str, LearnPlan] | None:
        """What was planned before and for which request; None where nothing was, or by another version."""
        try:
            content = json.loads(self.plan_file.read_text(encoding="utf-8"))
            if content["format"] != FORMAT:
                return None
            return content["request"], LearnPlan.from_dict(content["plan"])
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def begin(self, request: str, plan: LearnPlan, labels: Labels) -> None:
        """Write the plan and the labels; what an earlier request has left is removed. Raises OutputError."""
        for name in ("weights", "features", "run", "folds", "report"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        write_labels(self.labels, labels)
        write_json(self.plan_file, {"format": FORMAT, "request": request, "plan": plan.to_dict()})

    def sweep(self) -> None:
        """Remove what a killed run left half written."""
        if self.path.is_dir():
            sweep(self.path)


def _annotated(labels: Labels) -> AnnotationSet:
    videos = {name: AnnotatedVideo(v.segments, v.subset, v.duration) for name, v in sorted(labels.videos.items())}
    return AnnotationSet(videos, labels.classes)


def write_labels(path: Path, labels: Labels) -> None:
    """Write labels in ActivityNet's form. Raises OutputError."""
    write_json(path, to_activitynet(_annotated(labels), results=False))


def request_id(request: dict[str, Any]) -> str:
    """A request's identity: equal ones are the same learning."""
    return hashlib.sha256(json.dumps(request, sort_keys=True, default=str).encode()).hexdigest()[:16]

"""The folder beside a model file, with all that it is made of, from which learning goes on."""

import json
import shutil
from pathlib import Path

from lstr.labels.label_set import Labels
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.learning.plan import LearnPlan

FORMAT = "lstr-learn/1"


class Workspace:
    """The folder of a model file, fall.learn beside fall.lstr, and where each part of a learning is in it.

    labels: as they are learnt from, with their subsets. weights: the weights folder of the networks. features: the
    feature folder of all videos. run: the folder of the model's training, where some videos are held out; models: those
    of all and without each fold, where none is. report: what `lstr evaluate` writes.
    plan_file: the plan, and what it was made for.
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
        for name in ("weights", "features", "run", "folds", "models", "seen", "report"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        write_labels(self.labels, labels)
        write_json(self.plan_file, {"format": FORMAT, "request": request, "plan": plan.to_dict()})


def write_labels(path: Path, labels: Labels) -> None:
    """Write labels in ActivityNet's form. Raises OutputError."""
    videos = {name: AnnotatedVideo(v.segments, v.subset, v.duration) for name, v in sorted(labels.videos.items())}
    write_json(path, to_activitynet(AnnotationSet(videos, labels.classes), results=False))

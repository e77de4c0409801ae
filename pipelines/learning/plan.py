"""The options of `lstr learn`, its plan with steps and their times, and the working folder that stores the plan."""

import os
import shutil
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import ConfigError, LabelsError, OutputError
from lstr.extractors.streams import STREAMS
from lstr.extractors.video.inputs import find_sources
from lstr.files.atomic import lock, unwritable
from lstr.files.content import read_object, write_json
from lstr.files.remote import Place
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, VideoLabels
from lstr.metrics.actions import length_text
from lstr.pipelines.annotations.activitynet import to_activitynet
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.evaluation.thresholds import DELAY_PRICE
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.learning.division import TESTING, TRAINING, VALIDATION
from lstr.pipelines.progress import Notice
from lstr.pipelines.training.finetune import VideoOptions
from lstr.settings import Amount, PositiveAmount

CHUNKS, FEATURES, MODEL, THRESHOLDS, MEASURE, PACK = "chunks", "features", "model", "thresholds", "measure", "pack"
NETWORKS = {stream: f"{stream} network" for stream in STREAMS}
STEP_NAMES = {
    CHUNKS: "compute frames and flow",
    **{key: f"train the {stream if stream != 'rgb' else 'RGB'} network" for stream, key in NETWORKS.items()},
    FEATURES: "compute features",
    MODEL: "train the model",
    THRESHOLDS: "choose thresholds",
    MEASURE: "measure on held-out videos",
    PACK: "write the model file",
}
TIME_MARGIN = 1.2  # safety factor on measured times, so that a time limit holds
MODEL_SETTINGS = ("model", "train")
MAX_FOLDS = 10


@dataclass(frozen=True)
class LearnOptions(VideoOptions):
    """Options of `lstr learn`; `recipe` is by default SEVERAL_RECORDINGS, or ONE_RECORDING.

    `settings` may also contain `model.NAME` and `train.NAME` for the models on the features, whose seed is `seed` too.
    `folds` are for cross-validation, so that all videos can be used for training; 0 to hold out videos instead, None
    for 3, or for 0 if the time limit is too short.
    """

    false_alarms: PositiveAmount | None = None
    """Maximum false alarms per hour for choosing thresholds; None for the highest F1."""
    negatives: Sequence[str] = ()
    """Files, folders, patterns and URLs of videos in which no action happens; they need no labels."""
    delay_price: Amount = DELAY_PRICE
    """The F1 that a second of mean delay is worth for choosing thresholds."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """Additional entries of the model file."""

    def __post_init__(self) -> None:
        """Raises ConfigError for values out of range."""
        super().__post_init__()
        if self.folds is not None and not (self.folds == 0 or 2 <= self.folds <= MAX_FOLDS):
            raise ConfigError(f"folds is {self.folds}.", f"use 0, or a number from 2 to {MAX_FOLDS}.")

    def read(self) -> Generator[Notice, None, tuple[dict[str, Place], Labels]]:
        """Return the videos by id, and their labels; the negatives are labelled videos without actions."""
        found, labels = yield from super().read()
        negatives = find_sources(self.negatives)
        if labelled := sorted(negatives.keys() & labels.videos.keys()):
            text = f"{labelled[0]!r} is both labelled and among the videos without actions."
            raise LabelsError(text, "leave it out of --negatives, or rename one of two videos with this name.")
        empty = VideoLabels(TRAINING if labels.has_subsets else "")
        return found | negatives, replace(labels, videos={**labels.videos, **dict.fromkeys(negatives, empty)})

    @property
    def network_settings(self) -> dict[str, str]:
        """The settings of the feature networks."""
        return {name: value for name, value in self.settings.items() if name.split(".")[0] not in MODEL_SETTINGS}

    @property
    def model_settings(self) -> dict[str, str]:
        """The settings of the models on the features; `seed` is theirs and the networks'."""
        chosen = {name: value for name, value in self.settings.items() if name.split(".")[0] in MODEL_SETTINGS}
        return {"train.seed": seed, **chosen} if (seed := self.settings.get("seed")) else chosen

    def settings_of(self, streams: Sequence[str], preset: str) -> dict[str, str]:
        """Return the settings of a model on these streams, with deltas for an RNN on poses."""
        # on UR Fall mAP of poses was .90 instead of .88 in folds; of images, and on UT-Interaction, deltas gain nothing
        has_deltas = tuple(streams) == ("pose",) and preset == "rnn-small"
        return ({"model.deltas": "true"} if has_deltas else {}) | self.model_settings


@dataclass(frozen=True)
class StepProgress:
    """Progress of a step, its planned seconds, and the remaining seconds of this and all later steps."""

    key: str
    number: int
    steps: int
    done: int
    total: int
    seconds: float
    left: float


@dataclass(frozen=True)
class LearnPlan:
    """The plan of a training job: its steps, data, networks and models."""

    videos: Mapping[str, int]  # number of videos by subset; the same for `chunks`
    chunks: Mapping[str, int]
    n_classes: int
    split: str  # how the result is measured, a sentence
    steps: Mapping[str, float]  # estimated seconds of each step by its key, in order
    epochs: Mapping[str, int]  # by stream; 0 for a network that is not trained
    draws: int  # images per epoch
    models: tuple[tuple[str, ...], ...]  # the streams of each model; the scores of all models are averaged
    preset: str  # the training preset of the models
    bytes: int  # approximate disk space in bytes
    threads: int = 1  # threads of torch. A resumed run keeps this number, so that its result is equal to the bit
    at_once: int = 1  # networks of a stream that are trained in parallel, each with `threads`
    budget: float | None = None  # the time limit in seconds
    folds: int = 0  # number of folds, each with separate networks and models; 0 if videos are held out instead
    recipe: str | None = None  # how features are made, if the plan chose it
    is_one_recording: bool = False  # whether all training videos belong to one recording

    @property
    def warning(self) -> str:
        """The reason why thresholds may be poor; empty if they are chosen on videos that are new to the networks."""
        if self.folds or self.videos.get(VALIDATION) or not any(self.epochs.values()):
            return ""
        if self.is_one_recording:
            return (
                "the model and its thresholds come from one recording, so it may work on that recording only: "
                "label a second recording before you rely on it."
            )
        return (
            "thresholds are chosen on videos that the networks were trained on, which score higher than new videos: "
            "expect many false alarms. Use folds, or separate validation and testing videos, to avoid this."
        )

    @property
    def limitation(self) -> str:
        """What the measured videos are too short to show, as `describe_limitation`."""
        return describe_limitation((self.chunks.get(TESTING) or self.chunks[TRAINING]) / FEATURES_PER_SECOND / 3600)

    @property
    def seconds(self) -> float:
        """Estimated seconds of all steps."""
        return sum(self.steps.values())

    def since(self, key: str) -> list[float]:
        """Return the estimated seconds of a step and of all later steps."""
        return list(self.steps.values())[list(self.steps).index(key) :]

    def progress(self, key: str, done: int = 0, total: int = 0) -> StepProgress:
        """Return the progress of a step as part of all steps."""
        seconds, *later = self.since(key)
        left = seconds * (1 - done / max(1, total)) + sum(later)
        return StepProgress(key, len(self.steps) - len(later), len(self.steps), done, total, seconds, left)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a JSON object."""
        steps = [{"key": key, "name": STEP_NAMES[key], "seconds": seconds} for key, seconds in self.steps.items()]
        return {**asdict(self), "steps": steps, "seconds": self.seconds}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "LearnPlan":
        """Build a plan from a JSON object of `to_dict`."""
        return msgspec.convert({**content, "steps": {s["key"]: s["seconds"] for s in content["steps"]}}, cls)


def describe_limitation(hours: float) -> str:
    """Return a sentence if false alarms are measured on less than an hour of video; empty otherwise."""
    if hours >= 1:
        return ""
    only = f"false alarms are measured on {length_text(hours)} of video only"
    return f"{only}: add an hour without the actions by --negatives, or as testing videos if the labels name some."


FORMAT = "lstr-learn/2"


class Workspace:
    """The working folder of a model file: fall.learn next to fall.lstr."""

    def __init__(self, model: Path):
        self.path = model.with_suffix(".learn")
        self.plan_file = self.path / "plan.json"
        self.labels = self.path / "labels.json"  # with their subsets
        self.weights, self.models = self.path / "weights", self.path / "models"
        self.features = self.path / "features"  # of all videos, by networks that were not trained on them
        self.report = self.path / "report"  # of `lstr evaluate`

    def seen_features(self, fold: int) -> Path:
        """Return the folder of the training videos' features by the networks without a fold (0: of all videos)."""
        return self.path / "seen" / (f"without_{fold}" if fold else "all")

    @property
    def is_foreign(self) -> bool:
        """Return whether the folder contains files that `lstr learn` has not written."""
        return self.path.is_dir() and any(self.path.iterdir()) and not self.plan_file.is_file()

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the folder; remove it at the end if it is empty.

        Raises OutputError if another process has locked it, or if it cannot be written.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path, os.O_RDONLY)
        except OSError as error:
            raise unwritable(self.path.parent, error) from error
        try:
            if not lock(handle):  # the operating system releases the lock of a killed process
                raise OutputError(
                    f"Another `lstr learn` is writing {self.path}.",
                    "wait until it is done, or name another file with -o.",
                )
            try:
                yield
            finally:
                with suppress(OSError):  # it is not empty
                    self.path.rmdir()
        finally:
            os.close(handle)

    def read_plan(self) -> tuple[str, str, LearnPlan] | None:
        """Return the arguments of `write_plan`; None without a plan, or if another version wrote it."""
        with suppress(KeyError, TypeError, msgspec.ValidationError):
            content = read_object(self.plan_file) or {}
            if content["format"] == FORMAT:
                return content["request"], content["task"], LearnPlan.from_dict(content["plan"])
        return None

    def write_plan(self, request: str, task: str, plan: LearnPlan, labels: Labels, is_resumed: bool) -> None:
        """Write labels and plan; remove the results of another plan unless this one is resumed. Raises OutputError.

        `request` and `task` are hashes of the inputs of the plan, with and without the time limit.
        """
        for name in () if is_resumed else ("weights", "features", "models", "seen", "report"):
            shutil.rmtree(self.path / name, ignore_errors=True)
        write_json(self.plan_file, {"format": FORMAT, "request": request, "task": task, "plan": plan.to_dict()})
        write_labels(self.labels, labels)  # also if resumed, because a run may have stopped before this line

    def describe_data(self, labels: Labels) -> dict[str, Any]:
        """Return videos, seconds and labelled actions by subset.

        A video counts as long as its features are, and not at all if it has none.
        """
        subsets: dict[str, dict[str, Any]] = {}
        lengths = {i: n for i, n in open_features(self.features).lengths().items() if i in labels.videos}
        for video_id, chunks in lengths.items():
            video = labels.videos[video_id]
            about = subsets.setdefault(video.subset, {"videos": 0, "seconds": 0.0, "labels": Counter()})
            about["videos"] += 1
            about["seconds"] += chunks / FEATURES_PER_SECOND
            about["labels"].update(s.label for s in video.segments if s.label not in (BACKGROUND, AMBIGUOUS))
        return {"subsets": subsets}


def write_labels(path: Path, labels: Labels) -> None:
    """Write labels as ActivityNet JSON. Raises OutputError."""
    videos = dict(sorted(labels.videos.items()))
    write_json(path, to_activitynet(AnnotationSet(videos, labels.classes), results=False))

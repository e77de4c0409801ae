"""The training of one model: a split and two configurations to a checkpoint, resumable from any saved step.

A model may have a teacher: a model of the same kind that sees some of the future, and from whose scores it learns.
After Zhao et al., Privileged Knowledge Distillation for Online Action Detection (arXiv 2011.09158), of which no code
was found: the details are ours. A teacher is the same network, read late: its window is some chunks longer, and what it
says at its latest chunk is about the chunk so many before, which it has seen with what came after. Trained first, it
scores the training videos once; the model then learns from these scores in addition to the labels. Nothing of the
teacher is left in the checkpoint: the model takes what its kind takes, and costs what its kind costs.
"""

import hashlib
import json
import math
from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lstr import checkpoint
from lstr.batch import predict_ahead, shared_constants
from lstr.config import WindowConfig
from lstr.errors import ConfigError
from lstr.extractors.streams import streams_of_model
from lstr.files.atomic import check_kept
from lstr.kinds import configure, usable
from lstr.loaded_checkpoint import Checkpoint
from lstr.models.kind import Model
from lstr.pipelines.evaluation.scoring import Scoring, score_split
from lstr.pipelines.features.compatibility import seen_in, streams_of
from lstr.pipelines.features.dataset import Split
from lstr.pipelines.model_files.networks import ARRAYS, run_record
from lstr.pipelines.progress import result_of
from lstr.pipelines.provenance import make_reproducible, provenance
from lstr.pipelines.training.config import TrainConfig, changes_from, without_removed
from lstr.pipelines.training.learner import Learner, deterministic
from lstr.pipelines.training.loop import Saves, StepPlan, rates, train_steps
from lstr.pipelines.training.ranks import ALONE, Ranks
from lstr.pipelines.training.run_folder import Position, RunFolder, Step, open_log
from lstr.pipelines.training.window_samples import (
    Batch,
    KeptFeatures,
    PieceMaker,
    count_steps,
    default_readers,
    draw_windows,
    epoch_steps,
    feature_statistics,
    fit_on,
    read_ahead,
)


def in_time(late: Tensor, delay: int) -> Tensor:
    """Scores (L, C) of each chunk itself, of those (L, C) that come `delay` chunks later; zeros at the end."""
    scores = late.new_zeros(late.shape)
    known = max(0, len(late) - delay)
    scores[:known] = late[len(late) - known :]
    return scores


def check_teacher(model: WindowConfig, config: TrainConfig, longest: int) -> None:
    """Raise ConfigError for a kind that can have no teacher, and for one that sees more than the longest video has.

    longest: chunks.
    """
    if not config.teacher:
        return
    if not model.uses.teacher:
        able = ", ".join(name for name, kind in usable().items() if kind.uses.teacher)
        raise ConfigError(
            f"train.teacher is {config.teacher}, and kind {model.kind} has no scores of each chunk in training.",
            f"Leave train.teacher 0, or use one of the kinds {able}.",
        )
    if config.teacher >= longest:
        raise ConfigError(
            f"train.teacher is {config.teacher}, and the longest training video has {longest} chunks.",
            "Give fewer chunks, such as --set train.teacher=8.",
        )


@dataclass(frozen=True)
class Task:
    """Which model learns from which videos, and how."""

    split: Split
    model: WindowConfig
    config: TrainConfig
    validation: Split | None = None
    """Videos that choose best.pt, and end the run early by `config.patience`."""
    preset: str | None = None
    """The name that the checkpoint states as the origin of both configurations."""
    delay: int = 0
    """Chunks of the future that the model sees, where it is a teacher."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a teacher that the model cannot have."""
        check_teacher(self.model, self.config, max((len(video.features) for video in self.split.videos), default=0))

    def settings(self, device: str, ranks: Ranks) -> dict:
        """Everything that makes the run what it is, as config.json and the checkpoint carry it."""
        split, preset = self.split, self.preset
        videos = [(video.id, len(video.features)) for video in split.videos]
        labels = hashlib.sha256()
        for video in split.videos:
            labels.update(np.ascontiguousarray(video.targets).data)
        data: dict[str, Any] = {
            "features": str(split.folder.path),
            ARRAYS: list(split.folder.only(streams_of_model(self.model.streams)).names),
            "recipe": split.folder.recipe.id if split.folder.recipe else None,
            "classes": list(split.labels.classes),
            "videos": len(videos),
            "chunks": split.n_chunks,
            "videos_sha256": hashlib.sha256(json.dumps(videos).encode()).hexdigest(),
            "labels_sha256": labels.hexdigest(),
        }
        if store := split.folder.only(streams_of_model(self.model.streams)).describe():
            data["store"] = store
        if seen := seen_in(split, self.model):
            data["seen"] = {"videos": len(seen), "streams": streams_of(seen)}
        if self.delay:
            data["delay"] = self.delay
        named = {"preset": preset, "changed": changes_from(preset, self.model, self.config)} if preset else {}
        made = {"model": self.model.to_dict(), "train": self.config.to_dict(), "data": data}
        return {**named, **made, "made_by": provenance(device, ranks.size)}


def train_model(
    task: Task,
    folder: Path,
    device: str = "cpu",
    resume: bool = False,
    readers: int | None = None,
    ranks: Ranks = ALONE,
) -> Iterator[Step]:
    """Train the model of a task, yielding a Step after each logged interval.

    `folder` gets checkpoint.pt, resume.pt, config.json, metrics.jsonl, tensorboard/, and best.pt where there are
    validation videos. A stopped run resumes with `resume` from its last save, to the bit on a CPU.
    Its teacher, where it has one, is trained first, in a folder of its own, and resumes by itself.
    readers: threads that read features ahead. Raises CheckpointError when a run is in the way or had other settings,
    LstrError when loss or gradient is not finite or memory runs out.
    """
    config, split = task.config, task.split.narrowed(task.model)
    if config.deterministic:
        make_reproducible()
    settings, kept = task.settings(device, ranks), RunFolder(folder)
    if ranks.first:
        kept.begin(settings, resume, lambda before: upgrade(before, settings))
    ranks.wait()
    state = kept.read_state()
    soft = yield from _train_teacher(task, folder, device, readers, ranks)
    if state:
        statistics = state["mean"], state["std"]
    else:
        statistics = feature_statistics(split.videos) if config.standardise else (torch.zeros(1), torch.ones(1))
    steps = count_steps(split.videos, task.model, config)
    plan = StepPlan(
        config.epochs,
        steps,
        rates(config, steps, epoch_steps(split.videos, task.model, config)),
        config.log_every,
        config.eval_every if task.validation else 0,
        config.patience,
    )
    with deterministic(config.deterministic):
        learner = Learner(task.model, config, split.labels.classes, statistics, device, ranks)
        if not state:
            learner.prepare(split.videos)
        position = learner.restore(state) if state else Position()
        with open_log(kept, position.step) if ranks.first else nullcontext() as log:
            run = ModelRun(learner, task, kept, settings, readers or default_readers(), soft)
            for event in train_steps(run, plan, position, log, Saves(config.save_seconds)):
                if isinstance(event, Step):
                    yield event
    if ranks.first:
        check_kept(folder / kept.state)  # a teacher that is done has no checkpoint any more


def _train_teacher(
    task: Task, folder: Path, device: str, readers: int | None, ranks: Ranks
) -> Generator[Step, None, list[Tensor] | None]:
    """Train the teacher of a task, if it has one, or resume it.

    Returns its scores of each chunk of each training video, probabilities (L, C), with zeros where the video ends too
    soon for it. They are computed by the first process once the teacher is trained, and kept in its folder.
    """
    config, plain, delay = task.config, TrainConfig(), task.config.teacher
    if not delay:
        return None
    later = task.model.replace(work_length=task.model.work_length + delay, anticipation=0)
    own = {name: getattr(plain, name) for name in ("teacher", "teacher_weight", "temperature")}
    of_teacher = Task(task.split, later, config.replace(**own, eval_every=0, patience=0), delay=delay)
    run = RunFolder(folder / f"teacher-{delay}")
    for step in train_model(of_teacher, run.path, device, run.is_begun(), readers, ranks):
        yield replace(step, stage=f"teacher, {delay} chunks late")
    path, trained = run.path / "scores.pt", run.path / "checkpoint.pt"
    if ranks.first and not path.exists():
        model = checkpoint.load(trained).model.to(device)
        constants = shared_constants(model)
        videos = task.split.narrowed(task.model).videos
        late = [predict_ahead(model, video.features[:], constants=constants)[:, 0] for video in videos]
        checkpoint.write_atomically(path, {"scores": [in_time(scores, delay) for scores in late]})
    if ranks.first:
        trained.unlink(missing_ok=True)  # taken for a model of its kind, it would be late
    ranks.wait()
    return checkpoint.read(path)["scores"]


def upgrade(before: dict, now: dict) -> dict:
    """Return the settings of a run of an earlier version as this version would have written them.

    A setting that there was not before has its default. What has no part in the result is taken from `now`, and what
    an earlier version did not state.
    """
    unstated = {name: now["data"].get(name) for name in ("labels_sha256", ARRAYS)}
    data = {**unstated, **before["data"], "features": now["data"]["features"]}
    if store := data.get("store"):  # earlier runs state the order of the axes too
        data["store"] = {name: value for name, value in store.items() if name not in ("layouts", "key")}
    train = TrainConfig().to_dict() | without_removed(before["train"]) | {"save_seconds": now["train"]["save_seconds"]}
    model = configure(now["model"]["kind"]).to_dict() | before["model"]
    return {**now, "model": model, "train": train, "data": data}


def summary_of(result: dict) -> dict:
    """mAP, mcAP and AP per class of a result of `evaluate`, and how many videos feature networks have `seen`, if any.

    A mean is None where no chunk could score.
    """
    scored = result["lstr"]
    means = {name: None if math.isnan(scored[name]) else scored[name] for name in ("mAP", "mcAP")}
    seen = {"seen": len(result["seen"])} if "seen" in result else {}
    return {**means, "per_class": {label: entry["AP"] for label, entry in scored["per_class"].items()}, **seen}


class ModelRun:
    """A model in training, as the loop trains it (`lstr.pipelines.training.loop.Run`), and its checkpoints."""

    name = "train"

    def __init__(
        self,
        learner: Learner,
        task: Task,
        folder: RunFolder,
        settings: dict,
        readers: int,
        soft: Sequence[Tensor] | None,
    ):
        self.learner, self.folder, self.settings, self.readers = learner, folder, settings, readers
        self.split, self.validation = task.split, task.validation
        self.ranks, self.device = learner.ranks, learner.device
        self.videos = task.split.narrowed(task.model).videos
        kept = KeptFeatures(self.videos, self.device) if fit_on(self.videos, self.device) else None
        of_learner = learner.model.config, learner.config, learner.outputs, self.ranks, self.device
        self._make = PieceMaker(self.videos, *of_learner, kept, task.delay, soft)

    def _jobs(self, epoch: int) -> list[list[tuple[int, int]]]:
        """The windows (video, end chunk) of each step of an epoch."""
        config = self.learner.config
        drawn = draw_windows(self.videos, self.learner.model.config, config, epoch)
        return [drawn[at : at + config.batch_size] for at in range(0, len(drawn), config.batch_size)]

    def n_batches(self, epoch: int) -> int:
        """How many batches an epoch (from 0) has."""
        return len(self._jobs(epoch))

    def batches(self, epoch: int, first: int, most: int) -> Iterator[Batch]:
        """The batches of an epoch from `first` on, `most` at most, read ahead by threads."""
        return read_ahead(self._jobs(epoch)[first:][:most], self._make, self.readers)

    def step(self, batch: Batch, number: int, lr: float) -> tuple[float, float, int]:
        """Take a step: this process's part of the loss, the norm of the gradient, and the windows of all processes."""
        return *self.learner.step(batch, number, lr), batch.n_windows

    def evaluate(self, position: Position, epoch: int, values: dict) -> dict:
        """The mAP, mcAP and AP per class of the validation videos; best.pt where the metric was never as high."""
        assert self.validation is not None, "the plan of a run without validation videos has no evaluation"
        exported = self.learner.export()
        scored = score_split(self._loaded(exported.to(self.device)), self.validation, Scoring(allow_seen=True))
        result = summary_of(result_of(scored).document)
        if position.judge(result[self.learner.config.metric], epoch):
            metrics = {"epoch": epoch, **values, "step": position.step, "validation": result}
            self._save("best.pt", exported.cpu(), metrics)
        return result

    def save(self, step: Step, position: Position) -> None:
        """Save checkpoint and state.

        Checkpoint first, state last: a run resumed from the older state only repeats what lies between.
        """
        metrics = {"epoch": step.epoch, "step": step.step, "loss": step.loss, "validation": step.evaluation}
        self._save("checkpoint.pt", self.learner.export(), metrics)
        self.folder.save_state(position, self.learner.state())

    def _save(self, name: str, model: Model, metrics: dict) -> None:
        """A self-describing checkpoint of an exported model."""
        folder = self.split.folder
        videos = {"training_videos": [video.id for video in self.split.videos]}
        if self.validation:  # they choose its epoch
            videos["validation_videos"] = [video.id for video in self.validation.videos]
        checkpoint.save(
            self.folder.path / name,
            model,
            self.split.labels.classes,
            self._recipe(),
            {**metrics, **videos},
            {n: v for n, v in self.settings.items() if n != "model"} | run_record(folder.paths[0], self.folder.path),
            folder.calibration(),
        )

    def _loaded(self, model: Model) -> Checkpoint:
        """An exported model as if it had been saved and loaded."""
        return Checkpoint(
            model=model,
            config=model.config,
            classes=tuple(self.split.labels.classes),
            recipe=self._recipe(),
            metrics={},
            extra={},
            calibration={},
            versions={},
            format=checkpoint.FORMAT,
            path=self.folder.path / "checkpoint.pt",
            assumed={},
        )

    def _recipe(self) -> dict | None:
        return self.split.folder.recipe.to_dict() if self.split.folder.recipe else None

"""A split and two configurations to a checkpoint, by one process or many, resumable from any saved step."""

import hashlib
import json
from collections.abc import Generator, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.checkpoints import checkpoint
from lstr.checkpoints.loaded import Checkpoint
from lstr.config import WindowConfig
from lstr.errors import CheckpointError
from lstr.extractors.streams import streams_of_model
from lstr.files.atomic import check_kept, replacing, sweep, write_tensors
from lstr.files.content import write_json
from lstr.kinds import configure
from lstr.models.kind import Model
from lstr.pipelines.evaluation.scoring import Scoring, score_split
from lstr.pipelines.features.dataset import Split
from lstr.pipelines.features.seen_videos import seen_in, streams_of
from lstr.pipelines.networks.checkpoint_recipe import ARRAYS
from lstr.pipelines.progress import result_of
from lstr.pipelines.provenance import make_reproducible, provenance
from lstr.pipelines.training.batches import Batch, KeptFeatures, PieceMaker, default_readers, fit_on, read_ahead
from lstr.pipelines.training.config import TrainConfig, changes_from, without_removed
from lstr.pipelines.training.log import Step, TrainLog, summary_of
from lstr.pipelines.training.loop import Position, Saves, StepPlan, train_steps
from lstr.pipelines.training.ranks import ALONE, Ranks
from lstr.pipelines.training.sampling import count_steps, draw_windows, epoch_steps, feature_statistics
from lstr.pipelines.training.schedule import rates
from lstr.pipelines.training.step import Learner, deterministic
from lstr.pipelines.training.teacher import Teacher, check_teacher, teacher_of
from lstr.pipelines.weights.known import run_record

FREE = ("save_seconds",)  # settings that may differ when a run goes on


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
    teacher: Teacher | None = None
    """Which teacher this is, where it is one."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a teacher that the model cannot have."""
        check_teacher(self.model, self.config, max((len(video.features) for video in self.split.videos), default=0))

    def settings(self, device: str, ranks: Ranks) -> dict:
        """Everything that makes the run what it is, as config.json and the checkpoint carry it."""
        split, preset = self.split, self.preset
        videos = [(video.id, len(video.features)) for video in split.videos]
        data: dict[str, Any] = {
            "features": str(split.folder.path),
            ARRAYS: list(split.folder.only(streams_of_model(self.model.streams)).names),
            "recipe": split.folder.recipe.id if split.folder.recipe else None,
            "classes": list(split.labels.classes),
            "videos": len(videos),
            "chunks": split.n_chunks,
            "videos_sha256": hashlib.sha256(json.dumps(videos).encode()).hexdigest(),
            "labels_sha256": _sha256(video.targets for video in split.videos),
        }
        if store := split.folder.only(streams_of_model(self.model.streams)).describe():
            data["store"] = store
        if seen := seen_in(split, self.model):
            data["seen"] = {"videos": len(seen), "streams": streams_of(seen)}
        if self.teacher:
            data["delay"] = self.teacher.delay
        named = {"preset": preset, "changed": changes_from(preset, self.model, self.config)} if preset else {}
        made = {"model": self.model.to_dict(), "train": self.config.to_dict(), "data": data}
        return {**named, **made, "made_by": provenance(device, ranks.size)}


def _sha256(arrays: Iterable[NDArray[Any]]) -> str:
    """The hash of all values, without where an array ends."""
    found = hashlib.sha256()
    for array in arrays:
        found.update(np.ascontiguousarray(array).data)
    return found.hexdigest()


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
    validation videos. A stopped run goes on with `resume` from its last save, to the bit on a CPU.
    Its teacher, where it has one, is trained first, in a folder of its own, and goes on by itself.
    readers: threads that read features ahead. Raises CheckpointError when a run is in the way or had other settings,
    LstrError when loss or gradient is not finite or memory runs out.
    """
    config, split = task.config, task.split.narrowed(task.model)
    if config.deterministic:
        make_reproducible()
    settings = task.settings(device, ranks)
    state = begin_run(folder, settings, resume, write=ranks.first)
    ranks.wait()  # or one might take what the first has begun for a run in the way
    soft = yield from _teach(task, folder, device, readers, ranks)
    if state:
        statistics = state["mean"], state["std"]
    else:
        statistics = feature_statistics(split.videos) if config.standardise else (torch.zeros(1), torch.ones(1))
    steps = count_steps(split.videos, task.model, config)
    plan = StepPlan(
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
        with closing(TrainLog(folder, position.step)) if ranks.first else nullcontext() as log:
            run = ModelRun(learner, task, folder, settings, log, readers or default_readers(), soft)
            for event in train_steps(run, plan, position):
                if isinstance(event, Step):
                    yield event
    if ranks.first:
        check_kept(folder / "resume.pt")  # a teacher that is done has no checkpoint any more


def _teach(
    task: Task, folder: Path, device: str, readers: int | None, ranks: Ranks
) -> Generator[Step, None, list[Tensor] | None]:
    """Train the teacher of a task, if it has one, or go on with it: its scores of each training video."""
    teacher = teacher_of(task.model, task.config, folder)
    if teacher is None:
        return None
    of_teacher = Task(task.split, teacher.model, teacher.config, teacher=teacher)
    resume = (teacher.folder / "resume.pt").exists()
    for step in train_model(of_teacher, teacher.folder, device, resume, readers, ranks):
        yield replace(step, stage=f"teacher, {teacher.delay} chunks late")
    return teacher.scores(task.split.narrowed(task.model).videos, device, ranks)


def begin_run(run: Path, settings: dict, resume: bool, write: bool) -> dict | None:
    """The state to resume from, or None for a new run in a fresh folder, which only the process that writes begins.

    A run that was stopped before its first state was saved begins anew. Raises CheckpointError when a run is in the
    way, or had other settings.
    """
    path = run / "resume.pt"
    if write:
        sweep(run)
    if not path.exists():
        if write:
            write_json(run / "config.json", settings)
        return None
    if not resume:
        raise CheckpointError(f"{run} already holds a run.", "go on with --resume, or choose another folder with -o.")
    state = checkpoint.read(path)
    changed = changes_between(json.loads(state["settings"]), settings)
    if changed and "delay" in settings["data"]:
        raise CheckpointError(
            f"The teacher in {run} was begun with other settings than these ({'; '.join(changed)}).",
            f"give the settings that {run.parent} was begun with, or choose another folder with -o.",
        )
    if changed:
        raise CheckpointError(
            f"{run} was begun with other settings than these ({'; '.join(changed)}).",
            f"give --config {run / 'config.json'} and the same videos, or begin a new run.",
        )
    return state


def changes_between(before: dict, now: dict) -> list[str]:
    """What differs between two settings, where it has a part in the result.

    A setting that there was not before has its default; a run of before does not state its labels and arrays.
    """
    model, train = configure(now["model"]["kind"]).to_dict(), TrainConfig().to_dict()
    plain: dict[str, dict] = {"model": model, "train": train, "data": {}}
    before = {**before, "train": without_removed(before["train"])}
    if store := before["data"].get("store"):  # earlier runs state the order of the axes too
        kept = {name: value for name, value in store.items() if name not in ("layouts", "key")}
        before["data"] = {**before["data"], "store": kept}
    before = {part: {**plain[part], **before[part]} for part in plain}
    names = [(part, name) for part in ("model", "train", "data") for name in {**before[part], **now[part]}]
    unstated = [name for name in ("labels_sha256", ARRAYS) if name not in before["data"]]
    free = (*FREE, "features", *unstated)
    names = [(part, name) for part, name in names if name not in free]
    return [
        f"{part}.{name} was {before[part].get(name)}, is {now[part].get(name)}"
        for part, name in names
        if before[part].get(name) != now[part].get(name)
    ]


class ModelRun:
    """A model on its way, as the loop trains it (`lstr.pipelines.training.loop.Run`), and the files of its folder."""

    name = "train"

    def __init__(
        self,
        learner: Learner,
        task: Task,
        folder: Path,
        settings: dict,
        log: TrainLog | None,
        readers: int,
        soft: Sequence[Tensor] | None,
    ):
        self.learner, self.folder, self.settings, self.log = learner, folder, settings, log
        self.split, self.validation, self.readers = task.split, task.validation, readers
        self.ranks, self.device = learner.ranks, learner.device
        self.videos = task.split.narrowed(task.model).videos
        self._saves = Saves(task.config.save_seconds)
        kept = KeptFeatures(self.videos, self.device) if fit_on(self.videos, self.device) else None
        of_learner = learner.model.config, learner.config, learner.outputs, self.ranks, self.device
        self._make = PieceMaker(self.videos, *of_learner, kept, task.teacher.delay if task.teacher else 0, soft)

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
        if position.judge(result[self.learner.config.metric]):
            metrics = {"epoch": epoch, **values, "step": position.step, "validation": result}
            self._save("best.pt", exported.cpu(), metrics)
        return result

    def keep(self, step: Step, position: Position, last: bool) -> None:
        """Log an interval, then save the state where that is due.

        Checkpoint first, state last: a run resumed from the older state only repeats what lies between.
        """
        assert self.log is not None, "rank 0 has the log"
        check_kept(self.folder / "config.json")
        self.log.write(step)
        if not last and not self._saves.are_due():
            return
        metrics = {"epoch": step.epoch, "step": step.step, "loss": step.loss, "validation": step.evaluation}
        with self._saves.timed():
            self._save("checkpoint.pt", self.learner.export(), metrics)
            with replacing(self.folder / "resume.pt") as temporary:
                kept = {"settings": json.dumps(self.settings), "position": json.dumps(asdict(position))}
                write_tensors(temporary, {**kept, **self.learner.state()})

    def _save(self, name: str, model: Model, metrics: dict) -> None:
        """A self-describing checkpoint of an exported model."""
        folder = self.split.folder
        checkpoint.save(
            self.folder / name,
            model,
            self.split.labels.classes,
            self._recipe(),
            {**metrics, **self._videos()},
            {n: v for n, v in self.settings.items() if n != "model"} | run_record(folder, self.folder),
            folder.calibration(),
        )

    def _videos(self) -> dict[str, list[str]]:
        """The videos by id that it learns from, and those that choose its epoch."""
        chosen = {"validation_videos": [video.id for video in self.validation.videos]} if self.validation else {}
        return {"training_videos": [video.id for video in self.split.videos], **chosen}

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
            path=self.folder / "checkpoint.pt",
            assumed={},
        )

    def _recipe(self) -> dict | None:
        return self.split.folder.recipe.to_dict() if self.split.folder.recipe else None

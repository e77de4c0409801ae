"""A split and two configurations to a checkpoint, by one process or many, resumable from any saved step."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from lstr.checkpoints import checkpoint
from lstr.config import WindowConfig
from lstr.pipelines.datasets.dataset import Split
from lstr.pipelines.evaluation.scoring import Scoring, score_split
from lstr.pipelines.progress import result_of
from lstr.pipelines.provenance import make_reproducible, provenance
from lstr.pipelines.training.batches import Batch, PieceMaker, default_readers, read_ahead
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.curves import draw_curves
from lstr.pipelines.training.examples import features_of_classes
from lstr.pipelines.training.kept_features import KeptFeatures, fit_on
from lstr.pipelines.training.log import Step, TrainLog, summary_of
from lstr.pipelines.training.loop import Plan, Position, train_steps
from lstr.pipelines.training.ranks import ALONE, Ranks
from lstr.pipelines.training.run_folder import Saver, begin_run, restore, settings_of
from lstr.pipelines.training.sampling import count_steps, draw_windows, epoch_steps, feature_statistics
from lstr.pipelines.training.schedule import rates
from lstr.pipelines.training.step import Learner, deterministic
from lstr.pipelines.training.teacher import Lesson, begun, check_teacher, lessons


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
    lesson: Lesson | None = None
    """Which teacher this is, where it is one."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a teacher that the model cannot have."""
        check_teacher(self.model, self.config, max((len(video.features) for video in self.split.videos), default=0))

    def taught(self, lesson: Lesson) -> "Task":
        """The task of a teacher of this one."""
        return Task(self.split, lesson.model, lesson.config, lesson=lesson)

    def settings(self, device: str, ranks: Ranks) -> dict:
        """Everything that makes the run what it is, as config.json and the checkpoint carry it."""
        settings = settings_of(self.model, self.config, self.split, provenance(device, ranks.size), self.preset)
        return settings | ({"data": {**settings["data"], "delay": self.lesson.delay}} if self.lesson else {})


def train_model(
    task: Task,
    folder: Path,
    device: str = "cpu",
    resume: bool = False,
    readers: int | None = None,
    ranks: Ranks = ALONE,
) -> Iterator[Step]:
    """Train the model of a task, yielding a Step after each logged interval.

    `folder` gets checkpoint.pt, resume.pt, config.json, metrics.jsonl, tensorboard/, curves.png at the end, and best.pt
    where there are validation videos. A stopped run goes on with `resume` from its last save, to the bit on a CPU.
    Its teachers, where it has some, are trained first, each in a folder of its own, and go on by themselves.
    readers: threads that read features ahead. Raises CheckpointError when there is nothing to resume or a run is in the
    way, LstrError when loss or gradient is not finite or memory runs out.
    """
    config, split = task.config, task.split.narrowed(task.model)
    if config.deterministic:
        make_reproducible()
    settings = task.settings(device, ranks)
    state = begin_run(folder, settings, resume and not begun(folder), write=ranks.first)
    ranks.wait()  # or one might take what the first has begun for a run in the way
    soft = yield from _teachers(task, folder, device, readers, ranks)
    if state:
        statistics = state["mean"], state["std"]
    else:
        statistics = feature_statistics(split.videos) if config.standardise else (torch.zeros(1), torch.ones(1))
    steps = count_steps(split.videos, task.model, config)
    plan = Plan(
        steps,
        rates(config, steps, epoch_steps(split.videos, task.model, config)),
        config.log_every,
        config.eval_every if task.validation else 0,
        config.patience,
    )
    with deterministic(config.deterministic):
        learner = Learner(task.model, config, split.labels.classes, statistics, device, ranks)
        if not state:
            learner.model.prepare(features_of_classes(learner, split.videos), config.seed)
            if task.lesson and task.lesson.before:
                learner.begin_with(checkpoint.read(task.lesson.before / "resume.pt")["model"])
        position = restore(state, learner) if state else Position()
        with TrainLog(folder, position.step) if ranks.first else nullcontext() as log:
            saver = Saver(folder, task.split, settings)
            run = ModelRun(learner, task, saver, log, readers or default_readers(), soft)
            for event in train_steps(run, plan, position):
                if isinstance(event, Step):
                    yield event
    if ranks.first:
        draw_curves(folder)


def _teachers(
    task: Task, folder: Path, device: str, readers: int | None, ranks: Ranks
) -> Generator[Step, None, list[list[Tensor]]]:
    """Train the teachers of a task, or go on with them: the scores of each training video by each of them."""
    soft = []
    for lesson in lessons(task.model, task.config, folder):
        resume = (lesson.folder / "resume.pt").exists()
        for step in train_model(task.taught(lesson), lesson.folder, device, resume, readers, ranks):
            yield replace(step, stage=lesson.stage)
        soft.append(lesson.scores(task.split.narrowed(task.model).videos, device, ranks))
    return soft


class ModelRun:
    """A model on its way, as the loop trains it (`lstr.pipelines.training.loop.Run`)."""

    name = "train"

    def __init__(
        self,
        learner: Learner,
        task: Task,
        saver: Saver,
        log: TrainLog | None,
        readers: int,
        soft: Sequence[Sequence[Tensor]],
    ):
        self.learner, self.saver, self.log = learner, saver, log
        self.validation, self.readers = task.validation, readers
        self.ranks, self.device = learner.ranks, learner.device
        self.videos = task.split.narrowed(task.model).videos
        self.soft = soft
        kept = KeptFeatures(self.videos, self.device) if fit_on(self.videos, self.device) else None
        of_learner = learner.model.config, learner.config, learner.outputs, self.ranks, self.device
        self._make = PieceMaker(self.videos, *of_learner, kept, task.lesson.delay if task.lesson else 0)

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
        make = self._make
        if self.soft:
            make = replace(make, soft=self.soft[epoch * len(self.soft) // self.learner.config.epochs])
        return read_ahead(self._jobs(epoch)[first:][:most], make, self.readers)

    def step(self, batch: Batch, number: int, lr: float) -> tuple[float, float, int]:
        """Take a step: this process's part of the loss, the norm of the gradient, and the windows of all processes."""
        return *self.learner.step(batch, number, lr), batch.n_windows

    def evaluate(self, position: Position, epoch: int, values: dict) -> dict:
        """The mAP, mcAP and AP per class of the validation videos; best.pt where the metric was never as high."""
        assert self.validation is not None, "the plan of a run without validation videos has no evaluation"
        exported = self.saver.export(self.learner)
        loaded = self.saver.loaded(exported, self.device)
        result = summary_of(result_of(score_split(loaded, self.validation, Scoring(allow_seen=True))).document)
        if position.judge(result[self.learner.config.metric]):
            metrics = {"epoch": epoch, **values, "step": position.step, "validation": result}
            self.saver.save_checkpoint("best.pt", exported.cpu(), metrics)
        return result

    def keep(self, step: Step, position: Position, last: bool) -> None:
        """Log an interval, then save the state where that is due."""
        assert self.log is not None, "rank 0 has the log"
        self.log.write(step)
        if last or self.saver.is_due():
            metrics = {"epoch": step.epoch, "step": step.step, "loss": step.loss, "validation": step.evaluation}
            self.saver.save(self.learner, position, metrics)

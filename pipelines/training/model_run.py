"""The training of one model: videos and two configurations to a checkpoint, resumable from any saved step.

A model may have a teacher: a model of the same kind that sees some of the future, and from whose scores it learns.
After Zhao et al., Privileged Knowledge Distillation for Online Action Detection (arXiv 2011.09158), of which no code
was found: the details are ours. A teacher is the same network, read late: its window is some chunks longer, and its
output at the latest chunk is about a chunk before, with what came after in view. Trained first, it scores the training
videos once; the model then learns from these scores in addition to the labels. The checkpoint has nothing of it.
"""

import hashlib
import json
import math
import os
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
from lstr.extractors.streams import streams_of_model
from lstr.files.atomic import check_kept
from lstr.kinds import configure
from lstr.loaded_checkpoint import Checkpoint
from lstr.models.kind import Model
from lstr.pipelines.evaluation.scoring import Scoring, score_split
from lstr.pipelines.features.compatibility import seen_in, streams_of
from lstr.pipelines.features.dataset import Split
from lstr.pipelines.model_files.networks import ARRAYS, run_record
from lstr.pipelines.progress import result_of
from lstr.pipelines.provenance import make_reproducible, provenance
from lstr.pipelines.training.config import TrainConfig, changes_from, check_teacher, without_removed
from lstr.pipelines.training.learner import Learner, deterministic
from lstr.pipelines.training.loop import StepPlan, rates, train_steps
from lstr.pipelines.training.ranks import ALONE, Ranks
from lstr.pipelines.training.run_folder import Position, RunFolder, Step, open_log
from lstr.pipelines.training.window_samples import (
    READERS,
    Batch,
    KeptFeatures,
    PieceMaker,
    count_steps,
    draw_windows,
    epoch_steps,
    feature_statistics,
    fit_on,
    read_ahead,
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
        """Return everything that makes the run what it is, as config.json and the checkpoint carry it."""
        split, preset = self.split, self.preset
        videos = [(video.id, len(video.features)) for video in split.videos]
        labels = hashlib.sha256()
        for video in split.videos:
            labels.update(np.ascontiguousarray(video.targets).data)
        narrowed = split.folder.only(streams_of_model(self.model.streams))
        data: dict[str, Any] = {
            "features": str(split.folder.path),
            ARRAYS: list(narrowed.names),
            "recipe": split.folder.recipe.id if split.folder.recipe else None,
            "classes": list(split.labels.classes),
            "videos": len(videos),
            "chunks": split.n_chunks,
            "videos_sha256": hashlib.sha256(json.dumps(videos).encode()).hexdigest(),
            "labels_sha256": labels.hexdigest(),
        }
        if store := narrowed.describe():
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
    """Train the model of a task, yielding a Step after each log line.

    `folder` gets checkpoint.pt, resume.pt, config.json, metrics.jsonl, tensorboard/, and best.pt if there are
    validation videos. A stopped run resumes with `resume` from its last save, to the bit on a CPU. A teacher is trained
    first, in a folder of its own, and resumes by itself.

    Args:
        readers: threads that read features ahead; None for as many as the machine has cores, up to READERS.

    Raises:
        CheckpointError: a run is in the way, or had other settings.
        LstrError: loss or gradient is not finite, or memory runs out.
    """
    config, videos = task.config, task.split.narrowed(task.model).videos
    if config.deterministic:
        make_reproducible()
    settings, kept = task.settings(device, ranks), RunFolder(folder)
    if ranks.first:
        kept.begin(settings, resume, lambda before: upgrade(before, settings))
    ranks.wait()
    state = kept.read_state()
    soft = (yield from _train_teacher(task, folder, device, readers, ranks)) if config.teacher else None
    if state:
        statistics = state["mean"], state["std"]
    else:
        statistics = feature_statistics(videos) if config.standardise else (torch.zeros(1), torch.ones(1))
    steps = count_steps(videos, task.model, config)
    plan = StepPlan(
        config.epochs,
        steps,
        rates(config, steps, epoch_steps(videos, task.model, config)),
        config.log_every,
        config.eval_every if task.validation else 0,
        config.patience,
    )
    with deterministic(config.deterministic):
        run = ModelRun(task, kept, settings, readers, soft, statistics, device, ranks)
        if not state:
            run.prepare(videos)
        position = run.restore(state) if state else Position()
        with open_log(kept, position.step) if ranks.first else nullcontext() as log:
            for event in train_steps(run, plan, position, log):
                if isinstance(event, Step):
                    yield event
    if ranks.first:
        check_kept(folder / kept.state)  # a finished teacher has no checkpoint any more


def _train_teacher(
    task: Task, folder: Path, device: str, readers: int | None, ranks: Ranks
) -> Generator[Step, None, list[Tensor]]:
    """Train the teacher of a task, or resume it; return its scores (L, C) of each training video.

    They are probabilities, and zeros where the video ends too soon for the teacher. The first process computes them
    once the teacher is trained, and keeps them in its folder.
    """
    config, plain, delay = task.config, TrainConfig(), task.config.teacher
    later = task.model.replace(work_length=task.model.work_length + delay, anticipation=0)
    own = {name: getattr(plain, name) for name in ("teacher", "teacher_weight", "temperature")}
    of_teacher = Task(task.split, later, config.replace(**own, eval_every=0, patience=0), delay=delay)
    run = RunFolder(folder / f"teacher-{delay}")
    for step in train_model(of_teacher, run.path, device, run.is_begun(), readers, ranks):
        yield replace(step, stage=f"teacher, {delay} chunks late")
    path, trained = run.path / "scores.pt", run.path / "checkpoint.pt"
    if ranks.first and not path.exists():
        model = checkpoint.load(trained).model.to(device)
        constants, scores = shared_constants(model), []
        for video in task.split.narrowed(task.model).videos:
            late = predict_ahead(model, video.features[:], constants=constants)[:, 0]  # (L, C), `delay` chunks late
            known = late[min(delay, len(late)) :]
            scores.append(torch.cat([known, late.new_zeros(len(late) - len(known), late.shape[1])]))
        checkpoint.write_atomically(path, {"scores": scores})
    if ranks.first:
        trained.unlink(missing_ok=True)  # taken for a model of its kind, it would be late
    ranks.wait()
    return checkpoint.read(path)["scores"]


def upgrade(before: dict, now: dict) -> dict:
    """Return the settings of a run of an earlier version as this version would have written them.

    A setting that did not exist has its default. What has no part in the result is taken from `now`, and what an
    earlier version did not state.
    """
    unstated = {name: now["data"].get(name) for name in ("labels_sha256", ARRAYS)}
    data = {**unstated, **before["data"], "features": now["data"]["features"]}
    if store := data.get("store"):  # earlier runs state the order of the axes too
        data["store"] = {name: value for name, value in store.items() if name not in ("layouts", "key")}
    train = TrainConfig().to_dict() | without_removed(before["train"]) | {"save_seconds": now["train"]["save_seconds"]}
    model = configure(now["model"]["kind"]).to_dict() | before["model"]
    return {**now, "model": model, "train": train, "data": data}


class ModelRun(Learner):
    """A model in training with its videos, and its checkpoints."""

    def __init__(
        self,
        task: Task,
        folder: RunFolder,
        settings: dict,
        readers: int | None,
        soft: Sequence[Tensor] | None,
        statistics: tuple[Tensor, Tensor],
        device: str,
        ranks: Ranks,
    ):
        super().__init__(task.model, task.config, task.split.labels.classes, statistics, device, ranks)
        self.folder, self.settings, self.save_seconds = folder, settings, task.config.save_seconds
        self.readers = readers or max(1, min(READERS, os.cpu_count() or 1))
        self.split, self.validation = task.split, task.validation
        self.recipe = self.split.folder.recipe.to_dict() if self.split.folder.recipe else None
        self.videos = task.split.narrowed(task.model).videos
        kept = KeptFeatures(self.videos, self.device) if fit_on(self.videos, self.device) else None
        self.make = PieceMaker(
            self.videos, task.model, task.config, self.outputs, ranks, self.device, kept, task.delay, soft
        )

    def batches(self, position: Position, most: int) -> tuple[int, Iterator[Batch]]:
        """Return the number of batches of an epoch, and the next ones, `most` at most, read ahead by threads."""
        drawn, size = draw_windows(self.videos, self.model.config, self.config, position.epoch), self.config.batch_size
        jobs = [drawn[at : at + size] for at in range(0, len(drawn), size)]
        return len(jobs), read_ahead(jobs[position.batch :][:most], self.make, self.readers)

    def evaluate(self, position: Position, epoch: int, values: dict) -> dict:
        """Return mAP, mcAP and AP per class of the validation videos; write best.pt if the metric was never as high.

        A mean is None if no chunk could be scored.
        """
        assert self.validation is not None, "the plan of a run without validation videos has no evaluation"
        exported = self.export()
        loaded = Checkpoint(
            model=exported.to(self.device),
            config=exported.config,
            classes=tuple(self.split.labels.classes),
            recipe=self.recipe,
            metrics={},
            extra={},
            calibration={},
            versions={},
            format=checkpoint.FORMAT,
            path=self.folder.path / "checkpoint.pt",
            assumed={},
        )
        document = result_of(score_split(loaded, self.validation, Scoring(allow_seen=True))).document
        scored = document["lstr"]
        result = {name: None if math.isnan(scored[name]) else scored[name] for name in ("mAP", "mcAP")}
        result["per_class"] = {label: entry["AP"] for label, entry in scored["per_class"].items()}
        if "seen" in document:
            result["seen"] = len(document["seen"])
        if position.judge(result[self.config.metric], epoch):
            self._write("best.pt", exported.cpu(), {"epoch": epoch, **values, "step": position.step}, result)
        return result

    def save(self, step: Step, position: Position) -> None:
        """Save checkpoint and state.

        Checkpoint first, state last: a run resumed from the older state only repeats what lies between.
        """
        metrics = {"epoch": step.epoch, "step": step.step, "loss": step.loss}
        self._write("checkpoint.pt", self.export(), metrics, step.evaluation)
        self.folder.save_state(position, self.state())

    def _write(self, name: str, model: Model, metrics: dict, validation: dict | None) -> None:
        """Write a self-describing checkpoint of an exported model."""
        folder = self.split.folder
        metrics |= {"validation": validation, "training_videos": [video.id for video in self.split.videos]}
        if self.validation:  # they choose its epoch
            metrics["validation_videos"] = [video.id for video in self.validation.videos]
        settings = {name: value for name, value in self.settings.items() if name != "model"}
        extra = settings | run_record(folder.paths[0], self.folder.path)
        path, classes = self.folder.path / name, self.split.labels.classes
        checkpoint.save(path, model, classes, self.recipe, metrics, extra, folder.calibration())

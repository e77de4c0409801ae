"""A model in training: windows to batches, a batch to a loss and new weights, evaluation, and its checkpoints."""

import copy
import hashlib
import json
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lstr import checkpoint
from lstr.config import WindowConfig
from lstr.errors import LstrError
from lstr.extractors.networks.movenet import mirrored
from lstr.extractors.streams import streams_of_model
from lstr.kinds import make_model
from lstr.labels.label_set import AMBIGUOUS, without_ambiguous
from lstr.loaded_checkpoint import Checkpoint
from lstr.models.kind import Model
from lstr.pipelines.evaluation.scoring import Scoring, score_split
from lstr.pipelines.failures import NO_MEMORY
from lstr.pipelines.features.dataset import LabelledVideo, Split, TwoStreamArray, network_overlap, streams_of
from lstr.pipelines.features.output_folder import read_calibration
from lstr.pipelines.model_files.networks import ARRAYS, recorded_weights
from lstr.pipelines.progress import result_of
from lstr.pipelines.provenance import provenance
from lstr.pipelines.training import ranks
from lstr.pipelines.training import window_samples as samples
from lstr.pipelines.training.config import TrainConfig, changes_from, rates
from lstr.pipelines.training.run import Run, RunFolder, Step
from lstr.pipelines.training.window_samples import Batch, InMemoryFeatures, Piece
from lstr.windows.windows import Supervision, WindowIndices, Windows, totals_of

MAX_CLASS_ROWS = 1000  # chunks of a class that a kind gets before its first step


class Learner(Run):
    """A model with its optimiser, its training videos, and all that a step of training needs.

    Args:
        statistics: mean and standard deviation (D,) of the features, if training standardises them.
    """

    name = "train"
    model: Model

    def __init__(
        self,
        videos: list[LabelledVideo],
        classes: Sequence[str],
        model_config: WindowConfig,
        config: TrainConfig,
        statistics: tuple[Tensor, Tensor] = (torch.zeros(1), torch.ones(1)),
        device: str = "cpu",
    ):
        torch.manual_seed(config.seed)
        self.classes = without_ambiguous(classes)
        self.has_unknown = len(self.classes) < len(classes)
        if self.has_unknown:  # ambiguous chunks do not count, and get targets of zeros
            column, classes = classes.index(AMBIGUOUS), self.classes
            tables = [np.where(v.targets[:, [column]] > 0, 0, v.targets) for v in videos]
            videos = [replace(v, targets=np.delete(t, column, 1)) for v, t in zip(videos, tables, strict=True)]
        if config.targets == "soft":
            videos = [replace(v, targets=samples.with_soft_starts(v.targets)) for v in videos]
        self.videos, self.config = videos, config
        # the column of the ambiguous class if its chunks have no part in training
        is_ignored = config.ambiguous == "ignored" and AMBIGUOUS in classes
        self.ignore = classes.index(AMBIGUOUS) if is_ignored else None
        model = make_model(model_config, len(classes)).to(device).train()
        super().__init__(model, make_adam(model, config), config.clip, unused=True)
        self.outputs = model.outputs()
        self.mean, self.std = (tensor.to(self.device) for tensor in statistics)
        self.kept: InMemoryFeatures | None = None
        if self.device.type == "cuda":  # a processor reads features from their files as well
            n_values = sum(len(video.features) for video in videos) * videos[0].features[:0].shape[1]
            free = torch.cuda.mem_get_info(self.device)[0]
            if n_values * samples.stored_dtype(videos).itemsize <= samples.MAX_MEMORY_SHARE * free:
                self.kept = InMemoryFeatures(videos, self.device)
        # Exponential moving average of the weights over steps (published code of MAT and CMeRT)
        named = model.named_parameters() if config.average else ()
        self.average = {name: tensor.detach().clone() for name, tensor in named}

    def prepare(self) -> None:
        """Let a kind that needs some chunks of each class take them, on the scale of training.

        They follow from the videos and the seed, so that every process of a run has the same.
        """
        random, ignore = np.random.default_rng(self.config.seed), self.ignore
        mean, std = self.mean.cpu(), self.std.cpu()

        def read_class(label: int) -> Tensor:
            """Return features (N, D) of chunks of a class that are not ambiguous, drawn if there are many."""
            places = []
            for v, video in enumerate(self.videos):
                truth = np.asarray(video.targets)
                has = (truth[:, label] > 0) & (True if ignore is None else truth[:, ignore] == 0)
                places += [(v, int(chunk)) for chunk in np.flatnonzero(has)]
            if len(places) > MAX_CLASS_ROWS:
                places = [places[i] for i in sorted(random.choice(len(places), MAX_CLASS_ROWS, replace=False))]
            which, chunks = np.array(places, np.int64).reshape(-1, 2).T
            rows = [np.asarray(video.features[chunks[which == v]], np.float32) for v, video in enumerate(self.videos)]
            return torch.from_numpy(np.concatenate(rows)).sub(mean).div(std)

        self.model.prepare(read_class, self.config.seed)

    def make_batch(self, drawn: list[tuple[int, int]]) -> Batch:
        """Return this process's share of the windows (video, end chunk) of a step; threads may call it.

        A process without any takes the first and counts none of it: all must go through the model together.
        """
        n_processes = ranks.world_size()
        share = drawn[ranks.rank() :: n_processes]
        windows = share or drawn[:1]
        size = math.ceil(math.ceil(self.config.batch_size / n_processes) / self.config.accumulate)
        config, is_stretched, pieces = self.model.config, self.config.long_sampling == "stretched", []
        for piece in (windows[at : at + size] for at in range(0, len(windows), size)):
            read: Windows | WindowIndices
            if self.kept:
                read = self.kept.indices(piece, config, is_stretched)
            else:
                read = samples.read_windows(self.videos, piece, config, is_stretched)
            targets, counts = samples.make_targets(self.videos, piece, config, self.outputs)
            if self.has_unknown:
                counts = counts & targets.any(-1)
            made = read, Supervision(targets, counts if share else torch.zeros_like(counts))
            pieces.append(samples.map_piece(made, Tensor.pin_memory) if self.device.type == "cuda" else made)
        return Batch(pieces, len(drawn), sorted({self.videos[v].id for v, _ in share}))

    def move(self, piece: Piece) -> tuple[Windows, Supervision]:
        """Return windows and supervision on the device; nothing waits for it if the piece is pinned."""
        windows, known = samples.map_piece(piece, lambda tensor: tensor.to(self.device, non_blocking=True))
        if isinstance(windows, WindowIndices):
            assert self.kept, "indices are of kept features"
            windows = windows.gather(self.kept.rows)
        return windows, known

    def step(self, batch: Batch, number: int, lr: float) -> tuple[float, float, int]:
        """Take one step; return this process's part of the loss, the gradient's norm, and the windows of all.

        The loss is a mean over what counts in the batches of all processes. A batch in which nothing counts changes
        nothing. Raises LstrError if loss or gradient is not finite, or memory runs out.
        """
        counted = (totals_of(known.targets, known.counts, self.outputs, self.ignore) for _, known in batch.pieces)
        totals = ranks.sum_all([sum(part) for part in zip(*counted, strict=True)])
        if not any(totals):
            return 0.0, 0.0, batch.n_windows
        losses = [lambda piece=piece: self.loss(piece, totals, batch.n_windows) for piece in batch.pieces]
        hint = (
            "check these features with `lstr info FEATURES`, lower train.lr, or set train.clip=1; saved checkpoints "
            "are kept."
        )
        divergence = f", on windows of {', '.join(batch.videos)}", hint
        config = self.config
        try:
            loss, norm = self.optimise(losses, number, lr, ranks.step_seed(config.seed, number), divergence)
            if self.average:
                with torch.no_grad():
                    torch._foreach_lerp_([*self.average.values()], [*self.model.parameters()], 1 - config.average)
        except (MemoryError, RuntimeError) as error:
            if isinstance(error, RuntimeError) and not any(words in str(error) for words in NO_MEMORY):
                raise
            raise LstrError(
                f"Out of memory on {self.device.type}, with batches of {config.batch_size} windows in "
                f"{config.accumulate} {'piece' if config.accumulate == 1 else 'pieces'}.",
                f"--set train.accumulate={min(config.batch_size, 2 * config.accumulate)} takes the same steps with "
                "less memory; so do train.precision=bf16, a shorter model.long_length or a smaller train.batch_size.",
            ) from error
        return loss, norm, batch.n_windows

    def loss(self, piece: Piece, totals: list[float], n_windows: int) -> Tensor:
        """Return a piece's part of a batch's loss, for `n_windows` and `totals`, the numbers of outputs that count."""
        windows, supervision = self.move(piece)
        if self.config.standardise:
            windows = samples.standardise(windows, self.mean, self.std)
        windows = samples.hide_slots(windows, self.config.hide_long)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            forwarded = self.joined(windows)
        supervision = replace(supervision, ignore=self.ignore, totals=totals, n_windows=n_windows)
        if self.config.targets == "unit":
            supervision = replace(supervision, targets=torch.nn.functional.normalize(supervision.targets, dim=-1))
        whole = tuple(map(Tensor.float, forwarded)) if isinstance(forwarded, tuple) else forwarded.float()
        return self.model.loss(whole, windows, supervision)

    def export(self) -> Model:
        """Return the model as others use it: on the CPU, for raw features, with averaged weights if any."""
        exported = copy.deepcopy(self.model).cpu().eval()
        state = self.model.state_dict()
        exported.load_state_dict({n: self.average.get(n, tensor).detach().cpu() for n, tensor in state.items()})
        exported.absorb(self.mean.cpu(), self.std.cpu())
        return exported


@dataclass(frozen=True)
class Task:
    """Which model learns from which videos, and how."""

    split: Split
    model: WindowConfig
    config: TrainConfig
    validation: Split | None = None  # videos that choose best.pt, and end the run early by `config.patience`
    preset: str | None = None  # the name that the checkpoint states as the origin of both configurations

    def settings(self, device: str) -> dict:
        """Return all settings that define the run, as in config.json and the checkpoint."""
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
        if seen := network_overlap(split, self.model):
            data["seen"] = {"videos": len(seen), "streams": streams_of(seen)}
        named = {"preset": preset, "changed": changes_from(preset, self.model, self.config)} if preset else {}
        made = {"model": self.model.to_dict(), "train": self.config.to_dict(), "data": data}
        return {**named, **made, "made_by": provenance(device, ranks.world_size())}


class ModelRun(Learner):
    """A model in training in a run folder, with optional videos for choosing its best checkpoint.

    Args:
        settings: All settings that define the run, for the checkpoints.
    """

    def __init__(self, task: Task, folder: RunFolder, settings: dict, device: str):
        split, self.split, self.validation = task.split, task.split, task.validation
        videos, state = split.narrowed(task.model).videos, folder.read_state()
        statistics = torch.zeros(1), torch.ones(1)
        if state:
            statistics = state["mean"], state["std"]
        elif task.config.standardise:
            statistics = samples.feature_statistics(videos)
        if split.folder.recipe and split.folder.recipe.streams == ("pose",):
            # the mirror image of each video, too: trained on one recording of UR Fall, mAP was .78 instead of .71
            arrays = [TwoStreamArray(mirrored(v.features.rgb[:]), v.features.flow) for v in videos]
            videos = [*videos, *(replace(v, features=array) for v, array in zip(videos, arrays, strict=True))]
        super().__init__(videos, split.labels.classes, task.model, task.config, statistics, device)
        self.folder, self.settings = folder, settings
        self.save_seconds = self.config.save_seconds
        self.recipe = split.folder.recipe.to_dict() if split.folder.recipe else None
        steps, of_epoch = samples.count_steps(self.videos, self.model.config, self.config)
        self.epochs, self.steps, self.rate = self.config.epochs, steps, rates(self.config, steps, of_epoch)
        self.log_every, self.patience = self.config.log_every, self.config.patience
        self.eval_every = self.config.eval_every if self.validation else 0
        if state is None:
            self.prepare()
            return
        self.position = state["position"]
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        for name, tensor in self.average.items():
            tensor.copy_(state["average"][name])

    def batches(self) -> tuple[int, Iterator[Batch]]:
        """Return the number of batches of an epoch, and the next ones of the run, read ahead by threads."""
        at, size = self.position, self.config.batch_size
        drawn = samples.draw_windows(self.videos, self.model.config, self.config, at.epoch)
        jobs = [drawn[first : first + size] for first in range(0, len(drawn), size)]
        readers = max(1, min(samples.MAX_READERS, os.cpu_count() or 1))
        return len(jobs), samples.read_ahead(jobs[at.batch :][: self.steps - at.step], self.make_batch, readers)

    def evaluate(self, epoch: int, values: dict) -> dict:
        """Return mAP, mcAP and AP per class of the validation videos; write best.pt if the metric has improved.

        Means are None without a scored chunk.
        """
        assert self.validation is not None, "the plan of a run without validation videos has no evaluation"
        exported = self.export()
        file = self.folder.path / "checkpoint.pt"
        loaded = Checkpoint(exported.to(self.device), exported.config, self.classes, self.recipe, file)
        # networks of the features that have seen these videos are a warning of the job, before the first step
        document = result_of(score_split(loaded, self.validation, Scoring(allow_seen=True))).document
        scored = document["lstr"]
        result = {name: None if math.isnan(scored[name]) else scored[name] for name in ("mAP", "mcAP")}
        result["per_class"] = {label: entry["AP"] for label, entry in scored["per_class"].items()}
        if "seen" in document:
            result["seen"] = len(document["seen"])
        if self.position.judge(result[self.config.metric], epoch):
            self.write("best.pt", exported.cpu(), {"epoch": epoch, **values, "step": self.position.step}, result)
        return result

    def save(self, step: Step) -> None:
        """Save checkpoint and state.

        Checkpoint first, state last: a run resumed from the older state only repeats what lies between.
        """
        metrics = {"epoch": step.epoch, "step": step.step, "loss": step.loss}
        self.write("checkpoint.pt", self.export(), metrics, step.evaluation)
        state = {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict(), "average": self.average}
        self.folder.save_state(self.position, {**state, "mean": self.mean, "std": self.std})

    def write(self, name: str, model: Model, metrics: dict, validation: dict | None) -> None:
        """Write a self-describing checkpoint of an exported model."""
        folder = self.split.folder
        metrics |= {"validation": validation, "training_videos": [video.id for video in self.split.videos]}
        if self.validation:  # they choose its epoch
            metrics["validation_videos"] = [video.id for video in self.validation.videos]
        extra = {name: value for name, value in self.settings.items() if name != "model"}
        if places := recorded_weights(folder.paths[0]):
            # absolute, and relative to the run, so that both can be moved together
            run = self.folder.path.absolute()
            extra["networks"] = {s: {"path": at, "relative": os.path.relpath(at, run)} for s, at in places.items()}
        path = self.folder.path / name
        checkpoint.save(path, model, self.classes, self.recipe, metrics, extra, read_calibration(folder.paths[0]))


def make_adam(model: torch.nn.Module, config: TrainConfig) -> torch.optim.Adam:
    """Return Adam, or AdamW with decoupled weight decay (Loshchilov and Hutter 2019)."""
    decay = {"adam": config.weight_decay, "adamw": 0.0}[config.optimiser]
    optimiser = torch.optim.Adam(model.parameters(), lr=config.lr, fused=True, weight_decay=decay)

    @torch.no_grad()
    def shrink(optimiser: torch.optim.Optimizer, *given: Any) -> None:
        for group in optimiser.param_groups:
            torch._foreach_mul_(group["params"], 1 - group["lr"] * config.weight_decay)

    # not torch.optim.AdamW: its kernel rounds differently, so that earlier trainings would not be repeated to the bit
    if config.optimiser == "adamw" and config.weight_decay:
        optimiser.register_step_pre_hook(shrink)
    return optimiser

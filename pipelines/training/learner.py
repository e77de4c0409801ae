"""A model in training: a batch to a loss, a gradient and new weights, on one process or many."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lstr.config import WindowConfig
from lstr.errors import LstrError
from lstr.kinds import make_model
from lstr.models.kind import Model
from lstr.pipelines.features.dataset import LabelledVideo
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.loop import Run
from lstr.pipelines.training.ranks import Ranks, step_seed
from lstr.pipelines.training.run_folder import Position
from lstr.pipelines.training.window_samples import Batch, Piece, hide_slots, ignored_class, rows_of_class, standardise
from lstr.windows.windows import distillation, totals_of

NO_MEMORY = ("can't allocate memory", "not enough memory", "out of memory")  # in a RuntimeError of torch


class Learner(Run):
    """A model with its optimiser, and all that a step of training needs in addition to the batch."""

    name = "train"
    model: Model

    def __init__(
        self,
        model_config: WindowConfig,
        config: TrainConfig,
        classes: Sequence[str],
        statistics: tuple[Tensor, Tensor],
        device: str,
        ranks: Ranks,
    ):
        torch.manual_seed(config.seed)
        self.config, self.ignore = config, ignored_class(classes, config)
        model = make_model(model_config, len(classes)).to(device).train()
        super().__init__(model, make_adam(model, config), config.clip, ranks, unused=True)
        self.outputs = model.outputs()
        self.mean, self.std = (tensor.to(self.device) for tensor in statistics)
        # Exponential moving average of the weights over steps (published code of MAT and CMeRT)
        named = model.named_parameters() if config.average else ()
        self.average = {name: tensor.detach().clone() for name, tensor in named}

    def prepare(self, videos: Sequence[LabelledVideo]) -> None:
        """Let a kind that needs some chunks of each class take them, on the scale of training.

        They follow from the videos and the seed, so that every process of a run has the same.
        """
        random = np.random.default_rng(self.config.seed)
        mean, std = self.mean.cpu(), self.std.cpu()
        self.model.prepare(
            lambda label: rows_of_class(videos, label, self.ignore, random).sub(mean).div(std), self.config.seed
        )

    def state(self) -> dict[str, Any]:
        """Return all that a run needs of it to resume."""
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "mean": self.mean,
            "std": self.std,
            "average": self.average,
        }

    def restore(self, state: Mapping[str, Any]) -> Position:
        """Load weights and optimiser; return the position that they were saved at."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        for name, tensor in self.average.items():
            tensor.copy_(state["average"][name])
        return Position(**json.loads(state["position"]))

    def export(self) -> Model:
        """Return the model as others use it: on the CPU, for raw features, with averaged weights if any."""
        exported = copy.deepcopy(self.model).cpu().eval()
        state = self.model.state_dict()
        exported.load_state_dict({n: self.average.get(n, tensor).detach().cpu() for n, tensor in state.items()})
        exported.absorb(self.mean.cpu(), self.std.cpu())
        return exported

    def step(self, batch: Batch, number: int, lr: float) -> tuple[float, float, int]:
        """Take one step; return this process's part of the loss, the gradient's norm, and the windows of all.

        The loss is a mean over what counts in the batches of all processes. A batch in which nothing counts changes
        nothing. Raises LstrError if loss or gradient is not finite, or memory runs out.
        """
        counted = (totals_of(p.held.targets, p.held.counts, self.outputs, self.ignore) for p in batch.pieces)
        totals = self.ranks.sum([sum(part) for part in zip(*counted, strict=True)])
        if not any(totals):
            return 0.0, 0.0, batch.n_windows
        losses = [lambda piece=piece: self._loss(piece, totals, batch.n_windows) for piece in batch.pieces]
        self._videos = batch.videos
        with out_of_memory(self.config, self.device):
            loss, norm = self.optimise(losses, number, lr, step_seed(self.config.seed, number, self.ranks.rank))
            if self.average:
                share = 1 - self.config.average
                with torch.no_grad():
                    torch._foreach_lerp_([*self.average.values()], [*self.model.parameters()], share)
        return loss, norm, batch.n_windows

    def divergence(self, problem: str) -> LstrError:
        """Return the error for a loss or gradient that is not finite."""
        return LstrError(
            f"{problem}, on windows of {', '.join(self._videos)}.",
            "look at those features with `lstr info FEATURES`, lower train.lr, or set train.clip=1; what was saved "
            "before is kept.",
        )

    def _loss(self, piece: Piece, totals: list[float], n_windows: int) -> Tensor:
        windows, supervision = piece.to(self.device)
        if self.config.standardise:
            windows = standardise(windows, self.mean, self.std)
        windows = hide_slots(windows, self.config.hide_long)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            forwarded = self.joined(windows)
        supervision = replace(supervision, ignore=self.ignore, totals=totals, n_windows=n_windows)
        if self.config.targets == "unit":
            supervision = replace(supervision, targets=torch.nn.functional.normalize(supervision.targets, dim=-1))
        whole = tuple(map(Tensor.float, forwarded)) if isinstance(forwarded, tuple) else forwarded.float()
        loss = self.model.loss(whole, windows, supervision)
        if supervision.soft is None:
            return loss
        logits, config = self.model.logits_of(whole), self.config
        return loss + config.teacher_weight * distillation(logits, self.outputs, supervision, config.temperature)


def make_adam(model: torch.nn.Module, config: TrainConfig) -> torch.optim.Adam:
    """Return Adam, or AdamW, whose decay is not part of the gradient (Loshchilov and Hutter 2019)."""
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


@contextmanager
def out_of_memory(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Raise LstrError with the settings that lower the use of memory when it runs out."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        is_other = isinstance(error, RuntimeError) and not any(words in str(error) for words in NO_MEMORY)
        if is_other:
            raise
        raise LstrError(
            f"Out of memory on {device.type}, with batches of {config.batch_size} windows in {config.accumulate} "
            f"{'piece' if config.accumulate == 1 else 'pieces'}.",
            f"--set train.accumulate={min(config.batch_size, 2 * config.accumulate)} makes the same steps in less "
            "memory; train.precision=bf16, a shorter model.long_length or a smaller train.batch_size need less too.",
        ) from error


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Let PyTorch use deterministic algorithms only."""
    before, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    if wanted:
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        if wanted:
            torch.use_deterministic_algorithms(before)
            torch.backends.cudnn.benchmark = benchmark

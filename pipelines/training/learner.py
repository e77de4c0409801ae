"""One optimiser step: a batch to a loss, a gradient and new weights, on one process or many."""

import copy
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lstr.config import WindowConfig
from lstr.errors import LstrError
from lstr.kinds import make_model
from lstr.models.kind import Model
from lstr.pipelines.features.dataset import LabelledVideo
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.ranks import Ranks, distributed_model, lost_others, step_seed
from lstr.pipelines.training.run_folder import Position
from lstr.pipelines.training.window_samples import Batch, Piece, hide_slots, ignored_class, rows_of_class, standardise
from lstr.windows.windows import distillation, totals_of


class Adam(torch.optim.Adam):
    """torch.optim.Adam; `apart` is the weight decay of AdamW (Loshchilov and Hutter 2019), no part of the gradient."""

    def __init__(self, parameters: Iterable[Tensor], apart: float = 0.0, **settings: Any):
        super().__init__(parameters, **settings)
        self.apart = apart

    @torch.no_grad()
    def step(self, closure=None):
        """Take one step."""
        for group in self.param_groups if self.apart else ():
            torch._foreach_mul_(group["params"], 1 - group["lr"] * self.apart)
        return super().step(closure)


class Average:
    """Exponential moving average of a model's parameters over steps (published code of MAT and CMeRT).

    It begins as the weights before the first step, and a step leaves `share` of what it was.
    """

    def __init__(self, model: torch.nn.Module, share: float):
        self.share = share
        self.tensors = {name: tensor.detach().clone() for name, tensor in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: torch.nn.Module) -> None:
        """Take the weights after a step in."""
        torch._foreach_lerp_(list(self.tensors.values()), list(model.parameters()), 1 - self.share)


class Learner:
    """A model, its optimiser, and all that one step of training needs besides the batch."""

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
        self.config, self.ranks = config, ranks
        self.ignore = ignored_class(classes, config)
        self.device = torch.device(device)
        self.model = make_model(model_config, len(classes)).to(self.device).train()
        self.outputs = self.model.outputs()
        self.mean, self.std = (tensor.to(self.device) for tensor in statistics)
        decay = {"adamw": "apart", "adam": "weight_decay"}[config.optimiser]
        self.optimiser = Adam(self.model.parameters(), lr=config.lr, fused=True, **{decay: config.weight_decay})
        self._joined = distributed_model(self.model, ranks, unused=True)
        self.average = Average(self.model, config.average) if config.average else None

    def prepare(self, videos: Sequence[LabelledVideo]) -> None:
        """Let a kind that is to know some chunks of each class take them, on the scale of training.

        They are the same of the same videos and seed, so that every process of a run has the same.
        """
        random = np.random.default_rng(self.config.seed)
        mean, std = self.mean.cpu(), self.std.cpu()
        self.model.prepare(
            lambda label: rows_of_class(videos, label, self.ignore, random).sub(mean).div(std), self.config.seed
        )

    def state(self) -> dict[str, Any]:
        """All that a run needs of it to go on."""
        return {
            "model": self.model.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "mean": self.mean,
            "std": self.std,
            "average": self.average.tensors if self.average else {},
        }

    def restore(self, state: Mapping[str, Any]) -> Position:
        """Bring weights and optimiser back; returns the position that they were saved at."""
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        if self.average:
            for name, tensor in self.average.tensors.items():
                tensor.copy_(state["average"][name])
        return Position(**json.loads(state["position"]))

    def export(self) -> Model:
        """The model as others use it: on the CPU, for raw features, its weights averaged where the run does that."""
        averaged = self.average.tensors if self.average else {}
        exported = copy.deepcopy(self.model).cpu().eval()
        exported.load_state_dict({n: averaged.get(n, t).detach().cpu() for n, t in self.model.state_dict().items()})
        exported.absorb(self.mean.cpu(), self.std.cpu())
        return exported

    def step(self, batch: Batch, number: int, lr: float) -> tuple[float, float]:
        """Take one step: this process's part of the loss, and the norm of the gradient before clipping.

        The loss is a mean over what counts in the batches of all processes. A batch in which nothing counts changes
        nothing. Raises LstrError when loss or gradient is not finite, or memory runs out.
        """
        counted = (totals_of(p.held.targets, p.held.counts, self.outputs, self.ignore) for p in batch.pieces)
        totals = self.ranks.sum([sum(part) for part in zip(*counted, strict=True)])
        if not any(totals):
            return 0.0, 0.0
        torch.manual_seed(step_seed(self.config.seed, number, self.ranks.rank))
        for group in self.optimiser.param_groups:
            group["lr"] = lr
        self.optimiser.zero_grad()
        losses: list[Tensor] = []
        with out_of_memory(self.config, self.device), lost_others(self.ranks):
            for i, piece in enumerate(batch.pieces):
                joined, last = self._joined, i + 1 == len(batch.pieces)
                with joined.no_sync() if isinstance(joined, DistributedDataParallel) and not last else nullcontext():
                    part = self._loss(piece, totals, batch.n_windows)
                    (part * self.ranks.size).backward()  # gradients are averaged over processes; this is a sum
                losses.append(part.detach())
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip or math.inf)
            *parts, length = torch.stack([*losses, norm]).tolist()  # all that a step waits for
            loss = sum(parts)
            for value, what in ((loss, "loss"), (length, "gradient's norm")):
                if not math.isfinite(value):
                    raise LstrError(
                        f"The {what} is {value} at step {number}, on windows of {', '.join(batch.videos)}.",
                        "look at those features with `lstr info FEATURES`, lower train.lr, or set train.clip=1; "
                        "what was saved before is kept.",
                    )
            self.optimiser.step()
            if self.average:
                self.average.update(self.model)
        return loss, length

    def _loss(self, piece: Piece, totals: list[float], n_windows: int) -> Tensor:
        windows, supervision = piece.to(self.device)
        if self.config.standardise:
            windows = standardise(windows, self.mean, self.std)
        windows = hide_slots(windows, self.config.hide_long)
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.config.precision == "bf16"):
            forwarded = self._joined(windows)
        supervision = replace(supervision, ignore=self.ignore, totals=totals, n_windows=n_windows)
        if self.config.targets == "unit":
            supervision = replace(supervision, targets=torch.nn.functional.normalize(supervision.targets, dim=-1))
        whole = tuple(map(Tensor.float, forwarded)) if isinstance(forwarded, tuple) else forwarded.float()
        loss = self.model.loss(whole, windows, supervision)
        if supervision.soft is None:
            return loss
        logits, config = self.model.logits_of(whole), self.config
        return loss + config.teacher_weight * distillation(logits, self.outputs, supervision, config.temperature)


@contextmanager
def out_of_memory(config: TrainConfig, device: torch.device) -> Iterator[None]:
    """Turn a lack of memory into the settings that lower its use."""
    try:
        yield
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        words = ("can't allocate memory", "not enough memory", "out of memory")
        if isinstance(error, RuntimeError) and not any(word in str(error) for word in words):
            raise
        pieces = min(config.batch_size, 2 * config.accumulate)
        raise LstrError(
            f"Out of memory on {device.type}, with batches of {config.batch_size} windows in {config.accumulate} "
            f"{'piece' if config.accumulate == 1 else 'pieces'}.",
            f"--set train.accumulate={pieces} makes the same steps in less memory; --set train.precision=bf16, a "
            "shorter model.long_length or a smaller train.batch_size need less too.",
        ) from error


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Let PyTorch use deterministic algorithms alone."""
    if not wanted:
        yield
        return
    before, benchmark = torch.are_deterministic_algorithms_enabled(), torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True)
    torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before)
        torch.backends.cudnn.benchmark = benchmark

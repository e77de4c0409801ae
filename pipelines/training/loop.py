"""The training loop of models and feature networks: steps, learning rates, and when to save.

A `Run` makes the batches, computes the losses, evaluates and saves. All randomness follows from a seed and from the
position in the run, so a run resumes to the bit from a Position and its tensors.
"""

import ctypes
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import Any

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from lstr.errors import LstrError
from lstr.pipelines.progress import Progress
from lstr.pipelines.provenance import peak_memory_mb
from lstr.pipelines.training import ranks
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.run_folder import Position, Step

SHARE_OF_SAVING = 0.05  # of the time, at most: at the published size a save of LSTR writes a gigabyte
FACTOR = "factor"  # in an optimiser's groups: what the learning rate of a group is multiplied by
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # names of glibc's settings (malloc.h)
# What glibc itself comes to in a program that has once freed a block of 32 MB.
USUAL = {MMAP_MAX: 65536, MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}
# Variables by which a person chooses how memory is kept.
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES", "LD_PRELOAD")


class Run:
    """A model in training with its optimiser; subclasses add batches, losses, evaluation and saving.

    Attributes:
        epochs, steps: length of the run.
        rate: returns the learning rate of a step.
        log_every: steps between two log lines; an epoch always ends with one.
        eval_every: epochs between two evaluations; 0 is never.
        patience: evaluations without improvement after which the run ends; 0 is never.
        save_seconds: between two saves.
        free_saves: saves that do not wait so long, so that a short run keeps every epoch.
    """

    name: str
    epochs: int
    steps: int
    rate: Callable[[int], float]
    log_every = eval_every = patience = free_saves = 0
    save_seconds = 0.0

    def __init__(self, model: torch.nn.Module, optimiser: torch.optim.Optimizer, clip: float, unused: bool):
        self.model, self.optimiser, self.clip = model, optimiser, clip or math.inf
        self.device, self.position = next(model.parameters()).device, Position()
        self.joined = ranks.distributed_model(model, unused)

    def is_late(self) -> bool:
        """Return whether the time limit is reached, so that the run ends with this step, as at the end of an epoch."""
        return False

    def batches(self) -> tuple[int, Iterable[Any]]:
        """Return the number of batches of an epoch, and its batches from `position` on; get the model ready."""
        raise NotImplementedError

    def step(self, batch: Any, number: int, lr: float) -> tuple[float, float, int]:
        """Take a step; return this process's part of the loss, the gradient's norm, and the samples of all."""
        raise NotImplementedError

    def evaluate(self, epoch: int, values: dict) -> dict | None:
        """Return metrics of the validation videos, and keep the best weights; called on rank 0 only."""
        raise NotImplementedError

    def save(self, step: Step) -> None:
        """Save the state; called on rank 0 only."""
        raise NotImplementedError

    def optimise(
        self, losses: Sequence[Callable[[], Tensor]], number: int, lr: float, seed: int, divergence: tuple[str, str]
    ) -> tuple[float, float]:
        """Take step `number` on the sum of some losses, each computed when its turn comes.

        Args:
            seed: of everything random in this step of this process.
            divergence: the end of the sentence about a loss or gradient that is not finite, and the hint.

        Returns:
            This process's part of the loss, and the gradient's norm before clipping.

        Raises:
            LstrError: loss or gradient is not finite, or another process is gone.
        """
        torch.manual_seed(seed)
        for group in self.optimiser.param_groups:
            group["lr"] = lr * group.get(FACTOR, 1.0)
        self.optimiser.zero_grad()
        parts = []
        with ranks.report_lost_ranks():
            for i, compute in enumerate(losses):
                waits = isinstance(self.joined, DistributedDataParallel) and i + 1 < len(losses)
                with self.joined.no_sync() if waits else nullcontext():  # type: ignore[operator]
                    loss = compute()
                    (loss * ranks.world_size()).backward()  # gradients are averaged over processes; this is a sum
                parts.append(loss.detach())
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            # one copy of all values to the CPU: each copy would wait for the device
            *values, length = torch.stack([*parts, norm]).tolist()
            for value, name in ((sum(values), "loss"), (length, "gradient's norm")):
                if not math.isfinite(value):
                    raise LstrError(f"The {name} is {value} at step {number + 1}{divergence[0]}.", divergence[1])
            self.optimiser.step()
        return sum(values), length

    def train_steps(self, log: Callable[[Step], None] | None) -> Iterator[Progress | Step]:
        """Train from `position` to the end; yield Progress after each step, and a Step after each log line.

        All processes of a run take the same steps; only rank 0 has a `log`. It is called before the next state is
        saved, so that no line is lost.
        """
        position, is_over = self.position, self._is_over()
        since, saved, save_took = perf_counter(), perf_counter(), 0.0
        sums, start = dict.fromkeys(("loss", "norm", "samples", "steps", "waiting"), 0.0), perf_counter()
        while not is_over:
            epoch, (n_batches, batches) = position.epoch + 1, self.batches()
            left = iter(batches)
            while True:
                waiting = perf_counter()
                batch = next(left, None)
                sums["waiting"] += perf_counter() - waiting
                if batch is None:
                    break
                lr = self.rate(position.step)
                loss, norm, samples = self.step(batch, position.step, lr)
                for name, value in (("loss", loss * samples), ("norm", norm), ("samples", samples), ("steps", 1)):
                    sums[name] += value
                position.step += 1
                position.batch += 1
                yield Progress(self.name, position.step, self.steps)

                late = self.is_late()
                ended, done = position.batch == n_batches or late, position.step == self.steps or late
                if not (ended or done or (self.log_every and position.step % self.log_every == 0)):
                    continue
                if ended:
                    position.epoch, position.batch = epoch, 0
                seconds, on_gpu = perf_counter() - start, self.device.type == "cuda"
                (loss,) = ranks.sum_all([sums["loss"]])
                values: dict[str, Any] = {
                    "loss": loss / sums["samples"],
                    "grad_norm": sums["norm"] / sums["steps"],
                    "rate": sums["samples"] / seconds,
                    "waiting": sums["waiting"] / seconds,
                    "memory_mb": torch.cuda.max_memory_allocated(self.device) / 1e6 if on_gpu else peak_memory_mb(),
                }
                evaluation = None
                if self.eval_every and (done or (ended and epoch % self.eval_every == 0)):
                    if ranks.is_first():
                        evaluation = self.evaluate(epoch, values)
                    position.stale = ranks.from_first(lambda: position.stale)  # so that all processes end together
                step = Step(epoch, self.epochs, position.step, self.steps, lr=lr, evaluation=evaluation, **values)
                is_over, now = late or self._is_over(), perf_counter()
                position.seconds, since = position.seconds + now - since, now
                if log:
                    log(step)
                    is_due = self.free_saves > 0 or now - saved >= max(self.save_seconds, save_took / SHARE_OF_SAVING)
                    if is_over or is_due:
                        self.save(step)
                        self.free_saves -= 1
                        saved, save_took = perf_counter(), perf_counter() - now
                yield step
                sums, start = dict.fromkeys(sums, 0.0), perf_counter()
                if is_over:
                    break

    def _is_over(self) -> bool:
        return self.position.step >= self.steps or 0 < self.patience <= self.position.stale


def learning_rate(step: int, steps: int, lr: float, warmup: float, kind: str = "paper") -> float:
    """Return the learning rate of one of `steps` steps; `lr` is the highest rate.

    `warmup` is the share of steps with a rising rate. `kind` is `paper`: from 0 linearly to `lr`, then half a cosine to
    0 (paper, section 4.2); `published`: half a cosine over all steps, times a rise from 0.3 to 1, both one step ahead,
    because the published scheduler counts its initialisation; `onecycle`: half a cosine from `lr` / 25 up to `lr`, then
    one down to `lr` / 250,000 (GateHUB's code, PyTorch's defaults); or `constant`.
    """
    if kind == "constant":
        return lr
    warm = warmup * steps
    if kind == "published":
        rise = 0.3 + 0.7 * min(1.0, (step + 1) / warm) if warm else 1.0
        return lr * rise * 0.5 * (1 + math.cos(math.pi * (step + 1) / steps))
    if kind == "onecycle":
        peak, last = max(warm - 1, 0.0), steps - 1
        up = step <= peak and peak > 0
        low = lr / 25 if up else lr / 25 / 1e4
        share = (peak - step) / peak if up else (step - peak) / max(1.0, last - peak)  # of the way down from the peak
        return low + (lr - low) * 0.5 * (1 + math.cos(math.pi * share))
    if step < warm:
        return lr * (step + 1) / warm if warm >= 1 else lr
    return lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1.0, steps - warm)))


def rates(config: TrainConfig, steps: int, epoch_steps: int) -> Callable[[int], float]:
    """Return the learning rate as a function of the step, for `steps` steps and `epoch_steps` in the first epoch.

    The published schedule assumes that all epochs are as long as the first, so it may end a few steps off.
    """
    planned = steps
    if config.schedule == "published":
        planned = config.epochs * epoch_steps
        planned = min(planned, config.max_steps) if config.max_steps else planned
    warmup = config.warmup_epochs * epoch_steps / planned if config.warmup_epochs else config.warmup
    if config.schedule == "tenths":
        return lambda step: config.lr * 0.1 ** (step // epoch_steps)
    return lambda step: learning_rate(step, planned, config.lr, warmup, config.schedule)


@contextmanager
def keep_freed_memory(device: str) -> Iterator[None]:
    """Keep freed memory for what comes next, and give it back at the end.

    glibc returns large blocks to the system when they are freed, and the system clears each page of them when it is
    touched again: on a processor a training step frees and touches hundreds of thousands of pages. Only on a processor
    with glibc, and not if the user has chosen how memory is kept.
    """
    library = ctypes.CDLL(None) if os.name == "posix" and device == "cpu" else None
    if not hasattr(library, "gnu_get_libc_version") or any(name in os.environ for name in OWN):
        yield
        return
    assert library
    library.mallopt(MMAP_MAX, 0)
    library.mallopt(TRIM_THRESHOLD, -1)  # never
    try:
        yield
    finally:
        for name, value in USUAL.items():
            library.mallopt(name, value)
        library.malloc_trim(0)

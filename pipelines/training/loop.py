"""The training loop of models and feature networks, its learning rate, and when it saves.

It knows no model: a Run makes the batches, takes the steps, evaluates and saves. All randomness follows from a seed and
from where in the run it is needed, so that a Position and a Run's tensors are all that a resumed run needs.
"""

import ctypes
import math
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol, TypeVar

import torch

from lstr.pipelines.progress import Progress
from lstr.pipelines.provenance import peak_memory_mb
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.ranks import Ranks
from lstr.pipelines.training.run_folder import Position, RunLog, Step

Batch = TypeVar("Batch")
Item = TypeVar("Item")
SHARE_OF_SAVING = 0.05  # of the time, at most: at the published size a save of LSTR writes a gigabyte
TRIM_THRESHOLD, MMAP_THRESHOLD, MMAP_MAX = -1, -3, -4  # names of glibc's settings (malloc.h)
NEVER = -1
# What glibc itself comes to in a program that has once freed a block of 32 MB.
USUAL = {MMAP_MAX: 65536, MMAP_THRESHOLD: 32 << 20, TRIM_THRESHOLD: 64 << 20}
# Variables by which a person says how memory is to be kept.
OWN = ("MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "GLIBC_TUNABLES", "LD_PRELOAD")


@dataclass(frozen=True)
class StepPlan:
    """How long a run is, and what happens when."""

    epochs: int
    steps: int
    rate: Callable[[int], float]
    """the learning rate of a step"""
    log_every: int = 0
    """steps between two logged intervals, which also end with each epoch; 0 is only then"""
    eval_every: int = 0
    """epochs between two evaluations; 0 is never"""
    patience: int = 0
    """evaluations without a better one after which the run ends; 0 is never"""
    is_late: Callable[[], bool] = lambda: False
    """whether the time is over, asked at the end of an epoch"""

    def is_over(self, position: Position) -> bool:
        """Whether the run ends here, at its last step or early."""
        if position.step >= self.steps or 0 < self.patience <= position.stale:
            return True
        return bool(position.step and not position.batch and self.is_late())


class Saves:
    """When the state of a run is saved: not so often that it takes more than a twentieth of the time.

    least: seconds between two saves; grace: how many may come at once before.
    """

    def __init__(self, least: float = 0.0, grace: int = 0):
        self.least, self.grace = least, grace
        self._last, self._took = perf_counter(), 0.0

    def are_due(self) -> bool:
        """Whether enough time has passed since the last save."""
        return self.grace > 0 or perf_counter() - self._last >= max(self.least, self._took / SHARE_OF_SAVING)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around a save."""
        start = perf_counter()
        yield
        self._last = perf_counter()
        self._took, self.grace = self._last - start, self.grace - 1


class Interval:
    """Sums of one process since the last line of the log."""

    def __init__(self) -> None:
        self.loss, self.norm, self.samples, self.steps, self.waiting = 0.0, 0.0, 0, 0, 0.0
        self.start = perf_counter()

    def add(self, loss: float, norm: float, samples: int) -> None:
        """Count one step: this process's part of the loss, and the samples of all."""
        self.loss += loss * samples
        self.norm += norm
        self.samples += samples
        self.steps += 1

    def close(self, ranks: Ranks, device: torch.device) -> dict[str, Any]:
        """The values of the interval that `Step` holds; every process has to call it."""
        seconds = perf_counter() - self.start
        (loss,) = ranks.sum([self.loss])
        on_gpu = device.type == "cuda"
        return {
            "loss": loss / self.samples,
            "grad_norm": self.norm / self.steps,
            "rate": self.samples / seconds,
            "waiting": self.waiting / seconds,
            "memory_mb": torch.cuda.max_memory_allocated(device) / 1e6 if on_gpu else peak_memory_mb(),
        }


class Run(Protocol[Batch]):
    """What is trained."""

    name: str
    ranks: Ranks
    device: torch.device

    def n_batches(self, epoch: int) -> int:
        """How many batches an epoch (from 0) has."""

    def batches(self, epoch: int, first: int, most: int) -> Iterable[Batch]:
        """The batches of an epoch from `first` on, `most` at most; the model is ready for training."""

    def step(self, batch: Batch, number: int, lr: float) -> tuple[float, float, int]:
        """Take a step: this process's part of the loss, the norm of the gradient, and the samples of all processes."""

    def evaluate(self, position: Position, epoch: int, values: dict) -> dict | None:
        """Metrics of the validation videos, judged by the position, and the best weights kept; only on rank 0."""

    def save(self, step: Step, position: Position) -> None:
        """Save the state; only on rank 0."""


def train_steps(
    run: Run[Batch], plan: StepPlan, position: Position, log: RunLog | None, saves: Saves
) -> Iterator[Progress | Step]:
    """Train from a position to the end, in place: Progress after each step, a Step after each logged interval.

    Each process of a run goes through the same steps; `log` is None but on rank 0. A Step is logged and, where due, the
    state is saved before it is yielded; each log line is written before the state that follows it, so that none is lost
    between the two.
    """
    ranks, interval, since = run.ranks, Interval(), perf_counter()
    while not plan.is_over(position):
        epoch, n_batches = position.epoch + 1, run.n_batches(position.epoch)
        batches = iter(run.batches(position.epoch, position.batch, plan.steps - position.step))
        while True:
            waiting = perf_counter()
            batch = next(batches, None)
            interval.waiting += perf_counter() - waiting
            if batch is None:
                break
            lr = plan.rate(position.step)
            interval.add(*run.step(batch, position.step, lr))
            position.step += 1
            position.batch += 1
            yield Progress(run.name, position.step, plan.steps)

            ended, done = position.batch == n_batches, position.step == plan.steps
            if not (ended or done or (plan.log_every and position.step % plan.log_every == 0)):
                continue
            if ended:
                position.epoch, position.batch = epoch, 0
            values, evaluation = interval.close(ranks, run.device), None
            if plan.eval_every and (done or (ended and epoch % plan.eval_every == 0)):
                if ranks.first:
                    evaluation = run.evaluate(position, epoch, values)
                position.stale = int(ranks.of_first(position.stale))  # or some would go on when others end
            step = Step(epoch, plan.epochs, position.step, plan.steps, lr=lr, evaluation=evaluation, **values)
            over = plan.is_over(position)
            position.seconds, since = position.seconds + perf_counter() - since, perf_counter()
            if log:
                log.write(step)
                if over or saves.are_due():
                    with saves.timed():
                        run.save(step, position)
            yield step
            interval = Interval()
            if over:
                break


def learning_rate(step: int, steps: int, lr: float, warmup: float, kind: str = "paper") -> float:
    """Rate of one of `steps` steps, whose highest rate is `lr`.

    warmup: share of the steps in which the rate rises. kind: `paper`, from 0 linearly to `lr`, then half a cosine to 0
    (paper, section 4.2); `published`, half a cosine over all steps, times a rise from 0.3 to 1, both a step ahead, for
    the published scheduler counts its own beginning; `onecycle`, half a cosine from `lr` / 25 up to `lr`, then one
    down to 1 / 250,000 of it (GateHUB's code, by PyTorch's defaults); or `constant`.
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
    """The learning rate of each step of a run of `steps`, whose first epoch has `epoch_steps`.

    The published schedule takes every epoch to be as long as the first, so it may end a few steps from the run's end.
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
def kept_memory(device: str = "cpu") -> Iterator[bool]:
    """Keep freed memory for what comes next, and give it back at the end; yields whether that is done.

    glibc returns large blocks to the system when they are freed, and the system clears each page of them when it is
    touched again: on a processor a training step frees and touches hundreds of thousands of pages. Only on a processor
    with glibc, and not where the person who started this has set how memory is kept.
    """
    library = ctypes.CDLL(None) if os.name == "posix" else None
    if device != "cpu" or not hasattr(library, "gnu_get_libc_version") or any(name in os.environ for name in OWN):
        yield False
        return
    assert library
    kept = library.mallopt(MMAP_MAX, 0) and library.mallopt(TRIM_THRESHOLD, NEVER)
    try:
        yield bool(kept)
    finally:
        for name, value in USUAL.items():
            library.mallopt(name, value)
        library.malloc_trim(0)

"""The training loop, of LSTR, its baselines and both feature networks alike.

It knows no model: a Run makes the batches, takes the steps, evaluates and writes the files. All randomness follows from
a seed and from where in the run it is needed, so that a Position and a Run's tensors are all that a resumed run needs.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol, TypeVar

import torch

from lstr.pipelines.progress import Progress
from lstr.pipelines.training.log import Interval, Step
from lstr.pipelines.training.ranks import Ranks

Batch = TypeVar("Batch")
SHARE_OF_SAVING = 0.05  # of the time, at most: at the published size a save of LSTR writes a gigabyte


@dataclass
class Position:
    """How far a run has come."""

    epoch: int = 0
    batch: int = 0
    """batches done in this epoch"""
    step: int = 0
    best: float | None = None
    """the best validation metric so far"""
    stale: int = 0
    """evaluations since then"""

    def judge(self, score: float | None) -> bool:
        """Count one evaluation; whether its score is the best so far."""
        better = score is not None and (self.best is None or score > self.best)
        if better:
            self.best, self.stale = score, 0
        else:
            self.stale += 1
        return better


@dataclass(frozen=True)
class StepPlan:
    """How long a run is, and what happens when."""

    steps: int
    rate: Callable[[int], float]
    """the learning rate of a step"""
    log_every: int = 0
    """steps between two logged intervals, which also end with each epoch; 0 is only then"""
    eval_every: int = 0
    """epochs between two evaluations; 0 is never"""
    patience: int = 0
    """evaluations without a better one after which the run ends; 0 is never"""
    is_late: Callable[[], bool] | None = None
    """whether its time is over at the end of an epoch; None for no bound"""

    def is_over(self, position: Position) -> bool:
        """Whether the run ends here, at its last step or early."""
        if position.step >= self.steps or 0 < self.patience <= position.stale:
            return True
        return bool(self.is_late and position.step and not position.batch and self.is_late())


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


class Run(Protocol[Batch]):
    """What is trained, and the folder that keeps it."""

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

    def keep(self, step: Step, position: Position, last: bool) -> None:
        """Log an interval, then save the state where that is due; only on rank 0."""


def train_steps(run: Run[Batch], plan: StepPlan, position: Position) -> Iterator[Progress | Step]:
    """Train from a position to the end, in place: Progress after each step, a Step after each logged interval.

    Each process of a run goes through the same steps. A Step is logged and, where due, the state is saved before it is
    yielded; each log line is written before the state that follows it, so that none is lost between the two.
    """
    ranks, interval = run.ranks, Interval()
    while not plan.is_over(position):
        epoch, n_batches = position.epoch + 1, run.n_batches(position.epoch)
        batches = run.batches(position.epoch, position.batch, plan.steps - position.step)
        for batch in interval.timed(batches):
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
            step = Step(epoch, position.step, plan.steps, lr=lr, evaluation=evaluation, stage="", **values)
            over = plan.is_over(position)
            if ranks.first:
                run.keep(step, position, over)
            yield step
            interval.begin()
            if over:
                break

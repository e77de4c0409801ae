"""Plans of models whose memory is a state, or the last chunks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstr.windows.plan import Plan, Planner


@dataclass(frozen=True)
class States(Planner):
    """The plan of a state that goes on without end: `fresh` (B,) bool, streams that begin."""

    def __call__(self, chunks: NDArray[np.int64]) -> Plan:
        """See Planner."""
        return {"fresh": chunks == 0}


@dataclass(frozen=True)
class Runs(Planner):
    """The plan of runs that begin one after the other, and each anew after `work_length` chunks.

    `fresh` (B, R) bool, runs that begin, `waiting` (B, R) bool, those that have not yet begun, and `unmixed` (B,) bool,
    where all are mixed anew.
    """

    work_length: int
    runs: int

    @property
    def beginnings(self) -> NDArray[np.int64]:
        """The first chunk of each run (R,)."""
        return np.arange(self.runs) * self.work_length // self.runs

    def active(self, chunks: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which runs (B, R) have begun at chunks (B,)."""
        return chunks[:, None] >= self.beginnings

    def __call__(self, chunks: NDArray[np.int64]) -> Plan:
        """See Planner."""
        W = self.work_length
        waiting = ~self.active(chunks)
        place = (chunks[:, None] - self.beginnings) % W  # (B, R) chunks since the run began
        return {"fresh": (place == 0) | waiting, "waiting": waiting, "unmixed": chunks % W == 0}


@dataclass(frozen=True)
class Slots(Planner):
    """The plan of a window whose chunks move up a slot once it is full.

    `fresh` (B,) bool, streams that begin, `full` (B,) bool, those that leave their oldest chunk, and `newest` (B,), the
    newest chunk's slot.
    """

    work_length: int

    def __call__(self, chunks: NDArray[np.int64]) -> Plan:
        """See Planner."""
        W = self.work_length
        return {"fresh": chunks == 0, "full": chunks >= W, "newest": np.minimum(chunks, W - 1)}


@dataclass(frozen=True)
class Ring(Planner):
    """The plan of a window in a ring: `fresh` (B,) bool, `row` (B,) of the newest chunk, and `rows` (B * W,) of all.

    With `convolved` also `settled` (B,), the row of the chunk two before the newest, and `between`, those of all up to
    it but the first.
    """

    work_length: int
    convolved: bool = False

    def __call__(self, chunks: NDArray[np.int64]) -> Plan:
        """See Planner."""
        W, streams = self.work_length, np.arange(len(chunks))[:, None]
        rows = streams * W + (chunks[:, None] + 1 + np.arange(W)) % W  # (B, W) oldest first
        plan = {"fresh": chunks == 0, "row": rows[:, -1], "rows": rows.ravel()}
        return plan | ({"settled": rows[:, -3], "between": rows[:, 1:-3].ravel()} if self.convolved else {})

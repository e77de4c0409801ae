"""Plans of models that have a long memory beside a short one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lstr.windows import indices as index
from lstr.windows.indices import Context, Lengths
from lstr.windows.plan import CHANGES, Memories, Plan

Chunks = NDArray[np.int64]


@dataclass(frozen=True)
class Compressed(Memories):
    """The plan of LSTR and TeSTra, which sum up a long memory when it is not what it was.

    - `work_row` (B,), and `work_rows` (B * (W + anticipation),): the work memory by slot, then a row of zeros for each
      token of the future
    - `absent` (B, W) bool, work slots that hold no chunk yet
    - `stores` (B,) bool, streams whose long memory takes this chunk: `stores.streams` (B,), `stores.row` (B,)
    - `changes` (B,) bool, those whose long memory is not what it was: `changes.streams` (B,), then, (B, n_long) each,
      `changes.held`, rows of their own ring, the spare one for a hidden slot, `changes.hidden` bool, and, where those
      are distances, `changes.positions`, rows of the position table
    - for a GRU `waiting_row` (B,), `leaving_row` (B,), `leaving` (B,) bool, a chunk becomes older than both memories,
      and `fresh` (B,) bool, the stream's first chunk
    """

    anticipation: int
    positions: str
    gru: bool

    def __call__(self, chunks: Chunks) -> Plan:
        """See Planner."""
        W = self.work_length
        streams = np.arange(len(chunks))
        work, present = index.work_indices(chunks, self)  # (B, W)
        slots = np.pad(work % W, ((0, 0), (0, self.anticipation)), constant_values=W)
        plan: Plan = {
            "work_row": streams * (W + 1) + chunks % W,
            "work_rows": (streams[:, None] * (W + 1) + slots).ravel(),
            "absent": ~present,
        }
        if self.n_long:
            plan |= self._of_long_memory(chunks, streams)
        if self.gru:
            waiting, last = waiting_rows(self), np.maximum(chunks - 1, 0)
            older = index.older_ends(chunks, self)
            plan |= {
                "waiting_row": streams * waiting + chunks % waiting,
                "leaving_row": streams * waiting + np.maximum(older - 1, 0) % waiting,
                "leaving": (older > index.older_ends(last, self)) & (chunks > 0),
                "fresh": chunks == 0,
            }
        return plan

    def _of_long_memory(self, chunks: Chunks, streams: Chunks) -> Plan:
        rows, apart = index.long_rows(self), index.spacing(self)  # and after those rows a spare one
        stores = chunks % apart == 0
        row = np.where(stores, chunks // apart % rows, rows)
        long, visible = index.long_indices(chunks, self)  # (B, n_long)
        last = np.maximum(chunks - 1, 0)
        changes = (chunks == 0) | (long != index.long_indices(last, self)[0]).any(axis=1)
        plan: Plan = {"stores": stores, "stores.streams": streams, "stores.row": streams * (rows + 1) + row}
        if self.positions == "distance":
            positions = index.long_distances(chunks, self)
            changes |= (positions != index.long_distances(last, self)).any(axis=1)
            plan[f"{CHANGES}.positions"] = positions
        return plan | {
            CHANGES: changes,
            f"{CHANGES}.streams": streams,
            f"{CHANGES}.held": np.where(visible, long // apart % rows, rows),
            f"{CHANGES}.hidden": ~visible,
        }


def waiting_rows(config: Lengths) -> int:
    """Rows for the chunks that a GRU will take once they are older than both memories."""
    return config.long_length + config.work_length + 1


@dataclass(frozen=True)
class Generated(Memories):
    """The plan of CMeRT and MAT, by the names of `Compressed`; but `changes.rows` are of the rings of all streams."""

    context: int

    def __call__(self, chunks: Chunks) -> Plan:
        """See Planner."""
        ring, rows, apart = self.context + self.work_length, index.long_rows(self), index.spacing(self)
        streams = np.arange(len(chunks))
        slots, present = short_memory(chunks, self)
        long, visible = index.long_indices(chunks, self)  # (B, n_long)
        return {
            "work_row": streams * ring + chunks % ring,
            "work_rows": (streams[:, None] * ring + slots % ring).ravel(),
            "absent": ~present,
            "stores": chunks % apart == 0,
            "stores.streams": streams,
            "stores.row": streams * rows + chunks // apart % rows,
            CHANGES: self._changes(chunks),
            f"{CHANGES}.streams": streams,
            f"{CHANGES}.rows": streams[:, None] * rows + long // apart % rows,
            f"{CHANGES}.hidden": ~visible,
        }

    def _changes(self, chunks: Chunks) -> NDArray[np.bool_]:
        """(B,) whether the long memory at these chunks is not that of the chunk before."""
        now, before = (
            np.where(visible, long, -1)
            for long, visible in (index.long_indices(ends, self) for ends in (chunks, np.maximum(chunks - 1, 0)))
        )
        return (chunks == 0) | (now != before).any(axis=1)


def short_memory(ends: Chunks, config: Context) -> tuple[Chunks, NDArray[np.bool_]]:
    """Chunks (B, context + work_length) of the windows that end at `ends`, and which work slots are present."""
    work, present = index.work_indices(ends, config)
    return np.concatenate([index.context_indices(ends, config), work], axis=1), present


@dataclass(frozen=True)
class Bank(Memories):
    """The plan of a feature bank: `fresh` (B,) bool, and `hidden` (B, R) bool, rows to leave out.

    `row` and `stores.row` (B,) are the newest chunk's rows in the ring of the work memory and in that of the long one.
    """

    def __call__(self, chunks: Chunks) -> Plan:
        """See Planner."""
        streams = np.arange(len(chunks)) * (self.work_length + index.long_rows(self))
        plan = {
            "fresh": chunks == 0,
            "row": streams + chunks % self.work_length,
            "hidden": ~self._visible_rows(chunks),  # (B, R)
        }
        if self.n_long:
            stores = chunks % index.spacing(self) == 0
            long_row = np.where(stores, streams + self._long_row(chunks), plan["row"])  # or once more
            plan |= {"stores": stores, "stores.streams": np.arange(len(chunks)), "stores.row": long_row}
        return plan

    def _long_row(self, chunks: Chunks) -> Chunks:
        """Rows of chunks in the long memory's ring, counted from the start of both rings."""
        return self.work_length + chunks // index.spacing(self) % index.long_rows(self)

    def _visible_rows(self, chunks: Chunks) -> NDArray[np.bool_]:
        """Which rows of the rings hold the bank at chunks (B,): (B, R)."""
        held, mask = bank_chunks(chunks, self)
        long, work = held[:, : self.n_long], held[:, self.n_long :]
        rows = np.concatenate([self._long_row(long), work % self.work_length], axis=1)
        visible = np.zeros((len(chunks), self.work_length + index.long_rows(self)), dtype=np.bool_)
        stream, slot = np.nonzero(mask)
        visible[stream, rows[stream, slot]] = True
        return visible


def bank_chunks(ends: Chunks, config: Lengths) -> tuple[Chunks, NDArray[np.bool_]]:
    """Chunks of the bank at ends (B,), long memory before work memory, and which are present: (B, n_long + W) both."""
    long, long_mask = index.long_indices(ends, config)
    work, work_mask = index.work_indices(ends, config)
    return np.concatenate([long, work], axis=1), np.concatenate([long_mask, work_mask], axis=1)


@dataclass(frozen=True)
class History(Memories):
    """The plan of GateHUB: `fresh` (B,) bool, and `missing` (B, n_long + W) bool, slots that hold no chunk.

    `row` (B,) and `rows` (B * (n_long + W),) are those of the newest chunk and of the history, `work_row` and
    `work_rows` the same in the rings that are as long as the work memory.
    """

    def __call__(self, chunks: Chunks) -> Plan:
        """See Planner."""
        W, streams = self.work_length, np.arange(len(chunks))
        held, exist = history_chunks(chunks, self)  # (B, n_long + W)
        plan = {"fresh": chunks == 0, "missing": ~exist}
        for name, ring, slots in (("", history_rows(self), held), ("work_", W, held[:, -W:])):
            plan[f"{name}row"] = streams * ring + chunks % ring
            plan[f"{name}rows"] = (streams[:, None] * ring + slots % ring).ravel()
        return plan


def history_chunks(ends: Chunks, config: Lengths) -> tuple[Chunks, NDArray[np.bool_]]:
    """Chunks of the history at ends (B,), oldest first, and which exist: (B, n_long + work_length) both."""
    long, visible = index.long_indices(ends, config)
    work = ends[:, None] - config.work_length + 1 + np.arange(config.work_length)  # (B, W)
    visible = visible & (index.work_start(ends, config) > 0)[:, None]
    exist = np.concatenate([visible, work >= 0], axis=1)
    return np.where(exist, np.concatenate([long, work], axis=1), 0), exist


def history_rows(config: Lengths) -> int:
    """Chunks that a stream keeps: those that any slot of the history can hold."""
    return config.work_length + (config.long_length if config.n_long else 0)

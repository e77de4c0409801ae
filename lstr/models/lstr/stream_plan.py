"""Index arithmetic of a stream of LSTR: where the next chunk goes, and which rows of the rings its window reads."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lstr.models.lstr.config import LSTRConfig
from lstr.models.stream import CHANGES, Plan
from lstr.windows import indices as index


def make_plan(config: LSTRConfig, chunks: NDArray[np.int64]) -> Plan:
    """Where the next chunk of streams that have seen `chunks` (B,) goes, and what it needs.

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
    W = config.work_length
    streams = np.arange(len(chunks))
    work, present = index.work_indices(chunks, config)  # (B, W)
    slots = np.pad(work % W, ((0, 0), (0, config.anticipation)), constant_values=W)
    plan: Plan = {
        "work_row": streams * (W + 1) + chunks % W,
        "work_rows": (streams[:, None] * (W + 1) + slots).ravel(),
        "absent": ~present,
    }
    if config.n_long:
        plan |= _of_long_memory(config, chunks, streams)
    if config.gru:
        waiting, last = waiting_rows(config), np.maximum(chunks - 1, 0)
        older = index.older_ends(chunks, config)
        plan |= {
            "waiting_row": streams * waiting + chunks % waiting,
            "leaving_row": streams * waiting + np.maximum(older - 1, 0) % waiting,
            "leaving": (older > index.older_ends(last, config)) & (chunks > 0),
            "fresh": chunks == 0,
        }
    return plan


def _of_long_memory(config: LSTRConfig, chunks: NDArray[np.int64], streams: NDArray[np.int64]) -> Plan:
    rows, apart = index.long_rows(config), index.spacing(config)  # and after those rows a spare one
    stores = chunks % apart == 0
    row = np.where(stores, chunks // apart % rows, rows)
    long, visible = index.long_indices(chunks, config)  # (B, n_long)
    last = np.maximum(chunks - 1, 0)
    changes = (chunks == 0) | (long != index.long_indices(last, config)[0]).any(axis=1)
    plan: Plan = {"stores": stores, "stores.streams": streams, "stores.row": streams * (rows + 1) + row}
    if config.positions == "distance":
        positions = index.long_distances(chunks, config)
        changes |= (positions != index.long_distances(last, config)).any(axis=1)
        plan[f"{CHANGES}.positions"] = positions
    return plan | {
        CHANGES: changes,
        f"{CHANGES}.streams": streams,
        f"{CHANGES}.held": np.where(visible, long // apart % rows, rows),
        f"{CHANGES}.hidden": ~visible,
    }


def waiting_rows(config: LSTRConfig) -> int:
    """Rows for the chunks that a GRU will take once they are older than both memories."""
    return config.long_length + config.work_length + 1

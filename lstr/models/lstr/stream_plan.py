"""Index arithmetic of a stream of LSTR: where the next chunk goes, and which rows of the rings its window reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.config import WindowConfig
from lstr.models.lstr.config import LSTRConfig
from lstr.windows import indices as index


@dataclass(frozen=True)
class Plan:
    """Where the next chunk of each of B streams goes and what it needs, worked out on the CPU.

    Rows count through the rings of all streams, one ring after the other. None stands for the usual case, in which the
    work of a mask is not done.
    """

    work_row: Tensor
    """(B,)"""
    work_rows: Tensor
    """(B * (W + anticipation),) the work memory by slot, then a row of zeros for each token of the future"""
    work_mask: Tensor | None
    """(B, W) bool, True = present; None when all are"""
    storing: Tensor
    """(S,) the streams whose long memory takes this chunk"""
    long_row: Tensor
    """(S,)"""
    changed: Tensor
    """(U,) the streams whose long memory is not what it was"""
    long_rows: Tensor
    """(U * n_long,); the spare row for a hidden slot"""
    ring_rows: Tensor
    """(U * n_long,) the same, where the rings are those of the changed streams alone"""
    positions: Tensor
    """(U, n_long) rows of the position table"""
    long_mask: Tensor | None
    """(U, n_long) bool, True = visible; None when all are"""
    waiting_row: Tensor
    """(B,) for a GRU"""
    leaving_row: Tensor
    """(B,)"""
    leaving: Tensor | None
    """(B,) bool, True = a chunk becomes older than both memories; None when that is so nowhere"""
    fresh: Tensor | None
    """(B,) bool, True = the stream's first chunk; None when that is so nowhere"""

    def to(self, device: torch.device) -> Plan:
        """The same plan on another device."""
        moved: dict[str, Any] = {
            name: None if value is None else value.to(device) for name, value in vars(self).items()
        }
        return Plan(**moved)


def make_plan(config: LSTRConfig, chunks: NDArray[np.int64], whole: bool = False) -> Plan:
    """The plan for streams that have seen `chunks` (B,).

    With `whole` no mask is None and every stream takes part in everything, if only in a spare row: a step then has
    one of two shapes, with and without the encoder, as a captured graph needs.
    """
    W = config.work_length
    streams = np.arange(len(chunks))
    work, present = index.work_indices(chunks, config)  # (B, W)
    slots = np.pad(work % W, ((0, 0), (0, config.anticipation)), constant_values=W)
    rows, apart = long_rows(config), spacing(config)
    stores = (chunks % apart == 0) & (config.n_long > 0)
    storing = streams[stores | (whole and config.n_long > 0)]
    row = np.where(stores, chunks // apart % max(rows - 1, 1), rows - 1)
    long, visible = index.long_indices(chunks, config)  # (B, n_long)
    last = np.maximum(chunks - 1, 0)
    changes = (chunks == 0) | (long != index.long_indices(last, config)[0]).any(axis=1)
    if config.positions == "slot":
        positions = np.broadcast_to(np.arange(config.n_long), long.shape)
    else:
        positions = index.long_distances(chunks, config)
        changes |= (positions != index.long_distances(last, config)).any(axis=1)
    changes &= config.n_long > 0
    changed = streams[changes | (whole and changes.any())]
    held = np.where(visible, long // apart % max(rows - 1, 1), rows - 1)[changed]  # (U, n_long)
    waiting = waiting_rows(config)
    older = index.older_ends(chunks, config)
    leaves = (older > index.older_ends(last, config)) & (chunks > 0)
    arrays: dict[str, Any] = {
        "work_row": streams * (W + 1) + chunks % W,
        "work_rows": (streams[:, None] * (W + 1) + slots).ravel(),
        "work_mask": present if whole or not present.all() else None,
        "storing": storing,
        "long_row": (streams * rows + row)[storing],
        "changed": changed,
        "long_rows": (changed[:, None] * rows + held).ravel(),
        "ring_rows": (np.arange(len(changed))[:, None] * rows + held).ravel(),
        "positions": positions[changed],
        "long_mask": visible[changed] if whole or not visible[changed].all() else None,
        "waiting_row": streams * waiting + chunks % waiting,
        "leaving_row": streams * waiting + np.maximum(older - 1, 0) % waiting,
        "leaving": leaves if whole or leaves.any() else None,
        "fresh": chunks == 0 if whole or (chunks == 0).any() else None,
    }
    tensors = {name: None if array is None else torch.from_numpy(np.array(array)) for name, array in arrays.items()}
    return Plan(**cast(dict[str, Any], tensors))


def spacing(config: WindowConfig) -> int:
    """Chunks between two that are stored: a fixed grid uses its multiples, the others come to use every chunk."""
    return config.long_stride if config.grid == "fixed" else 1


def long_rows(config: WindowConfig) -> int:
    """Rows for the long memory, for the chunks still in the work memory, which will enter it, and a spare one."""
    return (config.long_length + config.work_length) // spacing(config) + 2 if config.n_long else 0


def waiting_rows(config: LSTRConfig) -> int:
    """Rows for the chunks that a GRU will take once they are older than both memories."""
    return config.long_length + config.work_length + 1

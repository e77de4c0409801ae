"""Windows of stored features in batches, and which chunk each output of a model is about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lstr.config import WindowConfig
from lstr.errors import LstrError
from lstr.files.arrays import tensor_of
from lstr.windows import indices as memory

# Chunks older than the memories that a GRU is trained through, at most (paper, the GRU that compensates memory).
OLDER_CHUNKS = 512
# What of a window are features
FEATURES = ("long", "work", "older", "context")


@dataclass(frozen=True)
class Part:
    """Outputs whose losses are averaged together."""

    rows: NDArray[np.int64]
    """(n,) which of the N outputs, in order"""
    weight: float = 1.0
    """Weight of that mean in the sum that is the loss"""
    repeats_last: bool = False
    """Whether an output about a chunk past the end of the video has the last chunk's target; else it has no loss"""


@dataclass(frozen=True)
class Outputs:
    """What the N outputs of a window are about, for targets and loss; several may be about the same chunk."""

    slots: NDArray[np.int64]
    """(N,) work slot an output stands at; -1 for the newest that is present"""
    ahead: NDArray[np.int64]
    """(N,) chunks from that slot's chunk to the one predicted; 0 is detection"""
    parts: tuple[Part, ...] = ()
    """The loss is the weighted sum of their means. Unless stated, detection is one part and anticipation another."""

    def __post_init__(self) -> None:
        if not self.parts:
            rows = (np.flatnonzero(self.ahead == 0), np.flatnonzero(self.ahead > 0))
            object.__setattr__(self, "parts", tuple(Part(these) for these in rows if len(these)))

    @property
    def repeats_last(self) -> NDArray[np.bool_]:
        """(N,) whether an output about a chunk past the end of the video has the last chunk's target."""
        rows = [part.rows for part in self.parts if part.repeats_last]
        return np.isin(np.arange(len(self.slots)), np.concatenate(rows) if rows else [])


def every_slot(W: int, ahead: NDArray[np.int64]) -> Outputs:
    """Outputs about every one of W work slots, then for each about the chunks `ahead` of it: two parts of the loss."""
    slots, first = np.arange(W), np.zeros(W, dtype=np.int64)
    parts = Part(slots), Part(np.arange(W, W * (1 + len(ahead))))
    return Outputs(
        np.append(slots, np.repeat(slots, len(ahead))), np.append(first, np.tile(ahead, W)), parts[: 1 + len(ahead)]
    )


def in_order(logits: Tensor) -> Tensor:
    """Logits (B, W * (1 + n), C) in the order of `every_slot`, of logits (B, W, 1 + n, C) by slot."""
    return torch.cat([logits[:, :, 0], logits[:, :, 1:].flatten(1, 2)], dim=1)


@dataclass(frozen=True)
class Windows:
    """B windows of one fixed shape, as every model's `forward` takes them."""

    long: Tensor
    """(B, n_long, D), zero in hidden slots"""
    long_mask: Tensor
    """(B, n_long) bool, True = visible"""
    work: Tensor
    """(B, work_length, D), zero in absent slots"""
    work_mask: Tensor
    """(B, work_length) bool, True = present; absent slots come last"""
    distances: Tensor
    """(B, n_long) int64, chunks to the newest work slot"""
    older: Tensor
    """(B, K, D), the K last chunks before both memories, oldest first, zero where there are fewer; K = 0 without GRU"""
    older_count: Tensor
    """(B,) int64, how many of those K are present; they come first"""
    context: Tensor
    """(B, context, D), the last chunks before the work memory, oldest first, chunk 0 where there are fewer"""

    def __len__(self) -> int:
        return len(self.work)

    def newest_last(self) -> Tensor:
        """Features of the work memory (B, W, D) with the absent slots, which are zeros, before the others."""
        return _rotated(self.work, self.work_mask.sum(1, keepdim=True))

    def by_slot(self, rows: Tensor) -> Tensor:
        """Rows (B, W, ...) in the order of `newest_last`, by slot: the absent ones after the others."""
        return _rotated(rows, -self.work_mask.sum(1, keepdim=True))

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """The same windows with every tensor changed."""
        return type(self)(*(change(getattr(self, field.name)) for field in fields(self)))

    def to(self, device: torch.device | str) -> Self:
        """The same windows on another device."""
        return self.map(lambda tensor: tensor.to(device))


def _rotated(rows: Tensor, by: Tensor) -> Tensor:
    """Rows (B, W, ...) that each begin with the one at place `by` (B, 1)."""
    order = (torch.arange(rows.shape[1], device=rows.device) + by) % rows.shape[1]  # (B, W)
    return rows.gather(1, order.view(*order.shape, *[1] * (rows.ndim - 2)).expand_as(rows))


def gather(
    features: Tensor | NDArray[np.float32], ends: ArrayLike, config: WindowConfig, stretched: bool = False
) -> Windows:
    """Windows of one video, features (L, D), that end at chunks `ends` (B,).

    The grid is the one at test time, or, `stretched`, that of published training. Raises LstrError when an end is not
    in [0, L).
    """
    ends = np.asarray(ends, dtype=np.int64)
    if ends.size and not (0 <= ends.min() and ends.max() < len(features)):
        raise LstrError(
            f"Windows end at chunks {ends.min()} to {ends.max()} of a video of {len(features)}.",
            "Count chunks from 0, and end windows inside the video.",
        )
    return window_indices(ends, config, stretched).gather(features)


@dataclass(frozen=True)
class WindowIndices(Windows):
    """Which rows of features B windows are made of: `long`, `work`, `older` and `context` are int64, without the D.

    They are 0 where windows are zero.
    """

    def after(self, starts: Tensor) -> WindowIndices:
        """The same in rows of several videos one after the other, of which each window's video has `starts` (B,)."""
        return replace(self, **{name: getattr(self, name) + starts[:, None] for name in FEATURES})

    def gather(self, features: Tensor | NDArray[np.float32]) -> Windows:
        """Windows of features (R, D), on their device, where the indices of a tensor are too; nothing waits for it."""
        indices = {name: getattr(self, name) for name in FEATURES}
        if not isinstance(features, Tensor):  # numpy takes a tensor with one element for a number
            indices = {name: tensor.numpy() for name, tensor in indices.items()}
        chosen = {name: tensor_of(features[rows]).float() for name, rows in indices.items()}
        made = Windows(**{**vars(self), **chosen}).to(chosen["work"].device)
        made.work.masked_fill_(~made.work_mask[..., None], 0)
        made.long.masked_fill_(~made.long_mask[..., None], 0)
        places = torch.arange(made.older.shape[1], device=made.older.device)
        made.older.masked_fill_((places >= made.older_count[:, None])[..., None], 0)
        return made


def window_indices(ends: NDArray[np.int64], config: WindowConfig, stretched: bool = False) -> WindowIndices:
    """The indices of windows that end at chunks `ends` (B,), each of its own video; `stretched` as for `gather`."""
    long, long_mask = (memory.stretched_indices if stretched else memory.long_indices)(ends, config)
    if config.uses.padded:  # chunk 0 is in no history before it leaves the work memory
        long_mask = long_mask & (memory.work_start(ends, config) > 0)[:, None]
    work, work_mask = memory.work_indices(ends, config)
    older, older_count = _older_indices(ends, config)
    distances = memory.long_distances(ends, config, stretched)
    context = memory.context_indices(ends, config)
    arrays = long, long_mask, work, work_mask, distances, older, older_count, context
    return WindowIndices(*map(torch.from_numpy, arrays))


def join(batches: Sequence[Windows]) -> Windows:
    """Windows of several videos as one batch."""
    longest = max(windows.older.shape[1] for windows in batches)

    def padded(windows: Windows, name: str) -> Tensor:
        tensor = getattr(windows, name)
        if name == "older" and tensor.shape[1] < longest:
            return torch.nn.functional.pad(tensor, (0, 0, 0, longest - tensor.shape[1]))
        return tensor

    return Windows(*(torch.cat([padded(windows, field.name) for windows in batches]) for field in fields(Windows)))


def _older_indices(ends: NDArray[np.int64], config: WindowConfig) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Chunks (B, K) for the GRU, 0 after the last, and how many they are (B,)."""
    if not config.gru:
        return np.zeros((len(ends), 0), dtype=np.int64), np.zeros(len(ends), dtype=np.int64)
    stop = memory.older_ends(ends, config)
    count = np.minimum(stop, OLDER_CHUNKS)
    column = np.arange(count.max(initial=0))
    return np.where(column < count[:, None], (stop - count)[:, None] + column, 0), count

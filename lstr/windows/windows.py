"""Windows of stored features in batches, the chunk that each output of a model is about, and the training loss."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lstr.config import WindowConfig
from lstr.errors import LstrError
from lstr.files.arrays import tensor_of
from lstr.windows import indices as memory

# Maximum number of chunks before the memories that a GRU is trained through (paper, the GRU that compensates memory).
OLDER_CHUNKS = 512
FEATURES = ("long", "work", "older", "context")  # the tensors of a window that hold features


@dataclass(frozen=True)
class Part:
    """Outputs with losses that are averaged together."""

    rows: NDArray[np.int64]  # (n,) which of the N outputs, in order
    weight: float = 1.0  # weight of that mean in the sum that is the loss
    repeats_last: bool = False
    """Whether an output about a chunk past the end of the video has the target of the last chunk, or no loss"""


@dataclass(frozen=True)
class Outputs:
    """What the N outputs of a window are about, for targets and loss; several may be about the same chunk."""

    slots: NDArray[np.int64]  # (N,) work slot of an output; -1 for the newest that is present
    ahead: NDArray[np.int64]  # (N,) chunks from the chunk of that slot to the predicted one; 0 is detection
    parts: tuple[Part, ...] = ()
    """The loss is the weighted sum of their means. By default detection is one part and anticipation another."""

    def __post_init__(self) -> None:
        if not self.parts:
            rows = (np.flatnonzero(self.ahead == 0), np.flatnonzero(self.ahead > 0))
            object.__setattr__(self, "parts", tuple(Part(these) for these in rows if len(these)))

    @property
    def repeats_last(self) -> NDArray[np.bool_]:
        """(N,) whether an output about a chunk past the end of the video has the target of the last chunk."""
        rows = [part.rows for part in self.parts if part.repeats_last]
        return np.isin(np.arange(len(self.slots)), np.concatenate(rows) if rows else [])


def every_slot(W: int, ahead: NDArray[np.int64]) -> Outputs:
    """Return outputs about each of W work slots, then for each slot about the chunks `ahead` of it: two parts."""
    slots, first = np.arange(W), np.zeros(W, dtype=np.int64)
    parts = Part(slots), Part(np.arange(W, W * (1 + len(ahead))))
    return Outputs(
        np.append(slots, np.repeat(slots, len(ahead))), np.append(first, np.tile(ahead, W)), parts[: 1 + len(ahead)]
    )


def in_order(logits: Tensor) -> Tensor:
    """Return logits (B, W * (1 + n), C) in the order of `every_slot`, of logits (B, W, 1 + n, C) by slot."""
    return torch.cat([logits[:, :, 0], logits[:, :, 1:].flatten(1, 2)], dim=1)


@dataclass(frozen=True)
class Windows:
    """B windows of one fixed shape, as the `forward` of every model takes them."""

    long: Tensor  # (B, n_long, D), zero in hidden slots
    long_mask: Tensor  # (B, n_long) bool, True = visible
    work: Tensor  # (B, work_length, D), zero in absent slots
    work_mask: Tensor  # (B, work_length) bool, True = present; absent slots come last
    distances: Tensor  # (B, n_long) int64, chunks to the newest work slot
    older: Tensor
    """(B, K, D), the K last chunks before both memories, oldest first, zero where there are fewer; K = 0 without GRU"""
    older_count: Tensor  # (B,) int64, how many of those K are present; they come first
    context: Tensor
    """(B, context, D), the last chunks before the work memory, oldest first, chunk 0 where there are fewer"""

    def __len__(self) -> int:
        return len(self.work)

    def newest_last(self) -> Tensor:
        """Return features of the work memory (B, W, D) with the absent slots, which are zeros, before the others."""
        return rotate(self.work, self.work_mask.sum(1, keepdim=True))

    def by_slot(self, rows: Tensor) -> Tensor:
        """Return rows (B, W, ...) in the order of `newest_last` by slot: absent slots after the others."""
        return rotate(rows, -self.work_mask.sum(1, keepdim=True))

    def map(self, change: Callable[[Tensor], Tensor]) -> Self:
        """Return the same windows with every tensor changed."""
        return type(self)(*(change(getattr(self, field.name)) for field in fields(self)))


def rotate(rows: Tensor, by: Tensor) -> Tensor:
    """Rotate rows (B, W, ...) so that each row of the batch starts with the one at place `by` (B, 1)."""
    order = (torch.arange(rows.shape[1], device=rows.device) + by) % rows.shape[1]  # (B, W)
    return rows.gather(1, order.view(*order.shape, *[1] * (rows.ndim - 2)).expand_as(rows))


def gather(
    features: Tensor | NDArray[np.float32], ends: ArrayLike, config: WindowConfig, stretched: bool = False
) -> Windows:
    """Return windows of one video, features (L, D), that end at chunks `ends` (B,).

    `stretched` selects the grid of published training instead of the one at test time. Raises LstrError if an end is
    not in [0, L).
    """
    ends = np.asarray(ends, dtype=np.int64)
    if ends.size and not (0 <= ends.min() and ends.max() < len(features)):
        hint = "count chunks from 0, and end windows inside the video."
        raise LstrError(f"Windows end at chunks {ends.min()} to {ends.max()} of a video of {len(features)}.", hint)
    return window_indices(ends, config, stretched).gather(features)


@dataclass(frozen=True)
class WindowIndices(Windows):
    """The rows of features that B windows hold: `long`, `work`, `older` and `context` are int64, without the D.

    They are 0 where windows are zero.
    """

    def gather(self, features: Tensor | NDArray[np.float32]) -> Windows:
        """Return windows of features (R, D), on the device of the features, without a wait for that device."""
        indices = {name: getattr(self, name) for name in FEATURES}
        if not isinstance(features, Tensor):  # NumPy takes a tensor with one element for a number
            indices = {name: tensor.numpy() for name, tensor in indices.items()}
        chosen = {name: tensor_of(features[rows]).float() for name, rows in indices.items()}
        device = chosen["work"].device
        made = Windows(**{**vars(self), **chosen}).map(lambda tensor: tensor.to(device))
        made.work.masked_fill_(~made.work_mask[..., None], 0)
        made.long.masked_fill_(~made.long_mask[..., None], 0)
        places = torch.arange(made.older.shape[1], device=device)
        made.older.masked_fill_((places >= made.older_count[:, None])[..., None], 0)
        return made


def window_indices(
    ends: NDArray[np.int64], config: WindowConfig, stretched: bool = False, starts: NDArray[np.int64] | int = 0
) -> WindowIndices:
    """Return the indices of windows that end at chunks `ends` (B,), each of another video.

    `stretched` is as of `gather`; `starts` (B,) are the rows of the first chunks, if videos are concatenated.
    """
    long, long_mask = (memory.stretched_indices if stretched else memory.long_indices)(ends, config)
    # Such a history contains chunk 0 only after it left the work memory (published code of GateHUB).
    if config.uses.padded:
        long_mask = long_mask & (memory.work_start(ends, config) > 0)[:, None]
    work, work_mask = memory.work_indices(ends, config)
    older, older_count = np.zeros((len(ends), 0), dtype=np.int64), np.zeros(len(ends), dtype=np.int64)
    if config.gru:
        stop = memory.older_ends(ends, config)
        older_count = np.minimum(stop, OLDER_CHUNKS)
        column = np.arange(older_count.max(initial=0))
        older = np.where(column < older_count[:, None], (stop - older_count)[:, None] + column, 0)
    distances = memory.long_distances(ends, config, stretched)
    context = memory.context_indices(ends, config)
    first = np.reshape(starts, (-1, 1))
    arrays = (long + first, long_mask, work + first, work_mask, distances, older + first, older_count, context + first)
    return WindowIndices(*map(torch.from_numpy, arrays))


def join(batches: Sequence[Windows]) -> Windows:
    """Join windows of several videos to one batch."""
    longest = max(windows.older.shape[1] for windows in batches)
    parts = {field.name: [getattr(windows, field.name) for windows in batches] for field in fields(Windows)}
    parts["older"] = [torch.nn.functional.pad(part, (0, 0, 0, longest - part.shape[1])) for part in parts["older"]]
    return Windows(**{name: torch.cat(tensors) for name, tensors in parts.items()})


@dataclass(frozen=True)
class Supervision:
    """The labels of the N outputs of B windows."""

    targets: Tensor  # (B, N, C), multi-hot or scaled
    counts: Tensor
    """(B, N) bool: outputs that count. A window without any replaces a missing window of another process."""
    ignore: int | None = None  # column of the ambiguous class; None where it is a class like any other
    totals: Sequence[float] | None = None
    """How many outputs of each part count in the whole batch, where these windows are but a piece of it; `totals_of`"""
    n_windows: float | None = None  # windows of the whole batch, likewise

    @property
    def share(self) -> float:
        """The share of these windows in the whole batch."""
        return 1.0 if self.n_windows is None else float(self.counts.any(dim=1).sum()) / self.n_windows


def loss_of(logits: Tensor, outputs: Outputs, supervision: Supervision) -> Tensor:
    """Return the sum over parts of their weight times the mean of their cross entropy, of logits (B, N, C)."""
    total, targets, counts = logits.new_zeros(()), supervision.targets, supervision.counts
    for i, part in enumerate(outputs.parts):
        logit, target, valid = (chosen(tensor, part.rows) for tensor in (logits, targets, counts))
        size = None if supervision.totals is None else max(1.0, supervision.totals[i])
        total = total + part.weight * multi_hot_cross_entropy(logit, target, supervision.ignore, valid, size)
    return total


def totals_of(targets: Tensor, counts: Tensor, outputs: Outputs, ignore: int | None) -> list[float]:
    """Return how many outputs of each part take part in the loss, of targets (B, N, C) and counts (B, N)."""
    keep = loss_mask(targets, ignore, counts)  # (B, N)
    return [float(keep[:, torch.from_numpy(part.rows)].sum()) for part in outputs.parts]


def chosen(tensor: Tensor, rows: NDArray[np.int64]) -> Tensor:
    """Return the outputs `rows` (n,) as (B, n, ...); neighbours by a slice, because a GPU would wait for indices."""
    first, end = int(rows[0]), int(rows[-1]) + 1
    if end - first == len(rows):
        return tensor[:, first:end]
    return torch.cat([tensor[:, at : at + 1] for at in rows.tolist()], 1)


def multi_hot_cross_entropy(
    logits: Tensor, targets: Tensor, ignore: int | None = None, valid: Tensor | None = None, total: float | None = None
) -> Tensor:
    """Return the mean over chunks of the sum over classes of -target * log_softmax(logits), as the published code.

    logits and targets (..., C); targets are multi-hot and not normalised, so a chunk of two classes weighs double.
    ignore: the column of the ambiguous class; it takes no part in the softmax, and chunks that carry it are left
    out. valid (...) bool: chunks that count. When none is left the loss is 0, with a gradient of 0. total: chunks to
    divide by in place of those here, where they are but a part of a batch.
    Raises LstrError when the shapes differ.
    """
    if logits.shape != targets.shape:
        hint = "make the targets with the classes of the model."
        raise LstrError(f"Logits have shape {tuple(logits.shape)} and targets {tuple(targets.shape)}.", hint)
    targets = targets.to(logits.dtype)
    keep = loss_mask(targets, ignore, valid)
    losses = -(without(targets, ignore) * without(logits, ignore).log_softmax(dim=-1)).sum(dim=-1)  # (...)
    # Without an index by `keep`: a GPU would have to report the number of kept chunks, and wait.
    if total is not None and logits.device.type != "cpu":
        return torch.where(keep, losses, 0).sum() / total
    losses = losses[keep]
    return losses.sum() / (max(1, len(losses)) if total is None else total)


def without(x: Tensor, ignore: int | None) -> Tensor:
    """Return logits or targets (..., C) without the column of the ambiguous class, where there is one."""
    return x if ignore is None else torch.cat([x[..., :ignore], x[..., ignore + 1 :]], dim=-1)


def masked_mean(losses: Tensor, keep: Tensor, totals: Sequence[float] | None) -> Tensor:
    """Return the mean of losses (...) where keep (...) is True: a scalar, 0 where it nowhere is.

    totals: of `Supervision`; the first is the divisor instead of the number that is kept here.
    """
    size = keep.sum().clamp(min=1) if totals is None else max(1.0, totals[0])
    return torch.where(keep, losses, 0).sum() / size


def loss_mask(targets: Tensor, ignore: int | None = None, valid: Tensor | None = None) -> Tensor:
    """Return which chunks (...) take part in the loss of targets (..., C)."""
    keep = torch.ones(targets.shape[:-1], dtype=torch.bool, device=targets.device) if valid is None else valid
    return keep if ignore is None else keep & (targets[..., ignore] == 0)

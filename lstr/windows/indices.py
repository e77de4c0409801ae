"""Which chunks a window sees: index arithmetic alone, shared by training, batch evaluation and streaming.

The window at chunk T has a work memory, the last `work_length` chunks, and a long memory, the chunks
`long_stride` apart among the `long_length` chunks just before it. The fixed and the sliding grid agree until the memory
is full, the sliding and the anchored one from then on.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lstr.config import WindowConfig

Indices = NDArray[np.int64]
# The lengths of the memories of a model: a WindowConfig, or a planner (`lstr.windows.plans`) with the same names. Files
# of exported models hold only the latter.
Lengths: TypeAlias = Any


def in_pieces(length: int, size: int) -> list[Indices]:
    """Return the chunks of a video, from 0 on, at most `size` together."""
    return [np.arange(at, min(at + size, length)) for at in range(0, length, size)]


def work_start(T: ArrayLike, config: Lengths) -> Indices:
    """Return the first chunk of the work memory of the window(s) at T, an int or (B,); 0 while it is filling."""
    return np.maximum(np.asarray(T, dtype=np.int64) - config.work_length + 1, 0)


def long_indices(T: ArrayLike, config: Lengths) -> tuple[Indices, NDArray[np.bool_]]:
    """Return chunks of the long memory at T, oldest first, left-padded.

    T is an int or an array (B,); the results are indices (n_long,) or (B, n_long), 0 in hidden slots, and a mask
    of the same shape, True = visible. While nothing precedes the work memory the newest slot holds chunk 0,
    visible, so that no softmax is empty (published code, data layers of the batch evaluation and the stream). On an
    anchored grid that does not meet chunk 0, the slot before its first chunk holds chunk 0, visible, as in TeSTra.
    """
    start = work_start(T, config)[..., None]  # (..., 1)
    stride = config.long_stride
    if config.grid == "anchored":
        indices = start - stride * np.arange(config.n_long, 0, -1, dtype=np.int64)  # (..., n_long)
        mask = indices > -stride
        mask[..., -1:] = True
        return np.maximum(indices, 0), mask
    newest = np.maximum((start - 1) // stride * stride, 0)
    if config.grid == "sliding":
        newest = np.where(start > config.long_length, start - stride, newest)
    back = stride * np.arange(config.n_long - 1, -1, -1, dtype=np.int64)
    indices = newest - back  # (..., n_long)
    mask = indices >= 0
    return np.where(mask, indices, 0), mask


def spacing(config: Lengths) -> int:
    """Return the distance of chunks that a long memory can hold: multiples of the stride on a fixed grid, else 1."""
    return config.long_stride if config.grid == "fixed" else 1


def long_rows(config: Lengths) -> int:
    """Return the rows that a stream needs for its long memory, and for chunks in the work memory that will enter it."""
    return (config.long_length + config.work_length) // spacing(config) + 1 if config.n_long else 0


def stretched_indices(T: ArrayLike, config: Lengths) -> tuple[Indices, NDArray[np.bool_]]:
    """Return chunks of the long memory at T as published training samples them; shapes as `long_indices`.

    The slots are spread evenly over what exists of the range, so a short past fills them all with repeats, which
    no window at test time does. Every slot left of the last one that holds chunk 0 is hidden. On an anchored grid they
    are spread over the whole range, what is before the video being chunk 0 (TeSTra's code): nothing is repeated.
    """
    if not config.n_long:
        return long_indices(T, config)
    start = work_start(T, config)  # (...)
    oldest, newest = start - config.long_length, start - 1
    if config.grid != "anchored":
        oldest = np.maximum(oldest, 0)
    # np.linspace multiplies in another order where one range of several is empty: others are then a chunk off
    step = (newest - oldest) / max(config.n_long - 1, 1)  # (...)
    spread = np.arange(config.n_long) * step[..., None] + oldest[..., None]  # (..., n_long)
    if config.n_long > 1:
        spread[..., -1] = newest
    indices = np.maximum(spread.astype(np.int64), 0)
    last_zero = config.n_long - 1 - (indices[..., ::-1] == 0).argmax(axis=-1)
    first = np.where((indices == 0).any(axis=-1), last_zero, 0)
    mask = np.arange(config.n_long) >= first[..., None]
    return np.where(mask, indices, 0), mask


def older_ends(T: ArrayLike, config: Lengths) -> Indices:
    """Return how many chunks are older than both memories at T (int or (B,)): those are chunks 0 to that, exclusive."""
    return np.maximum(work_start(T, config) - config.long_length, 0)


def long_distances(T: ArrayLike, config: Lengths, stretched: bool = False) -> Indices:
    """Return chunks from each long slot to the newest work slot, shape of `long_indices`; 0 in hidden slots.

    The newest work slot belongs to chunk T, or to chunk `work_length - 1` while the work memory is filling:
    chunk t then already sits at slot t, where it will be when the window is full. A work slot i is therefore
    always `work_length - 1 - i` away, and the whole range is 0 to `work_length + long_length - 1`.
    """
    start = work_start(T, config)[..., None]  # (..., 1)
    indices, mask = stretched_indices(T, config) if stretched else long_indices(T, config)
    return np.where(mask, start + config.work_length - 1 - indices, 0)


def work_indices(T: ArrayLike, config: Lengths) -> tuple[Indices, NDArray[np.bool_]]:
    """Return chunks of the work memory at T, oldest first, with a fixed shape.

    T is an int or an array (B,); indices (work_length,) or (B, work_length), 0 in slots not present yet, and a mask,
    True = present. Absent slots come last, so the causal mask already keeps them from every present one.
    """
    indices = work_start(T, config)[..., None] + np.arange(config.work_length, dtype=np.int64)
    mask = indices <= np.asarray(T)[..., None]
    return np.where(mask, indices, 0), mask


def context_indices(T: ArrayLike, config: Lengths) -> Indices:
    """Return chunks of the context before the work memory at T, oldest first: (context,) or (B, context).

    What is before the video is chunk 0, which is visible (published code of CMeRT).
    """
    return np.maximum(work_start(T, config)[..., None] + np.arange(-config.context, 0, dtype=np.int64), 0)


def window_ends(n_chunks: int, offset: int, config: WindowConfig, tails: bool = True) -> Indices:
    """Return the ends T of the training windows of one video: back to back, the first starting at chunk `offset`.

    With `tails` the chunks left over at the end get a window of their own that overlaps the one before, and a video
    shorter than a window gets one that is not full, so that every chunk from `offset` on is supervised. The published
    loader drops both, and the window that ends with the video too: the last chunk is in none.
    """
    if n_chunks <= 0:
        return np.zeros(0, dtype=np.int64)
    width, (tile, _, following) = config.work_length, config.tiling
    if not tails:
        return np.arange(offset + width - 1, n_chunks - 1 - following, tile, dtype=np.int64)
    if n_chunks <= width:
        return np.array([n_chunks - 1], dtype=np.int64)
    ends = np.arange(min(offset, n_chunks - width) + width - 1, n_chunks, tile, dtype=np.int64)
    if ends[-1] != n_chunks - 1:
        ends = np.append(ends, n_chunks - 1)
    return ends

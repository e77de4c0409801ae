"""Which chunks a window sees, against the definition written out chunk by chunk and against published code."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pytest

from lstr.kinds import configure
from lstr.windows import indices as memory

SMALL = dict(d_model=8, n_heads=2, work_length=4, long_length=12)


def defined(T, config):
    """Long memory at T by the words of the definition."""
    start = max(0, T - config.work_length + 1)
    if start == 0:
        return [0]
    if config.grid == "anchored":
        back = list(range(start - config.long_stride, start - config.long_length - 1, -config.long_stride))[::-1]
        inside = [chunk for chunk in back if chunk >= 0]
        return inside if back[0] >= 0 or 0 in inside else [0, *inside]
    seen = range(max(0, start - config.long_length), start)
    if config.grid == "sliding":
        return list(seen[:: config.long_stride])
    return [chunk for chunk in seen if chunk % config.long_stride == 0]


@pytest.mark.parametrize("grid", ["fixed", "sliding", "anchored"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_long_memory_is_the_definition(grid, stride):
    config = configure(grid=grid, long_stride=stride, **SMALL)
    for T in range(60):
        indices, mask = memory.long_indices(T, config)
        assert indices.shape == mask.shape == (config.n_long,)
        assert indices[mask].tolist() == defined(T, config), T


def published_training_sample(start, config):
    """The long memory of a training sample whose work memory starts at `start`, as published."""
    spread = np.linspace(max(0, start - config.long_length), start - 1, config.n_long)
    indices = np.sort(spread).astype(np.int32)
    hidden = np.zeros(config.n_long, dtype=bool)
    last_zero = bisect_right(indices.tolist(), 0) - 1
    if last_zero > 0:
        hidden[:last_zero] = True
    return indices.clip(0), ~hidden


@pytest.mark.parametrize(
    "config", [configure(grid="sliding"), configure(long_stride=4, **SMALL)], ids=["published", "small"]
)
def test_stretched_memory_is_that_of_published_training(config):
    starts = np.unique(np.concatenate([np.arange(40), config.long_length + np.arange(-3, 4), [5000]]))
    indices, mask = memory.stretched_indices(starts + config.work_length - 1, config)
    for start, ours, visible in zip(starts, indices, mask, strict=True):
        theirs, seen = published_training_sample(int(start), config)
        assert (visible == seen).all() and (ours[visible] == theirs[visible]).all(), start


@pytest.mark.parametrize("changes", [{"long_length": 0}, {"kind": "rnn"}])
def test_stretched_memory_of_a_model_without_one(changes):
    indices, mask = memory.stretched_indices(np.arange(9), configure(**{**SMALL, **changes}))
    assert indices.shape == mask.shape == (9, 0)


@pytest.mark.parametrize("stretched", [False, True])
@pytest.mark.parametrize("grid", ["fixed", "sliding"])
def test_distances_are_to_the_newest_chunk_and_stay_in_the_table(grid, stretched):
    config = configure(grid=grid, long_stride=4, **SMALL)
    for T in range(60):
        indices, mask = (memory.stretched_indices if stretched else memory.long_indices)(T, config)
        distances = memory.long_distances(T, config, stretched)
        assert (distances[~mask] == 0).all()
        assert (distances[mask] == max(T, config.work_length - 1) - indices[mask]).all()
        assert 0 <= distances.min() and distances.max() < config.work_length + config.long_length


def test_training_windows_supervise_every_chunk_and_without_tails_those_of_the_published_loader():
    config = configure(long_stride=4, **SMALL)
    W = config.work_length
    assert len(memory.window_ends(0, 0, config)) == 0
    for n_chunks in range(1, 30):
        for offset in range(W):
            ends = memory.window_ends(n_chunks, offset, config)
            assert (np.diff(ends) > 0).all() and ends[-1] == n_chunks - 1
            seen = set()
            for T in ends:
                indices, mask = memory.work_indices(int(T), config)
                seen |= set(indices[mask].tolist())
            assert seen == set(range(min(offset, max(n_chunks - W, 0)), n_chunks))
            firsts = range(offset, n_chunks, W)
            after = range(offset + W, n_chunks, W)  # never the video's end
            published = memory.window_ends(n_chunks, offset, config, tails=False)
            assert published.tolist() == [first + W - 1 for first, _ in zip(firsts, after, strict=False)]

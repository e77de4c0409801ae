"""Which chunks a window sees, against the definition written out chunk by chunk."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import pytest

from lstr.errors import LstrError
from lstr.kinds import configure
from lstr.windows import indices as memory

SMALL = dict(d_model=8, n_heads=2, work_length=4, long_length=12)


def visible(T, config):
    indices, mask = memory.long_indices(T, config)
    assert indices.shape == mask.shape == (config.n_long,)
    return indices[mask].tolist()


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
        assert visible(T, config) == defined(T, config), T


def test_counts_of_the_published_loader():
    """Visible slots of the published test loader by first work chunk, as measured on it."""
    config = configure(grid="sliding")
    counts = {start: len(visible(start + 31, config)) for start in (0, 5, 40, 400, 2048, 5000)}
    assert counts == {0: 1, 5: 2, 40: 10, 400: 100, 2048: 512, 5000: 512}


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


def test_counts_of_the_published_training_loader():
    """Visible slots by first work chunk, as measured on it: many more than the test loader shows of a short past."""
    config = configure(grid="sliding")
    counts = {
        start: int(memory.stretched_indices(start + 31, config)[1].sum()) for start in (0, 5, 40, 400, 2048, 5000)
    }
    assert counts == {0: 1, 5: 385, 40: 499, 400: 511, 2048: 512, 5000: 512}


@pytest.mark.parametrize("changes", [{"long_length": 0}, {"kind": "rnn"}])
def test_stretched_memory_of_a_model_without_one(changes):
    """The published way to train is a setting of its own, so baselines without a long memory meet it too."""
    indices, mask = memory.stretched_indices(np.arange(9), configure(**{**SMALL, **changes}))
    assert indices.shape == mask.shape == (9, 0)


def test_older_chunks_are_those_before_both_memories():
    config = configure(long_stride=4, **SMALL)
    ends = np.arange(40)
    expected = [len([chunk for chunk in range(T + 1) if chunk < T - 3 - 12]) for T in ends]
    assert expected[15:18] == [0, 1, 2] and memory.older_ends(ends, config).tolist() == expected
    assert memory.older_ends(20, config) == expected[20]


def present(T, config) -> list[int]:
    indices, mask = memory.work_indices(int(T), config)
    return indices[mask].tolist()


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


@pytest.mark.parametrize("grid", ["sliding", "anchored"])
def test_stretched_slots_are_those_of_each_window_alone(grid):
    """np.linspace over many windows was, with an empty range among them, a chunk off in some."""
    config = configure(grid=grid)
    ends = np.arange(0, 2300)
    indices, _ = memory.stretched_indices(ends, config)
    for T, row in zip(ends, indices, strict=True):
        start = max(0, T - 31)
        oldest = start - 2048 if grid == "anchored" else max(0, start - 2048)
        alone = np.linspace(oldest, start - 1, 512).astype(np.int64).clip(0)  # as the published loader takes them
        np.testing.assert_array_equal(row, alone)


def test_training_windows_supervise_every_chunk():
    config = configure(long_stride=4, **SMALL)
    for n_chunks in range(1, 30):
        for offset in range(config.work_length):
            ends = memory.window_ends(n_chunks, offset, config)
            assert (np.diff(ends) > 0).all() and ends[-1] == n_chunks - 1
            first = min(offset, max(n_chunks - config.work_length, 0))
            seen = {chunk for T in ends for chunk in present(T, config)}
            assert seen == set(range(first, n_chunks))
    assert len(memory.window_ends(0, 0, config)) == 0


def test_windows_without_tails_are_those_of_the_published_loader():
    config = configure(long_stride=4, **SMALL)
    for n_chunks in range(30):
        for offset in range(config.work_length):
            firsts = range(offset, n_chunks, config.work_length)
            after = range(offset + config.work_length, n_chunks, config.work_length)  # never the video's end
            ends = memory.window_ends(n_chunks, offset, config, tails=False)
            assert ends.tolist() == [first + config.work_length - 1 for first, _ in zip(firsts, after, strict=False)]


def test_a_negative_chunk_is_refused():
    with pytest.raises(LstrError, match="-1"):
        memory.long_indices(-1, configure())

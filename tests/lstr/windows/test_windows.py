"""Windows as every model takes them: which chunks they hold, alone and in a batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lstr.errors import LstrError
from lstr.kinds import configure
from lstr.windows import indices as memory
from lstr.windows.windows import gather, join
from tests.support.tiny_models import TINY, tiny, unsettled, video

W, L = 6, 16


def config_of(**changes):
    return configure(**{**TINY, **changes})


def chunks_in(rows, mask):
    """Chunks that a mask (N,) shows of rows (N, D), in which chunk t is t + 1 in every dimension."""
    assert (rows == rows[:, :1]).all()
    return (rows[mask, 0].long() - 1).tolist()


@pytest.mark.parametrize("stretched", [False, True])
@pytest.mark.parametrize("grid", ["fixed", "sliding"])
def test_windows_hold_the_chunks_that_the_memory_names(grid, stretched):
    config = config_of(grid=grid, gru=True, positions="distance")
    ends = np.arange(3 * L)
    numbered = np.repeat(np.arange(1, 3 * L + 1, dtype=np.float32)[:, None], 8, axis=1)
    windows = gather(numbered, ends, config, stretched)
    long, seen = (memory.stretched_indices if stretched else memory.long_indices)(ends, config)
    K = 3 * L - W - L
    shapes = {name: tuple(tensor.shape[1:]) for name, tensor in vars(windows).items()}
    assert shapes == {
        "long": (4, 8),
        "long_mask": (4,),
        "work": (W, 8),
        "work_mask": (W,),
        "distances": (4,),
        "older": (K, 8),
        "older_count": (),
        "context": (0, 8),
    }
    assert len(windows) == 48 and windows.long.dtype == windows.work.dtype == windows.older.dtype == torch.float32
    assert torch.equal(windows.distances, torch.from_numpy(memory.long_distances(ends, config, stretched)))
    for T in ends:
        assert chunks_in(windows.long[T], windows.long_mask[T]) == long[T][seen[T]].tolist()
        assert chunks_in(windows.work[T], windows.work_mask[T]) == list(range(max(0, T - W + 1), T + 1))
        present = torch.arange(K) < windows.older_count[T]
        assert chunks_in(windows.older[T], present) == list(range(max(0, T - W + 1 - L)))
    assert (windows.work[~windows.work_mask] == 0).all()


def test_windows_of_several_videos_as_one_batch():
    """They may have older chunks in different numbers, and say of each window what it says alone."""
    model = unsettled(tiny(gru=True))
    parts = [gather(video(n, n), ends, model.config) for n, ends in ((30, [29]), (60, [3, 59]), (10, [9]), (45, [44]))]
    joined = join(parts)
    assert len(joined) == 5 and joined.older_count.tolist() == [8, 0, 38, 0, 23]
    with torch.no_grad():
        alone = torch.cat([model(part) for part in parts])
        torch.testing.assert_close(model(joined), alone, atol=1e-5, rtol=0)


def test_windows_read_no_later_chunk_and_change_no_feature():
    config, features = config_of(gru=True), video(60)
    kept = features.clone()
    for T in (0, 3, 5, 6, 30):
        for stretched in (False, True):
            whole = gather(features, [T], config, stretched)
            cut = gather(features[: T + 1].numpy(), [T], config, stretched)
            assert all(torch.equal(value, vars(cut)[name]) for name, value in vars(whole).items())
    assert torch.equal(features, kept)


@pytest.mark.parametrize("ends", [[20], [-1], [3, 25]])
def test_a_window_must_end_inside_the_video(ends):
    with pytest.raises(LstrError) as caught:
        gather(video(20), ends, config_of())
    assert caught.value.hint


def test_a_gru_is_trained_from_the_newest_older_chunks_and_scores_from_the_first(monkeypatch):
    """The one place where windows leave the definition, on purpose, and only beyond that many chunks."""
    monkeypatch.setattr("lstr.windows.windows.OLDER_CHUNKS", 4)
    model = unsettled(tiny(gru=True))
    features, ends = video(W + L + 5), np.arange(W + L - 1, W + L + 5)
    windows = gather(features, ends, model.config)
    assert windows.older_count.tolist() == [0, 1, 2, 3, 4, 4]
    with torch.no_grad():
        gaps = (model(windows)[:, -1] - model.video_logits(features, 7)[ends, 0]).abs().amax(dim=1)
    assert gaps[:5].max() < 1e-5 and gaps[5] > 1e-4

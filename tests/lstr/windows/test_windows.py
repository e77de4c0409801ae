"""Windows: their chunks, by definition and as published; their loss; plans of streams as values."""

from bisect import bisect_right

import msgspec
import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lstr.errors import ConfigError, LstrError
from lstr.kinds import configure
from lstr.windows import indices as memory
from lstr.windows.plans import Form, Joined, States, check_known
from lstr.windows.windows import Outputs, Part, Supervision, gather, join, loss_of, multi_hot_cross_entropy, totals_of
from tests.support.tiny_models import TINY, perturb, tiny, video

W, L = 6, 16


def test_windows_of_several_videos_form_a_batch():
    model = perturb(tiny(gru=True))
    parts = [gather(video(n, n), ends, model.config) for n, ends in ((30, [29]), (60, [3, 59]), (10, [9]), (45, [44]))]
    joined = join(parts)
    assert len(joined) == 5 and joined.older_count.tolist() == [8, 0, 38, 0, 23]
    with torch.no_grad():
        torch.testing.assert_close(model(joined), torch.cat([model(part) for part in parts]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("ends", [[20], [-1], [3, 25]])
def test_a_window_must_end_inside_the_video(ends):
    with pytest.raises(LstrError):
        gather(video(20), ends, configure(**TINY))


def test_a_window_of_a_gru_has_a_limited_number_of_older_chunks(monkeypatch):
    """Only with more older chunks than that a window differs from the whole video."""
    monkeypatch.setattr("lstr.windows.windows.OLDER_CHUNKS", 4)
    model = perturb(tiny(gru=True))
    features, ends = video(W + L + 5), np.arange(W + L - 1, W + L + 5)
    windows = gather(features, ends, model.config)
    assert windows.older_count.tolist() == [0, 1, 2, 3, 4, 4]
    with torch.no_grad():
        gaps = (model(windows)[:, -1] - model.video_logits(features, 7)[ends, 0]).abs().amax(dim=1)
    assert gaps[:5].max() < 1e-5 and gaps[5] > 1e-4


SMALL = dict(d_model=8, n_heads=2, work_length=4, long_length=12)


def long_chunks(T, config):
    """The long memory at T by definition."""
    start = max(0, T - config.work_length + 1)
    if start == 0:
        return [0]
    if config.grid == "anchored":
        back = list(range(start - config.long_stride, start - config.long_length - 1, -config.long_stride))[::-1]
        inside = [chunk for chunk in back if chunk >= 0]
        return inside if back[0] >= 0 or 0 in inside else [0, *inside]
    past = range(max(0, start - config.long_length), start)
    if config.grid == "sliding":
        return list(past[:: config.long_stride])
    return [chunk for chunk in past if chunk % config.long_stride == 0]


@pytest.mark.parametrize("grid", ["fixed", "sliding", "anchored"])
@pytest.mark.parametrize("stride", [1, 2, 3, 4])
def test_the_long_memory_equals_its_definition(grid, stride):
    config = configure(grid=grid, long_stride=stride, **SMALL)
    for T in range(60):
        indices, mask = memory.long_indices(T, config)
        assert indices.shape == mask.shape == (config.n_long,)
        assert indices[mask].tolist() == long_chunks(T, config), T


def published_training_sample(start, config):
    """The published long memory of a training sample with a work memory from `start` on."""
    spread = np.linspace(max(0, start - config.long_length), start - 1, config.n_long)
    indices = np.sort(spread).astype(np.int32)
    last_zero = bisect_right(indices.tolist(), 0) - 1
    return indices.clip(0), np.arange(config.n_long) >= last_zero


@pytest.mark.parametrize(
    "config", [configure(grid="sliding"), configure(long_stride=4, **SMALL)], ids=["published", "small"]
)
def test_the_stretched_memory_equals_the_published_training_memory(config):
    starts = np.unique(np.concatenate([np.arange(40), config.long_length + np.arange(-3, 4), [5000]]))
    windows = memory.stretched_indices(starts + config.work_length - 1, config)
    for start, ours, visible in zip(starts, *windows, strict=True):
        theirs, mask = published_training_sample(int(start), config)
        assert (visible == mask).all() and (ours[visible] == theirs[visible]).all(), start
    for changes in ({"long_length": 0}, {"kind": "rnn"}):
        assert memory.stretched_indices(np.arange(9), configure(**SMALL | changes))[1].shape == (9, 0)


def test_training_windows_cover_every_chunk_or_equal_the_published_ones_without_tails():
    config = configure(long_stride=4, **SMALL)
    W = config.work_length
    assert len(memory.window_ends(0, 0, config)) == 0
    for n_chunks in range(1, 30):
        for offset in range(W):
            ends = memory.window_ends(n_chunks, offset, config)
            assert (np.diff(ends) > 0).all() and ends[-1] == n_chunks - 1
            indices, mask = memory.work_indices(ends, config)
            assert set(indices[mask].tolist()) == set(range(min(offset, max(n_chunks - W, 0)), n_chunks))
            firsts = range(offset, n_chunks, W)
            after = range(offset + W, n_chunks, W)  # never the video's end
            published = memory.window_ends(n_chunks, offset, config, tails=False)
            assert published.tolist() == [first + W - 1 for first, _ in zip(firsts, after, strict=False)]


BANK = {"form": "bank", "work_length": 4, "long_length": 8, "long_stride": 2, "grid": "fixed"}


@pytest.mark.parametrize(
    "entry",
    [
        *(None, {}, {"form": "pickle"}, {"form": "ring"}),
        *({"form": "ring", "work_length": length} for length in ("8", 0, 2**40)),
        *({**BANK, "long_length": 7}, {**BANK, "grid": "round"}),
        *({"form": "joined", "members": m} for m in ([], [{"form": "joined", "members": [{"form": "states"}]}])),
    ],
)
def test_invalid_plans_of_a_file_are_refused(entry):
    with pytest.raises((ValueError, RecursionError)):
        msgspec.convert(entry, Form | Joined)


def test_a_planner_that_files_cannot_hold_is_refused_by_name():
    class Odd(States):
        pass

    with pytest.raises(ConfigError, match="Odd"):
        check_known(Odd())


def test_ambiguous_is_in_no_softmax_and_its_chunks_are_in_no_mean():
    logits = torch.randn(6, 4, requires_grad=True)
    targets = torch.eye(4)[[0, 1, 2, 3, 3, 1]]
    targets[3, 0] = 1
    with pytest.raises(LstrError):
        multi_hot_cross_entropy(logits, targets[:, :3])
    loss = multi_hot_cross_entropy(logits, targets, ignore=3)
    rows = [0, 1, 2, 5]
    torch.testing.assert_close(loss, F.cross_entropy(logits[rows, :3], torch.tensor([0, 1, 2, 1])))
    loss.backward()
    assert logits.grad[:, 3].abs().max() == 0 and logits.grad[3:5].abs().max() == 0
    assert logits.grad[rows, :3].abs().min() > 0


@pytest.mark.parametrize("ignore, valid", [(1, None), (None, torch.zeros(3, dtype=torch.bool))])
def test_the_loss_of_no_chunk_is_zero_and_not_nan(ignore, valid):
    logits = torch.randn(3, 2, requires_grad=True)
    loss = multi_hot_cross_entropy(logits, torch.tensor([[0, 1]] * 3), ignore=ignore, valid=valid)
    loss.backward()
    assert loss.item() == 0 and logits.grad.abs().max() == 0


LOGITS, TARGETS = torch.randn(2, 3, 4), torch.eye(4)[torch.tensor([[0, 1, 2], [3, 0, 1]])]
COUNTS = torch.tensor([[True, True, True], [True, False, False]])
SLOTS, AHEAD = np.array([0, 1, -1]), np.array([0, 0, 1])


@pytest.mark.parametrize(
    "parts, expected, totals",
    [
        ((), [([0, 1], 1), ([2], 1)], [3.0, 1.0]),  # detection plus anticipation
        ((Part(np.arange(3)),), [([0, 1, 2], 1)], [4.0]),  # TeSTra's
        ((Part(np.array([0, 2])), Part(np.array([1]), 0.25)), [([0, 2], 1), ([1], 0.25)], [3.0, 1.0]),
    ],
)
def test_the_loss_is_the_weighted_sum_of_the_means_of_parts(parts, expected, totals):
    outputs = Outputs(SLOTS, AHEAD, parts)
    sums = [w * multi_hot_cross_entropy(LOGITS[:, r], TARGETS[:, r], None, COUNTS[:, r]) for r, w in expected]
    assert torch.allclose(loss_of(LOGITS, outputs, Supervision(TARGETS, COUNTS)), sum(sums))
    assert totals_of(TARGETS, COUNTS, outputs, None) == totals

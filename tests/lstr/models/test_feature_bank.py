"""LFB: a bank that holds what the definition says and nothing else, and a stream that says the same."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.kinds import configure
from lstr.models.windowed.feature_bank import LFB
from lstr.windows import indices as memory
from lstr.windows.windows import gather, join
from tests.support.playlists import defined, playlists_of, streamed
from tests.support.tiny_models import video

W, L = 6, 16
TINY = dict(kind="lfb", rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, work_length=W, long_length=L)
each_grid = pytest.mark.parametrize("grid", ["fixed", "sliding", "anchored"])
each_stride = pytest.mark.parametrize("stride", [1, 4])


def tiny(seed=0, n_classes=5, **changes):
    """A small model whose attention is sharp, so that it matters which chunks are in the bank."""
    torch.manual_seed(seed)
    model = LFB(configure(**{**TINY, **changes}), n_classes).eval()
    with torch.no_grad():
        for block in model.blocks:
            block.query.weight.mul_(4)
            block.key.weight.mul_(4)
    return model


@torch.no_grad()
def newest(model, features, ends):
    """Logits (B, C) of the newest work slot of each window."""
    windows = gather(features, ends, model.config)
    return model(windows)[torch.arange(len(ends)), windows.work_mask.sum(dim=1) - 1]


@torch.no_grad()
def written_out(model, features, T):
    """Logits (C,) at chunk T from the equations, with the bank as a list of chunks."""
    long, seen = memory.long_indices(T, model.config)
    bank = [*long[seen], *range(max(T - model.config.work_length + 1, 0), T + 1)]
    tokens = [model.feature_head_long(features[chunk]) for chunk in bank]
    short = found = model.feature_head_work(features[T])
    for block in model.blocks:
        weights = [torch.exp(block.query(found) @ block.key(token) / 4).item() for token in tokens]  # 4 is sqrt(16)
        mean = sum(w * block.value(token) for w, token in zip(weights, tokens, strict=True)) / sum(weights)
        found = found + block.out(F.relu(block.norm(mean)))
    return model.classifier(torch.cat([short, found]))


@pytest.mark.parametrize("l_dec", [1, 3])
@each_stride
@each_grid
def test_equations(grid, stride, l_dec):
    model = tiny(grid=grid, long_stride=stride, l_dec=l_dec)
    features = video(2 * (W + L))
    logits = model.video_logits(features, 5).detach()
    assert logits.shape == (len(features), 1, 5)
    for T in (0, 1, W - 1, W, W + 1, L, L + W, 2 * (W + L) - 1):
        torch.testing.assert_close(logits[T, 0], written_out(model, features, T), atol=1e-5, rtol=0)


def test_first_chunks_are_in_the_bank_twice():
    """The newest long slot holds chunk 0 while nothing precedes the work memory, so the mean leans to chunk 0."""
    model = tiny(l_dec=1, long_stride=4)
    alone = tiny(l_dec=1, long_length=0)
    features = video(W)
    with torch.no_grad():
        a, b = model.video_logits(features, 9)[:, 0], alone.video_logits(features, 9)[:, 0]
        twice = alone.video_logits(torch.cat([features[:1], features[:2]]), 9)[-1, 0]
    torch.testing.assert_close(a[0], b[0])  # two equal chunks weigh as one
    assert not torch.isclose(a[1:], b[1:]).all(dim=-1).any()
    torch.testing.assert_close(a[1], twice)


@each_stride
@each_grid
def test_newest_output_of_every_window(grid, stride):
    model = tiny(grid=grid, long_stride=stride)
    features = video(2 * (W + L))
    logits = newest(model, features, np.arange(len(features)))
    with torch.no_grad():
        expected = model.video_logits(features, 7)[:, 0]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_every_slot_of_the_first_window():
    """The long memory is chunk 0 until the work memory moves on, so older slots are the newest of their time."""
    model = tiny()
    features = video(W)
    with torch.no_grad():
        logits, expected = model(gather(features, [W - 1], model.config)), model.video_logits(features, 1)
    torch.testing.assert_close(logits[0], expected[:, 0])
    outputs = model.outputs()
    assert list(outputs.slots) == list(range(W)) and list(outputs.ahead) == [0] * W


@each_stride
@each_grid
def test_stream_equals_batch(grid, stride):
    """Streams of all ages in one batch, each beginning anew in the middle, over what earlier videos left behind."""
    model = tiny(grid=grid, long_stride=stride)
    playlists = playlists_of([1, 2, W - 1, W, W + 1, L - 1, L, L + 1, 3 * L], 3 * L + 1)
    expected = defined(model, playlists)
    assert expected.diff(dim=1).abs().amax(dim=(2, 3)).min() > 1e-4  # scores that move can be wrong
    torch.testing.assert_close(streamed(model, playlists), expected, atol=1e-5, rtol=0)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    total=st.integers(1, 30),
    cuts=st.lists(st.integers(0, 30), min_size=1, max_size=4),
    work_length=st.integers(1, 7),
    n_long=st.integers(0, 4),
    stride=st.integers(1, 5),
    grid=st.sampled_from(["fixed", "sliding", "anchored"]),
    l_dec=st.integers(1, 3),
)
def test_stream_equals_batch_for_any_lengths(seed, total, cuts, work_length, n_long, stride, grid, l_dec):
    model = tiny(seed, work_length=work_length, long_length=n_long * stride, long_stride=stride, grid=grid, l_dec=l_dec)
    playlists = playlists_of([min(cut, total) for cut in cuts], total)
    torch.testing.assert_close(streamed(model, playlists), defined(model, playlists), atol=1e-5, rtol=0)


@pytest.mark.parametrize("long_length", [0, L])
def test_the_future_never_changes_the_past(long_length):
    model = tiny(long_length=long_length)
    features = video(3 * L)
    other = torch.cat([features[:30], video(3 * L - 30, 1)])
    with torch.no_grad():
        a, b = model.video_logits(features, 7), model.video_logits(other, 7)
        assert torch.equal(a[:30], b[:30]) and not torch.isclose(a[30:], b[30:]).all(dim=-1).any()
        a, b = (model(gather(x, [32], model.config))[0] for x in (features, other))  # slot 3 is chunk 30
    assert torch.equal(a[:3], b[:3]) and not torch.isclose(a[3:], b[3:]).all(dim=-1).any()


@each_grid
def test_chunks_that_no_grid_shows_do_not_matter(grid):
    """At T the bank reaches back W + L chunks and skips those between the grid's."""
    model = tiny(grid=grid)
    features = video(3 * L)
    T = 3 * L - 1
    long, _ = memory.long_indices(T, model.config)
    shown = np.concatenate([long, np.arange(T - W + 1, T + 1)])
    hidden = np.setdiff1d(np.arange(T + 1), shown)
    other = features.clone()
    other[hidden] = 100.0
    seen = features.clone()
    seen[long[0]] = 100.0
    with torch.no_grad():
        a, b, c = (model.video_logits(x, 64)[T] for x in (features, other, seen))
    assert len(hidden) > L and torch.equal(a, b) and not torch.isclose(a, c).all()


def test_slots_that_the_masks_hide_do_not_matter():
    model = tiny(long_stride=4)
    ends = np.array([0, 2, W, W + 3, 3 * L - 1])
    windows = gather(video(3 * L), ends, model.config)
    other = windows.map(torch.clone)
    other.long[~windows.long_mask] = 100.0
    other.work[~windows.work_mask] = 100.0
    assert not torch.equal(windows.long, other.long) and not torch.equal(windows.work, other.work)
    with torch.no_grad():
        a, b = model(windows), model(other)
    assert torch.equal(a[windows.work_mask], b[windows.work_mask])


@each_stride
@each_grid
def test_order_in_the_long_memory_does_not_matter(grid, stride):
    """The bank is a set: it has no positions."""
    model = tiny(grid=grid, long_stride=stride)
    windows = gather(video(3 * L), [3 * L - 1], model.config)
    other = windows.map(torch.clone)
    other.long.copy_(windows.long.flip(1))
    with torch.no_grad():
        torch.testing.assert_close(model(windows), model(other))


def windows_and_targets(videos, labels, ends, config):
    """Windows of several videos, none of them partly empty, and their targets (B, W)."""
    chunks = ends[:, None] + np.arange(1 - config.work_length, 1)
    return join([gather(v, ends, config) for v in videos]), torch.cat([truth[chunks] for truth in labels])


def train(model, windows, targets, steps, rate=0.01):
    """Loss before each step. Targets below 0 do not count."""
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    losses = []
    for _ in range(steps):
        loss = F.cross_entropy(model(windows).flatten(0, 1), targets.flatten(), ignore_index=-1)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    return losses


def test_learns_what_only_the_long_memory_tells():
    """One chunk of W + L shows the class of all that follow, until the next one does; the rest are blank."""
    model = tiny(n_classes=2, rgb_dim=1, flow_dim=0, dropout=0.0, long_stride=1)
    events = torch.randint(2, (2, 8), generator=torch.Generator().manual_seed(0))
    videos, labels = [], []
    for classes in events:
        features = torch.zeros(8, W + L, 1)
        features[:, 0, 0] = 2.0 * classes - 1
        videos.append(features.flatten(0, 1))
        labels.append(classes.repeat_interleave(W + L))
    assert all(0 < truth.float().mean() < 1 for truth in labels)
    windows, targets = windows_and_targets(
        videos[:1], labels[:1], np.arange(W + L - 1, len(videos[0]), 3), model.config
    )
    targets[:, :-1] = -1  # the bank of an older slot lacks its oldest chunks
    losses = train(model, windows, targets, steps=60)
    assert losses[-1] < 0.05 < 0.5 < losses[0]
    with torch.no_grad():
        decided = model.video_logits(videos[1], 50)[:, 0].argmax(dim=-1)
    assert torch.equal(decided, labels[1])

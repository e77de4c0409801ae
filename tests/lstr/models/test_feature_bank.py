"""LFB: a bank that holds what the definition says and nothing else, and a stream that says the same."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lstr.kinds import configure
from lstr.models.feature_bank import LFB
from lstr.windows import indices as memory
from lstr.windows.windows import gather
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


@each_stride
@each_grid
def test_stream_equals_batch(grid, stride):
    """Streams of all ages in one batch, each beginning anew in the middle, over what earlier videos left behind."""
    model = tiny(grid=grid, long_stride=stride)
    playlists = playlists_of([1, 2, W - 1, W, W + 1, L - 1, L, L + 1, 3 * L], 3 * L + 1)
    expected = defined(model, playlists)
    assert expected.diff(dim=1).abs().amax(dim=(2, 3)).min() > 1e-4  # scores that move can be wrong
    torch.testing.assert_close(streamed(model, playlists), expected, atol=1e-5, rtol=0)

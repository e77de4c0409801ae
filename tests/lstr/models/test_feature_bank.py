"""LFB: a bank that holds what the definition says and nothing else."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from lstr.windows import indices as memory
from tests.support.tiny_models import tiny, video

W, L = 6, 16


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


@torch.no_grad()
@pytest.mark.parametrize("l_dec", [1, 3])
@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize("grid", ["fixed", "sliding", "anchored"])
def test_equations(grid, stride, l_dec):
    model = tiny(kind="lfb", grid=grid, long_stride=stride, l_dec=l_dec)
    for block in model.blocks:  # attention so sharp that it matters which chunks are in the bank
        block.query.weight.mul_(4)
        block.key.weight.mul_(4)
    features = video(2 * (W + L))
    logits = model.video_logits(features, 5)
    assert logits.shape == (len(features), 1, 5)
    for T in (0, 1, W - 1, W, W + 1, L, L + W, 2 * (W + L) - 1):
        torch.testing.assert_close(logits[T, 0], written_out(model, features, T), atol=1e-5, rtol=0)

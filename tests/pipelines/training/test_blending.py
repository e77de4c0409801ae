"""Samples that are changed and blended before they are learnt from, and what a step then compares with."""

import torch

from lstr.pipelines.training.recogniser import jittered, mixed


def test_contrast_and_brightness_change_each_sample_within_their_bounds():
    torch.manual_seed(0)
    images = torch.stack([torch.full((1, 3, 2, 2), 27.5), torch.full((1, 3, 2, 2), 227.5)] * 200)
    changed = jittered(images, 0.3, 20)
    contrast = (changed[1::2] - changed[::2])[:, 0, 0, 0, 0]  # of two samples, so of two contrasts and levels
    assert len(set(contrast.tolist())) > 100
    assert -22.51 <= changed.min() < -10 and 265 < changed.max() <= 277.51
    grey = jittered(torch.full((400, 1, 3, 2, 2), 127.5), 0.3, 20)[:, 0, 0, 0, 0] - 127.5
    assert -20 <= grey.min() < -15 and 15 < grey.max() <= 20
    assert jittered(images, 0.0, 0.0) is images


def test_a_blend_has_the_shares_that_it_says():
    torch.manual_seed(0)
    images = torch.arange(1.0, 7)[:, None, None, None, None].expand(6, 1, 3, 20, 30)  # each of one level
    blended, told = mixed(images, torch.eye(6), 0.4)
    torch.testing.assert_close(told.sum(1), torch.ones(6))
    torch.testing.assert_close(blended.mean((1, 2, 3, 4)), told @ torch.arange(1.0, 7))

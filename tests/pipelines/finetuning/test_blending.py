"""Samples that are changed and blended before they are learnt from, and what a step then compares with."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from lstr.pipelines.finetuning.blending import Blend, from_other_videos, jittered, shares_of
from lstr.pipelines.finetuning.config import FinetuneConfig


def images_of(n: int) -> torch.Tensor:
    """Each of one level, so that it is known where a pixel is from."""
    return torch.arange(1.0, n + 1)[:, None, None, None, None].expand(n, 1, 3, 20, 30)


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


@pytest.mark.parametrize("settings", [{"mixup": 0.4}, {"mixup": 0.0, "cutmix": 1.0}])
def test_a_blend_has_the_shares_that_it_says(settings):
    shares = torch.eye(6)
    for seed in range(20):
        torch.manual_seed(seed)
        images, told = Blend(FinetuneConfig(**settings))(images_of(6), shares, tuple("aabbcc"))
        torch.testing.assert_close(told.sum(1), torch.ones(6))
        torch.testing.assert_close(images.mean((1, 2, 3, 4)), told @ torch.arange(1.0, 7))
        if "cutmix" in settings:
            assert set(images.unique().tolist()) <= set(range(1, 7))
            for at, other in enumerate((told - torch.diag(told.diag())).argmax(1).tolist()):
                assert told[at, at] == 1 or at // 2 != other // 2, "pasted from the same video"


def test_both_blends_share_the_steps():
    blend, kinds = Blend(FinetuneConfig(mixup=1.0, cutmix=1.0)), set()
    for seed in range(20):
        torch.manual_seed(seed)
        images, _ = blend(images_of(4), torch.eye(4), tuple("abcd"))
        kinds.add(bool((images % 1).any()))
    assert kinds == {True, False}
    assert not Blend(FinetuneConfig(mixup=0.0))


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=12), st.randoms())
def test_a_partner_is_of_another_video_where_there_is_one(videos, random):
    order = random.sample(range(len(videos)), len(videos))
    for at, other in enumerate(from_other_videos(order, videos)):
        assert videos[at] != videos[other] or len(set(videos)) == 1


def test_smoothed_labels():
    torch.testing.assert_close(shares_of(torch.tensor([1]), 4, 0.2), torch.tensor([[0.05, 0.85, 0.05, 0.05]]))

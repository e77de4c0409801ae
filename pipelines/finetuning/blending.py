"""Samples of a step changed before they are learnt from: contrast and brightness, and blends of two samples.

Everything is drawn from torch's seed, so that a step draws again what it has drawn.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.distributions import Beta
from torch.nn import functional

from lstr.pipelines.finetuning.config import FinetuneConfig

MIDDLE = 127.5  # of the scale of bytes


def jittered(images: Tensor, contrast: float, brightness: float) -> Tensor:
    """Images (N, segments, C, H, W) uint8 with another contrast and brightness for each sample, as float32.

    Nothing is cut at 0 and 255. contrast, brightness: as in FinetuneConfig.
    """
    if not contrast and not brightness:
        return images
    factor, levels = (torch.rand(2, len(images)) * 2 - 1).to(images.device)
    factor, levels = ((x * most)[:, None, None, None, None] for x, most in ((factor, contrast), (levels, brightness)))
    return (images - MIDDLE) * (1 + factor) + MIDDLE + levels


class Blend:
    """Blends two samples of a step, by mixup or by CutMix, as a network's settings say."""

    def __init__(self, config: FinetuneConfig):
        parameters = {"mixup": config.mixup, "cutmix": config.cutmix}
        self._ways = {name: Beta(value, value) for name, value in parameters.items() if value}

    def __bool__(self) -> bool:
        """Whether it blends any."""
        return bool(self._ways)

    def __call__(self, images: Tensor, shares: Tensor, videos: Sequence[str]) -> tuple[Tensor, Tensor]:
        """Images (N, segments, C, H, W), and the shares (N, C) of their classes, blended; or as they are.

        videos: of the N samples; CutMix takes what it pastes from another one where the step has one.
        """
        if not self._ways:
            return images, shares
        way = list(self._ways)[int(torch.rand(()) < 0.5) if len(self._ways) > 1 else 0]
        share, order = self._ways[way].sample(), torch.randperm(len(images))
        if way == "mixup":
            images = share * images + (1 - share) * images[order]
            return images, share * shares + (1 - share) * shares[order]
        other = from_other_videos(order.tolist(), videos)
        (height, width), kept = images.shape[-2:], images.clone()
        y, x = (_stretch(size, float((1 - share).sqrt())) for size in (height, width))
        kept[..., y, x] = images[other][..., y, x]
        pasted = (y.stop - y.start) * (x.stop - x.start) / (height * width)
        return kept, (1 - pasted) * shares + pasted * shares[other]


def shares_of(labels: Tensor, n_classes: int, smoothing: float) -> Tensor:
    """The share (N, C) of each class in samples of one class each (N,), `smoothing` of it spread over all classes."""
    return (1 - smoothing) * functional.one_hot(labels, n_classes).float() + smoothing / n_classes


def from_other_videos(order: Sequence[int], videos: Sequence[str]) -> list[int]:
    """For each sample one of another video: the first from its own place in an order on; any, where all are of one."""
    turns = ([*order[at:], *order[:at]] for at in range(len(order)))
    return [next((o for o in turn if videos[o] != videos[at]), turn[0]) for at, turn in enumerate(turns)]


def _stretch(size: int, share: float) -> slice:
    """Part of a side, about a middle that is anywhere, cut at the ends."""
    middle, length = int(torch.randint(size, ())), round(size * share)
    return slice(max(0, middle - length // 2), min(size, middle - length // 2 + length))

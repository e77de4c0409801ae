"""A network that torch computes: scaled, averaged over space, and cropped where that is cheaper."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lstr.extractors.lanes import Lane
from lstr.extractors.networks.crops import View
from lstr.extractors.networks.fused import DTYPES, fuse, quantise
from lstr.extractors.networks.running_network import RunningNetwork
from lstr.extractors.recipe import INT8, NetworkRecipe


class PooledNetwork(nn.Module):
    """The network of a stream for inference in a precision, with the scale of its input and the mean over space."""

    def __init__(
        self,
        network: nn.Module,
        part: NetworkRecipe,
        precision: str,
        device: str,
        size: tuple[int, int] | None = None,
    ):
        """`size` is the height and width of all images, in pixels, where they are known."""
        super().__init__()
        fused = fuse(network, precision, device, part.fuses)
        for module in fused.modules():
            if size and hasattr(module, "settle"):
                cast(Any, module).settle(size)
        self.network = quantise(fused, part.ranges or {}) if precision == INT8 else fused
        self.dtype = DTYPES[precision]
        self.scale = Scale(part).to(device)

    def forward(self, images: Tensor) -> Tensor:
        """(N, H, W, C) uint8 → (N, D) float32."""
        return self.network(self.scale(images).to(self.dtype)).float().mean((2, 3))


class Scale(nn.Module):
    """Images as a network was trained on them; its numbers stay on the device, where each copy would wait."""

    mean: Tensor
    std: Tensor

    def __init__(self, part: NetworkRecipe):
        super().__init__()
        self.bgr = part.bgr
        self.divides = any(std != 1 for std in part.std)
        self.register_buffer("mean", torch.tensor(part.mean), persistent=False)
        self.register_buffer("std", torch.tensor(part.std), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """(N, H, W, C) uint8 → (N, C, H, W) float32 as published; the permuted view is channels-last already."""
        x = (images.flip(-1) if self.bgr else images).float() - self.mean
        if self.divides:
            x = x / self.std
        return x.permute(0, 3, 1, 2)


def scaled(images: Tensor, part: NetworkRecipe) -> Tensor:
    """What `Scale` makes of images, once."""
    return Scale(part).to(images.device)(images)


class TorchNetwork(RunningNetwork):
    """A RunningNetwork of torch, on any device.

    On a GPU it is captured for the numbers of images that `prepare` names, and crops there what
    `of_fitted` gives it: images would travel ten times.
    """

    runtime = "torch"

    def __init__(self, pooled: PooledNetwork, lane: Lane, shape: tuple[int, int, int]):
        """`shape` is that of an image, (H, W, C)."""
        self.pooled, self.lane, self.shape = pooled, lane, shape
        self._graphs: dict[int, tuple[Tensor, Callable[[], Tensor]]] = {}

    @torch.inference_mode()
    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork."""
        with self.lane.working():
            wait = self.lane.fetch(self._features(self.lane.send(images)))
        return wait()

    @torch.inference_mode()
    def of_fitted(self, chunks: Sequence[Sequence[NDArray[np.uint8]]], view: View) -> NDArray[np.float32]:
        """See RunningNetwork."""
        if not self.lane.captures:
            return super().of_fitted(chunks, view)
        trimmed = [[view.trimmed(image) for image in segments] for segments in chunks]
        with self.lane.working():
            seen = []
            for _, alike in groupby(trimmed, lambda segments: segments[0].shape):
                images = self.lane.send([image for segments in alike for image in segments])
                crops = crops_of(images, view).unflatten(0, (-1, len(trimmed[0])))  # (B, segments, crops, ...)
                seen.append(crops.transpose(1, 2).flatten(1, 2))  # of each crop all segments, one after the other
            wait = self.lane.fetch(self._features(torch.cat(seen).flatten(0, 1)))
        features = wait()
        return features.reshape(len(chunks), -1, features.shape[-1]).mean(1)

    def prepare(self, batches: Iterable[int]) -> None:
        """Capture the network for these numbers of images, where the device gains by it."""
        if not self.lane.captures:
            return
        with torch.inference_mode(), self.lane.working():
            for n in sorted(set(batches) - self._graphs.keys()):
                images = torch.zeros((n, *self.shape), dtype=torch.uint8, device=self.pooled.scale.mean.device)
                self._graphs[n] = images, self.lane.capture(partial(self.pooled, images))

    def _features(self, images: Tensor) -> Tensor:
        """By the smallest graph that they fit in, whose other images are of no interest."""
        n = len(images)
        size = min((size for size in self._graphs if size >= n), default=None)
        if size is None:
            return self.pooled(images)
        memory, replay = self._graphs[size]
        memory[:n] = images
        return replay()[:n]


def crops_of(images: Tensor, view: View) -> Tensor:
    """Trimmed images (B, H, W, C) uint8 on any device → (B, crops, *view.size, C), the bytes that `view.of` makes."""
    if view.crops == 1:
        return images[:, None]
    mirror = images.flip(2)
    if view.flow:
        mirror[..., ::2] = 255 - mirror[..., ::2]
    if view.crops == 2:
        return torch.stack([images, mirror], 1)
    (height, width), (down, across) = images.shape[1:3], view.size
    h, w = (height - down) // 4, (width - across) // 4
    crops = []
    for x, y in ((0, 0), (4 * w, 0), (0, 4 * h), (4 * w, 4 * h), (2 * w, 2 * h)):
        crops.append(images[:, y : y + down, x : x + across])
        crops.append(mirror[:, y : y + down, width - x - across : width - x])
    return torch.stack(crops, 1)

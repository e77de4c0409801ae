"""A network as every runtime has it: images of bytes in, features out, and nothing left to do before or after."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Protocol, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lstr.extractors.images.crops import View
from lstr.extractors.lanes import Lane
from lstr.extractors.networks.runtimes.fused import DTYPES, fuse
from lstr.extractors.networks.runtimes.quantised import quantise
from lstr.extractors.recipe import INT8, NetworkRecipe


class RunningNetwork(Protocol):
    """A network that is ready to compute, in as many threads as call it."""

    runtime: str

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(N, H, W, C) → (N, D), the maps averaged over space. A row does not depend on N beyond 1e-5."""

    def prepare(self, batches: Iterable[int]) -> None:
        """Make what depends on the number of images, now rather than at the first call with so many."""


class PooledNetwork(nn.Module):
    """The network of a stream for inference in a precision, with the scale of its input and the mean over space."""

    def __init__(self, network: nn.Module, part: NetworkRecipe, precision: str, device: str, side: int | None = None):
        """`side` is that of all images, in pixels, where it is known."""
        super().__init__()
        fused = fuse(network, precision, device, part.fuses)
        for module in fused.modules():
            if side and hasattr(module, "settle"):
                cast(Any, module).settle(side)
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
    """As `Scale`, once."""
    return Scale(part).to(images.device)(images)


class TorchNetwork:
    """A RunningNetwork of torch, on any device.

    On a GPU it is captured for the numbers of images that `prepare` names, and crops there what `of_fitted` gives it.
    """

    runtime = "torch"

    def __init__(self, pooled: PooledNetwork, lane: Lane, shape: tuple[int, int, int]):
        """`shape` is that of an image, (H, W, C)."""
        self.pooled, self.lane, self.shape = pooled, lane, shape
        self._graphs: dict[int, tuple[Tensor, Callable[[], Tensor]]] = {}

    @property
    def crops(self) -> bool:
        """Whether `of_fitted` is the way to give it images: where they would travel ten times."""
        return self.lane.captures

    @torch.inference_mode()
    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """As RunningNetwork."""
        with self.lane.working():
            wait = self.lane.fetch(self._features(self.lane.send(images)))
        return wait()

    @torch.inference_mode()
    def of_fitted(self, chunks: Sequence[Sequence[NDArray[np.uint8]]], view: View) -> NDArray[np.float32]:
        """Of each chunk the images (H, W, C) of its segments → (chunks, crops · segments, D), as of `view.of` of each.

        Chunks may differ in size, not the segments of one.
        """
        trimmed = [[view.trimmed(image) for image in segments] for segments in chunks]
        with self.lane.working():
            seen = []
            for _, alike in groupby(trimmed, lambda segments: segments[0].shape):
                images = self.lane.send([image for segments in alike for image in segments])
                crops = view.of_batch(images).unflatten(0, (-1, len(trimmed[0])))  # (B, segments, crops, ...)
                seen.append(crops.transpose(1, 2).flatten(1, 2))  # of each crop all segments, one after the other
            wait = self.lane.fetch(self._features(torch.cat(seen).flatten(0, 1)))
        features = wait()
        return features.reshape(len(chunks), -1, features.shape[-1])

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

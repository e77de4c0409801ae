"""Networks on torch, on any device."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.extractors import lanes
from lstr.extractors.devices import keep_float32_exact
from lstr.extractors.lanes import Lane
from lstr.extractors.networks.crops import View
from lstr.extractors.networks.fused import PooledNetwork
from lstr.extractors.networks.runtime import NetworkJob, RunningNetwork


def open_network(job: NetworkJob) -> "TorchNetwork":
    """Return a network on its device, which has a lane of its own there."""
    if job.device != "cpu" and job.precision == "float32":
        keep_float32_exact()
    pooled = job.pooled()  # before the lane, which waits for it
    return TorchNetwork(pooled, lanes.open_lane(job.device), (*job.size, job.channels))


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
        if not self.lane.captures:  # a processor, which computes in the thread that calls
            return self.pooled(torch.from_numpy(images)).numpy()
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
        """Compute by the smallest graph that the images fit in; the results of its other rows are dropped."""
        n = len(images)
        size = min((size for size in self._graphs if size >= n), default=None)
        if size is None:
            return self.pooled(images)
        memory, replay = self._graphs[size]
        memory[:n] = images
        return replay()[:n]


def crops_of(images: Tensor, view: View) -> Tensor:
    """Return (B, crops, *view.size, C) of trimmed images (B, H, W, C) uint8 on any device, the bytes of `view.of`."""
    if view.crops == 1:
        return images[:, None]
    mirror = images.flip(2)
    if view.flow:
        mirror[..., ::2] = 255 - mirror[..., ::2]
    if view.crops == 2:
        return torch.stack([images, mirror], 1)
    width, (down, across), crops = images.shape[2], view.size, []
    for x, y in view.corners(*images.shape[1:3]):
        crops.append(images[:, y : y + down, x : x + across])
        crops.append(mirror[:, y : y + down, width - x - across : width - x])
    return torch.stack(crops, 1)

"""A network that remembers the frames before, computed by torch: chunks of several streams, each with its state."""

from collections.abc import Iterable, Sequence
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.extractors.backbones.causal import CausalNetwork, State
from lstr.extractors.images.crops import View
from lstr.extractors.lanes import Lane
from lstr.extractors.networks.runtimes.running_network import RunningNetwork
from lstr.extractors.networks.runtimes.torch_runtime import PooledNetwork


class CausalRunningNetwork(RunningNetwork):
    """A CausalNetwork of torch, on any device; a chunk is computed when the one before it in its stream has been."""

    runtime = "torch"

    def __init__(self, pooled: PooledNetwork, lane: Lane, segments: int):
        """`segments` frames of a chunk are seen, one after the other."""
        self.network = cast(CausalNetwork, pooled.network)
        self.scale, self.dtype, self.lane, self.segments = pooled.scale, pooled.dtype, lane, segments

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork; each image begins a stream."""
        with self.lane.working(), torch.inference_mode():
            made, _ = self._step(self.lane.send(images), None)
            wait = self.lane.fetch(made)
        return wait()

    def prepare(self, batches: Iterable[int]) -> None:
        """Nothing: what it remembers has the size of its frames."""

    def of_crops(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """See RunningNetwork; each chunk begins a stream."""
        return self.of_streams(images, [None] * len(images))[0]

    def of_next(
        self, chunks: Sequence[Sequence[NDArray[np.uint8]]], view: View, states: Sequence[State | None]
    ) -> tuple[NDArray[np.float32], list[State]]:
        """The next chunk of each of several streams, as `of_fitted` takes them, and what was remembered of each.

        A state is None before the first chunk. Features (chunks, D), and the states with these chunks in them.
        """
        return self.of_streams(np.stack([view.of_segments(segments) for segments in chunks]), states)

    @torch.inference_mode()
    def of_streams(
        self, images: NDArray[np.uint8], states: Sequence[State | None]
    ) -> tuple[NDArray[np.float32], list[State]]:
        """The same for images (B, crops · segments, H, W, C): of each crop all segments, one after the other."""
        n, size = len(images), images.shape[2:4]
        with self.lane.working():
            shown = self.lane.send(images).unflatten(1, (-1, self.segments))  # (B, crops, segments, H, W, C)
            crops = shown.shape[1]
            begun = [self.network.begin(crops, *size) if state is None else state for state in states]
            joined: State = tuple(map(torch.cat, zip(*begun, strict=True))) if n > 1 else begun[0]
            made = []
            for segment in range(self.segments):
                features, joined = self._step(shown[:, :, segment].flatten(0, 1), joined)
                made.append(features)
            mean = made[0] if len(made) == 1 else torch.stack(made).mean(0)
            wait = self.lane.fetch(mean.unflatten(0, (n, crops)).mean(1))
            later = [joined] if n == 1 else _split(joined, crops)
        return wait(), later

    def _step(self, frames: Tensor, state: State | None) -> tuple[Tensor, State]:
        """A frame (N, H, W, C) of each crop of each stream → (N, D), and the states after it."""
        if state is None:
            state = self.network.begin(len(frames), *frames.shape[1:3])
        maps, state = self.network.step(self.scale(frames).to(self.dtype), state)
        return maps.float().mean((2, 3)), state


def _split(state: State, crops: int) -> list[State]:
    """The states of single streams; a view of one would keep the memory of all."""
    return [tuple(part.clone() for part in parts) for parts in zip(*(t.split(crops) for t in state), strict=True)]

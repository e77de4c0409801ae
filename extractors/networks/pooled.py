"""A network as every runtime has it: images of bytes in, features out, and nothing left to do before or after."""

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from extractors.networks.fused import DTYPES, fuse
from extractors.networks.quantised import quantise
from extractors.recipe import INT8, NetworkRecipe


class RunningNetwork(Protocol):
    """A network that is ready to compute, in as many threads as call it."""

    runtime: str

    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """(N, H, W, C) → (N, D), the maps averaged over space. A row does not depend on N beyond 1e-5."""

    def prepare(self, batches: Iterable[int]) -> None:
        """Make what depends on the number of images, now rather than at the first call with so many."""


class PooledNetwork(nn.Module):
    """The network of a stream for inference in a precision, with the scale of its input and the mean over space."""

    def __init__(self, network: nn.Module, part: NetworkRecipe, precision: str, device: str):
        super().__init__()
        fused = fuse(network, precision, device)
        self.network = quantise(fused, part.ranges or {}) if precision == INT8 else fused
        self.dtype = DTYPES[precision]
        self.part = part

    def forward(self, images: Tensor) -> Tensor:
        """(N, H, W, C) uint8 → (N, D) float32."""
        return self.network(scaled(images, self.part).to(self.dtype)).float().mean((2, 3))


def scaled(images: Tensor, part: NetworkRecipe) -> Tensor:
    """(N, H, W, C) uint8 → (N, C, H, W) float32 as published; the permuted view is channels-last already."""
    x = (images.flip(-1) if part.bgr else images).float() - torch.tensor(part.mean, device=images.device)
    if any(std != 1 for std in part.std):
        x = x / torch.tensor(part.std, device=images.device)
    return x.permute(0, 3, 1, 2)


class TorchNetwork:
    """A RunningNetwork of torch, on any device."""

    runtime = "torch"

    def __init__(self, pooled: PooledNetwork, device: str):
        self.pooled = pooled
        self.device = device

    @torch.inference_mode()
    def __call__(self, images: NDArray[np.uint8]) -> NDArray[np.float32]:
        """As RunningNetwork."""
        return self.pooled(torch.from_numpy(images).to(self.device)).cpu().numpy()

    def prepare(self, batches: Iterable[int]) -> None:
        """Nothing: torch takes any number of images."""

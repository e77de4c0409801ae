"""Batch-norm statistics of a random network: without them its activations carry little, for no layer normalises."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from lstr.extractors.networks.runtimes.torch_runtime import scaled
from lstr.extractors.recipe import NetworkRecipe


@torch.no_grad()
def calibrate(network: nn.Module, images: NDArray[np.uint8], part: NetworkRecipe, device: str, batch: int) -> None:
    """Set the statistics of a network, in place, to those of images (N, segments, crop, crop, C), `batch` at a time."""
    norms = [m for m in network.modules() if isinstance(m, nn.BatchNorm2d)]
    for norm in norms:
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over the batches
    network.train()
    batch = max(2, batch // images.shape[1])
    for start in range(0, len(images), batch):
        some = torch.from_numpy(images[start : start + batch]).to(device)
        if some.shape[0] * some.shape[1] > 1:
            network(scaled(some.flatten(0, 1), part))
    network.eval()

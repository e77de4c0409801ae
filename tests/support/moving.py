"""Networks that remember the frames before, and frames in which something moves."""

import numpy as np
import torch
from torch import nn

from lstr.extractors.video.frames import CHUNK, Chunk


def unsettled(network, seed=0, amount=0.2):
    """A network in evaluation mode whose weights, biases, norms and scales are random: no term is 0 or 1 by chance."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(amount * torch.randn(parameter.shape, generator=generator))
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.copy_(amount * torch.randn(module.num_features, generator=generator))
                module.running_var.copy_(0.5 + torch.rand(module.num_features, generator=generator))
    network.eval()  # mmaction2's networks return None here
    return network


def moving_chunks(n, side=48, seed=0):
    """Chunks of frames with a square that moves over noise."""
    generator = np.random.default_rng(seed)
    noise = generator.integers(0, 200, (side, side, 3), np.uint8)
    chunks = []
    for index in range(n):
        frames = np.repeat(noise[None], CHUNK, 0)
        for k in range(CHUNK):
            at = (index * CHUNK + k) % (side - 8)
            frames[k, at : at + 8, at : at + 8] = 255
        chunks.append(Chunk(index, (index + 1) / 4, frames))
    return chunks

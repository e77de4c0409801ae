"""Feature networks by name."""

import torch
from torch import nn

from lstr.extractors.networks.network import NETWORKS


def build_backbone(network: str, channels: int | None = None) -> nn.Module:
    """Build a network in evaluation mode, by default with the input channels of its published weights."""
    return NETWORKS[network].build(channels or (10 if network == "bninception" else 3)).eval()


def scale_of(network: str, stream: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and standard deviation of a network's input."""
    return NETWORKS[network].inputs[stream].mean, NETWORKS[network].inputs[stream].std


@torch.no_grad()
def vary_batch_norms(network: nn.Module, seed: int = 0) -> nn.Module:
    """Give the batch norms random statistics, weights and biases, so that an error in them changes the output."""
    generator = torch.Generator().manual_seed(seed)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.uniform_(-0.3, 0.3, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
            module.weight.uniform_(0.5, 1.5, generator=generator)
            module.bias.uniform_(-0.3, 0.3, generator=generator)
    return network.eval()

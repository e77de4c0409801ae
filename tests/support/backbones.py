"""Feature networks by name, as modules."""

from torch import nn

from lstr.extractors.networks.network import NETWORKS

PUBLISHED = {"bninception": 10}
"""Channels of the published features' networks, where these are not frames."""


def build_backbone(network: str, channels: int | None = None) -> nn.Module:
    """A network in evaluation mode, for frames or five flow fields; None for what its published weights take."""
    return NETWORKS[network].build(channels or PUBLISHED.get(network, 3)).eval()


def scale_of(network: str, stream: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of what a network is given of a stream."""
    return NETWORKS[network].inputs[stream].mean, NETWORKS[network].inputs[stream].std

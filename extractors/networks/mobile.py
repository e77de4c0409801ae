"""Networks made for phones, torchvision's, for any number of channels, without classifier and not pooled.

Their tensors have the names of torchvision's published files, so that these load as they are.
"""

from collections import OrderedDict

from torch import nn
from torchvision.models import mobilenet_v3_small, shufflenet_v2_x1_0


def shufflenetv2(in_channels: int = 3) -> nn.Module:
    """Build ShuffleNetV2 1.0× (Ma et al. 2018): (B, C, H, W) → (B, 1024, H/32, W/32)."""
    layers = OrderedDict(shufflenet_v2_x1_0(weights=None).named_children())
    del layers["fc"]
    return _with_stem(nn.Sequential(layers), "conv1", in_channels)


def mobilenetv3(in_channels: int = 3) -> nn.Module:
    """Build MobileNetV3-Small (Howard et al. 2019): (B, C, H, W) → (B, 576, H/32, W/32)."""
    layers = OrderedDict(features=mobilenet_v3_small(weights=None).features)
    return _with_stem(nn.Sequential(layers), "features.0", in_channels)


def _with_stem(network: nn.Module, name: str, in_channels: int) -> nn.Module:
    """Replace the first convolution, 3×3 with a stride of 2, by one that takes other channels."""
    stages = network.get_submodule(name)
    assert isinstance(stages, nn.Sequential) and isinstance(first := stages[0], nn.Conv2d)
    stages[0] = nn.Conv2d(in_channels, first.out_channels, 3, 2, 1, bias=False)
    return network

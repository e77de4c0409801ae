"""Networks made for phones, torchvision's, for a stream of any number of channels: ShuffleNetV2 and MobileNetV3.

Their names are those of torchvision's published files, so that these load as they are.
"""

from torch import Tensor, nn
from torchvision.models import mobilenet_v3_small, shufflenet_v2_x1_0


def _stem(whole: nn.Module, name: str, in_channels: int) -> None:
    """Replace a first convolution, 3×3 with a stride of 2, by one that takes other channels."""
    stages = whole.get_submodule(name)
    assert isinstance(stages, nn.Sequential) and isinstance(first := stages[0], nn.Conv2d)
    stages[0] = nn.Conv2d(in_channels, first.out_channels, 3, 2, 1, bias=False)


class ShuffleNetV2(nn.Module):
    """ShuffleNetV2 1.0× (Ma et al. 2018) without its classifier: (B, C, H, W) to (B, 1024, H/32, W/32), not pooled."""

    def __init__(self, in_channels: int = 3):
        super().__init__()
        whole = shufflenet_v2_x1_0(weights=None)
        _stem(whole, "conv1", in_channels)
        self.conv1, self.maxpool = whole.conv1, whole.maxpool
        self.stage2, self.stage3, self.stage4, self.conv5 = whole.stage2, whole.stage3, whole.stage4, whole.conv5

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) → maps (B, 1024, H/32, W/32)."""
        x = self.maxpool(self.conv1(x))  # (B, 24, H/4, W/4)
        return self.conv5(self.stage4(self.stage3(self.stage2(x))))


class MobileNetV3Small(nn.Module):
    """MobileNetV3-Small (Howard et al. 2019) without its classifier: (B, C, H, W) to (B, 576, H/32, W/32)."""

    def __init__(self, in_channels: int = 3):
        super().__init__()
        self.features = mobilenet_v3_small(weights=None).features
        _stem(self, "features.0", in_channels)

    def forward(self, x: Tensor) -> Tensor:
        """Images (B, C, H, W) → maps (B, 576, H/32, W/32)."""
        return self.features(x)

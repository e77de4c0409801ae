"""ResNet-18 and -50 without their classifier, with the key names of mmaction2's published weights.

The layers are torchvision's: the 3×3 convolution of a bottleneck has its stride (He et al. 2016, as Facebook trained
it).
"""

from torch import Tensor, nn

# Blocks of the four stages.
DEPTHS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


class ConvNorm(nn.Module):
    """A convolution without bias, its batch norm, and a ReLU where the block has one there."""

    def __init__(self, n_in: int, n_out: int, size: int, stride: int = 1, relu: bool = True):
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)
        self.bn = nn.BatchNorm2d(n_out)
        self.activate = nn.ReLU(inplace=True) if relu else None
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x: Tensor) -> Tensor:
        """(B, n_in, H, W) → (B, n_out, H / stride, W / stride)."""
        x = self.bn(self.conv(x))
        return x if self.activate is None else self.activate(x)


class Block(nn.Module):
    """A residual block: two 3×3 convolutions, or a bottleneck of 1×1, 3×3 and 1×1 to four times its width."""

    def __init__(self, n_in: int, width: int, stride: int, bottleneck: bool):
        super().__init__()
        n_out = 4 * width if bottleneck else width
        if bottleneck:
            self.conv1 = ConvNorm(n_in, width, 1)
            self.conv2 = ConvNorm(width, width, 3, stride)
            self.conv3 = ConvNorm(width, n_out, 1, relu=False)
        else:
            self.conv1 = ConvNorm(n_in, width, 3, stride)
            self.conv2 = ConvNorm(width, n_out, 3, relu=False)
        self.bottleneck = bottleneck
        self.relu = nn.ReLU(inplace=True)
        self.downsample = ConvNorm(n_in, n_out, 1, stride, relu=False) if stride > 1 or n_in != n_out else None

    def forward(self, x: Tensor) -> Tensor:
        """(B, n_in, H, W) → (B, n_out, H / stride, W / stride)."""
        out = self.conv2(self.conv1(x))
        if self.bottleneck:
            out = self.conv3(out)
        return self.relu(out + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """A ResNet of 18 or 50 layers: (B, C, H, W) → maps (B, 512 or 2048, H/32, W/32), not pooled."""

    def __init__(self, depth: int, in_channels: int = 3):
        super().__init__()
        self.conv1 = ConvNorm(in_channels, 64, 7, 2)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        bottleneck, n_in, stages = depth >= 50, 64, []
        for stage, n_blocks in enumerate(DEPTHS[depth]):
            width, blocks = 64 * 2**stage, []
            for block in range(n_blocks):
                blocks.append(Block(n_in, width, 2 if stage and not block else 1, bottleneck))
                n_in = 4 * width if bottleneck else width
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages

    def forward(self, x: Tensor) -> Tensor:
        """Images → maps."""
        x = self.maxpool(self.conv1(x))
        return self.layer4(self.layer3(self.layer2(self.layer1(x))))

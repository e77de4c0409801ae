"""EfficientNet-Lite (Tan & Le 2019, in its authors' form for small devices: ReLU6, and no squeeze-and-excitation).

Their ImageNet weights come in Python packages of a free licence, so that nobody downloads anything
(checkpoints/manifest.json).
"""

import math

from torch import Tensor, nn
from torch.nn import functional

# Features of an image, of every size of the network.
WIDTH = 1280
# Channels after the first convolution, of every size of the network.
STEM = 32


# The stages of Lite0: blocks, the first of which may halve the maps; kernel, stride, expansion, channels. Larger
# networks have more channels and blocks, but for the blocks of the first and last stage.
STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class Halved(nn.Module):
    """Zeros around maps, so that a stride of 2 makes half of them, rounded up: TensorFlow's `same`."""

    def __init__(self, kernel: int):
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) with fewer zeros before than after."""
        sides = []
        for size in (x.shape[-1], x.shape[-2]):
            zeros = self.kernel - 2 + size % 2
            sides += [zeros // 2, zeros - zeros // 2]
        return functional.pad(x, sides)


class Convolution(nn.Sequential):
    """A convolution without bias that keeps or halves the sides of maps, and its batch norm."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1):
        super().__init__()
        self.pad = nn.Identity() if stride == 1 else Halved(kernel)
        around = kernel // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, around, groups=groups, bias=False)
        self.norm = nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)


class Block(nn.Module):
    """An inverted residual block: (B, C, H, W) to (B, C', H/stride, W/stride)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int):
        super().__init__()
        wide = inputs * expansion
        self.expand = Convolution(inputs, wide, 1) if expansion > 1 else None
        self.depthwise = Convolution(wide, wide, kernel, stride, groups=wide)
        self.project = Convolution(wide, outputs, 1)
        self.limit = nn.ReLU6(inplace=True)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Return maps of maps."""
        wide = x if self.expand is None else self.limit(self.expand(x))
        made = self.project(self.limit(self.depthwise(wide)))
        return x + made if self.adds else made


class EfficientNetLite(nn.Module):
    """Without its classifier: (B, C, H, W) to (B, 1280, H/32, W/32), not pooled.

    width, depth: how many times the channels and blocks of Lite0 it has.
    """

    def __init__(self, in_channels: int = 3, width: float = 1.0, depth: float = 1.0):
        super().__init__()
        self.stem = Convolution(in_channels, STEM, 3, 2)
        self.limit = nn.ReLU6(inplace=True)
        blocks, channels = [], STEM
        for n, (count, kernel, stride, expansion, outputs) in enumerate(STAGES):
            wanted = outputs * width
            # to the next multiple of 8, and at least nine tenths
            outputs = max(8, int(wanted + 4) // 8 * 8)
            outputs += 8 if outputs < 0.9 * wanted else 0
            count = count if n in (0, len(STAGES) - 1) else math.ceil(depth * count)
            for block in range(count):
                blocks.append(Block(channels, outputs, kernel, 1 if block else stride, expansion))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = Convolution(channels, WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps (B, 1280, H/32, W/32) of images (B, C, H, W)."""
        x = self.blocks(self.limit(self.stem(x)))  # (B, 320, H/32, W/32) of Lite0
        return self.limit(self.head(x))

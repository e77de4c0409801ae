"""MoViNet-A0 to A2 in their form for streams (Kondratyuk et al. 2021, arXiv 2103.11511; tensorflow/models, Apache-2.0).

A temporal convolution looks at the frame and a few before it, and squeeze-and-excitation at the mean of all frames so
far. Layers, paddings and constants follow the published TensorFlow code: (2+1)D convolutions, hard swish. Its features
are the maps before the classifier, of the newest frame alone: the mean of those over a whole video, which the published
classifier sees, would say less and less of the present.
"""

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from lstr.extractors.backbones.causal import CausalNetwork, State
from lstr.extractors.backbones.efficientnet_lite import Convolution, Halved

REMEMBERED = 50
"""Frames: those of the clips that it was trained on. The mean is exact so far; later frames weigh 1/50 in it, so that
it follows a camera that runs for days."""
GATE_SLOPE = 0.2  # of Keras' hard sigmoid; with it Atze00/MoViNet-pytorch makes what the published models make
SIDE, DOWN = 3, 2  # of the mean before a skip connection that halves

Kernel = tuple[int, int]
"""Frames, and pixels of a side."""
K13, K15, K33, K53 = (1, 3), (1, 5), (3, 3), (5, 3)


@dataclass(frozen=True)
class Stage:
    """Blocks of one number of channels; the first may halve the maps."""

    channels: int
    wide: tuple[int, ...]
    """Channels inside of each block."""
    kernels: tuple[Kernel, ...]
    halves: bool = True


@dataclass(frozen=True)
class Size:
    """One of the published networks."""

    stem: int
    stages: tuple[Stage, ...]
    width: int
    """Features of a frame."""


SIZES = {
    "a0": Size(
        8,
        (
            Stage(8, (24,), (K15,)),
            Stage(32, (80, 80, 80), (K33, K33, K33)),
            Stage(56, (184, 112, 184), (K53, K33, K33)),
            Stage(56, (184, 184, 184, 184), (K53, K33, K33, K33), halves=False),
            Stage(104, (384, 280, 280, 344), (K53, K15, K15, K15)),
        ),
        480,
    ),
    "a1": Size(
        16,
        (
            Stage(16, (40, 40), (K15, K33)),
            Stage(40, (96, 120, 96, 96), (K33, K33, K33, K33)),
            Stage(64, (216, 128, 216, 168, 216), (K53, K33, K33, K33, K33)),
            Stage(64, (216, 216, 216, 128, 128, 216), (K53, K33, K33, K33, K15, K33), halves=False),
            Stage(136, (456, 360, 360, 360, 456, 456, 544), (K53, K15, K15, K15, K15, K33, K13)),
        ),
        600,
    ),
    "a2": Size(
        16,
        (
            Stage(16, (40, 40, 64), (K15, K33, K33)),
            Stage(40, (96, 120, 96, 96, 120), (K33, K33, K33, K33, K33)),
            Stage(72, (240, 160, 240, 192, 240), (K53, K33, K33, K33, K33)),
            Stage(72, (240, 240, 240, 240, 144, 240), (K53, K33, K33, K33, K15, K33), halves=False),
            Stage(144, (480, 384, 384, 480, 480, 480, 576), (K53, K15, K15, K15, K15, K33, K13)),
        ),
        640,
    ),
}


class TemporalConvolution(nn.Module):
    """A convolution over a frame and those before it, channel by channel and pixel by pixel, and its batch norm."""

    def __init__(self, channels: int, frames: int):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, (frames, 1), groups=channels, bias=False)
        self.norm = nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)

    def forward(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        """(B, C, H, W) and the frames before (B, C, k - 1, H · W) → the same, a frame later."""
        frames = torch.cat([past, x.flatten(2)[:, :, None]], 2)
        return self.norm(self.conv(frames)).reshape(x.shape), frames[:, :, 1:]


class Gate(nn.Module):
    """Squeeze-and-excitation by the means over space of this frame and of all so far."""

    def __init__(self, channels: int):
        super().__init__()
        hidden = rounded(channels / 2)  # a quarter of both means
        self.reduce = nn.Conv2d(2 * channels, hidden, 1)
        self.expand = nn.Conv2d(hidden, channels, 1)

    def forward(self, x: Tensor, mean: Tensor, count: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(B, C, H, W), the mean so far (B, C, 1, 1) and of how many frames it is (B, 1, 1, 1) → the same with x."""
        here = x.mean((2, 3), keepdim=True)
        count = (count + 1).clamp(max=REMEMBERED)
        mean = mean + (here - mean) / count
        gate = self.expand(functional.hardswish(self.reduce(torch.cat([mean, here], 1))))
        return x * (GATE_SLOPE * gate + 0.5).clamp(0, 1), mean, count


class Skip(nn.Module):
    """What goes past a block: (B, C, H, W) → (B, C', H / stride, W / stride)."""

    def __init__(self, inputs: int, outputs: int, halves: bool):
        super().__init__()
        self.pad = Halved(SIDE) if halves else None
        self.project = Convolution(inputs, outputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Maps to maps; a mean counts no pixel outside of them."""
        if self.pad:
            inside = functional.avg_pool2d(self.pad(x.new_ones(1, 1, *x.shape[2:])), SIDE, DOWN)
            x = functional.avg_pool2d(self.pad(x), SIDE, DOWN) / inside
        return self.project(x)


class Block(nn.Module):
    """An inverted residual block over space, then time, gated."""

    def __init__(self, inputs: int, outputs: int, wide: int, kernel: Kernel, halves: bool):
        super().__init__()
        self.wide, self.past, self.halves = wide, kernel[0] - 1, halves
        self.expand = Convolution(inputs, wide, 1)
        self.space = Convolution(wide, wide, kernel[1], 2 if halves else 1, groups=wide)
        self.time = TemporalConvolution(wide, kernel[0]) if self.past else None
        self.gate = Gate(wide)
        self.project = Convolution(wide, outputs, 1)
        self.skip = Skip(inputs, outputs, halves) if halves or inputs != outputs else None
        # the authors begin with 0; a random network would then be its skips alone, without a memory
        self.scale = nn.Parameter(torch.ones(()))

    @property
    def kept(self) -> int:
        """How many tensors it remembers."""
        return 3 if self.time else 2

    def begin(self, n: int, height: int, width: int) -> State:
        """What it remembers before the first frame, where it makes maps of this size."""
        made = self.scale.new_zeros
        past = (made(n, self.wide, self.past, height * width),) if self.time else ()
        return *past, made(n, self.wide, 1, 1), made(n, 1, 1, 1)

    def forward(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """(B, C, H, W) → (B, C', H / stride, W / stride)."""
        *past, mean, count = state
        made = functional.hardswish(self.space(functional.hardswish(self.expand(x))))
        if self.time:
            made, past[0] = self.time(made, past[0])
            made = functional.hardswish(made)
        made, mean, count = self.gate(made, mean, count)
        made = self.scale * self.project(made)
        return made + (x if self.skip is None else self.skip(x)), (*past, mean, count)


class MoViNet(CausalNetwork):
    """Without its classifier: frames (B, C, H, W) of 0 to 1 → maps (B, width, H/32, W/32), not pooled."""

    def __init__(self, size: Size, in_channels: int = 3):
        super().__init__()
        self.stem = Convolution(in_channels, size.stem, 3, 2)
        self.stages, inputs = nn.ModuleList(), size.stem
        for stage in size.stages:
            blocks = nn.ModuleList()
            for n, (wide, kernel) in enumerate(zip(stage.wide, stage.kernels, strict=True)):
                blocks.append(Block(inputs, stage.channels, wide, kernel, stage.halves and n == 0))
                inputs = stage.channels
            self.stages.append(blocks)
        self.head = Convolution(inputs, size.width, 1)

    @property
    def blocks(self) -> list[Block]:
        """All blocks in their order."""
        return [cast(Block, block) for stage in self.stages for block in cast(nn.ModuleList, stage)]

    def begin(self, n: int, height: int, width: int) -> State:
        """See CausalNetwork."""
        state: list[Tensor] = []
        height, width = -(-height // 2), -(-width // 2)
        for block in self.blocks:
            if block.halves:
                height, width = -(-height // 2), -(-width // 2)
            state += block.begin(n, height, width)
        return tuple(state)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """See CausalNetwork."""
        x, later, at = functional.hardswish(self.stem(x)), [], 0
        for block in self.blocks:
            x, kept = block(x, state[at : at + block.kept])
            at += block.kept
            later += kept
        return functional.hardswish(self.head(x)), tuple(later)


def rounded(channels: float) -> int:
    """The nearest multiple of 8, at least 8, and no less than 9 of 10."""
    near = max(8, int(channels + 4) // 8 * 8)
    return near + 8 if near < 0.9 * channels else near

"""TSM-MobileNetV2 as it runs online (Lin, Gan and Han 2019, arXiv 1811.08383), with the layers of mmaction2's file.

Before each block with a residual connection an eighth of the channels is that of the frame before. mmaction2's model
looks both ways: its first eighth comes from the next frame, its second from the one before. Online nothing is known of
the next frame, so the first eighth stays that of the frame itself.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lstr.extractors.backbones.causal import CausalNetwork, State

STEM, WIDTH = 32, 1280
"""Channels after the first convolution; features of a frame."""
SHARE = 8  # of the channels comes one part from the frame before


@dataclass(frozen=True)
class Stage:
    """Blocks of one number of channels."""

    expansion: int
    channels: int
    blocks: int
    stride: int


STAGES = (
    Stage(1, 16, 1, 1),
    Stage(6, 24, 2, 2),
    Stage(6, 32, 3, 2),
    Stage(6, 64, 4, 2),
    Stage(6, 96, 3, 1),
    Stage(6, 160, 3, 2),
    Stage(6, 320, 1, 1),
)


class Unit(nn.Module):
    """A convolution without bias, its batch norm, and a ReLU6 where the block has one there."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, limited: bool = True):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
        self.bn = nn.BatchNorm2d(outputs)
        self.activate = nn.ReLU6(inplace=True) if limited else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        """(B, inputs, H, W) → (B, outputs, H / stride, W / stride)."""
        return self.activate(self.bn(self.conv(x)))


class Block(nn.Module):
    """An inverted residual block, which sees a part of the frame before where it has a residual connection."""

    def __init__(self, inputs: int, stage: Stage, stride: int):
        super().__init__()
        wide = inputs * stage.expansion
        expand = [Unit(inputs, wide, 1)] if stage.expansion > 1 else []
        depthwise = Unit(wide, wide, 3, stride, groups=wide)
        self.conv = nn.Sequential(*expand, depthwise, Unit(wide, stage.channels, 1, limited=False))
        self.inputs, self.stride = inputs, stride
        self.adds = stride == 1 and inputs == stage.channels
        self.shifts = self.adds and stage.expansion > 1

    def forward(self, x: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor | None]:
        """(B, C, H, W), and an eighth of the frame before → (B, C', H / stride, W / stride), and that of this one."""
        shifted, kept = x, None
        if before is not None:
            part = self.inputs // SHARE
            kept = x[:, part : 2 * part].clone()  # a view would keep all of the frame
            shifted = torch.cat([x[:, :part], before, x[:, 2 * part :]], 1)
        made = self.conv(shifted)
        return x + made if self.adds else made, kept


class TSMMobileNetV2(CausalNetwork):
    """Without its classifier: frames (B, C, H, W) → maps (B, 1280, H/32, W/32), not pooled."""

    nothing: Tensor

    def __init__(self, in_channels: int = 3):
        super().__init__()
        self.conv1 = Unit(in_channels, STEM, 3, 2)
        inputs = STEM
        for number, stage in enumerate(STAGES, start=1):
            blocks = []
            for n in range(stage.blocks):
                blocks.append(Block(inputs, stage, 1 if n else stage.stride))
                inputs = stage.channels
            self.add_module(f"layer{number}", nn.Sequential(*blocks))
        self.conv2 = Unit(inputs, WIDTH, 1)
        self.register_buffer("nothing", torch.zeros(()), persistent=False)  # of the weights' kind, on their device

    def _blocks(self) -> list[Block]:
        stages = (self.get_submodule(f"layer{number}") for number in range(1, len(STAGES) + 1))
        return [block for stage in stages for block in stage.children() if isinstance(block, Block)]

    def begin(self, n: int, height: int, width: int) -> State:
        """See CausalNetwork; before the first frame all is 0, as mmaction2 fills what is not there."""
        state = []
        height, width = -(-height // 2), -(-width // 2)
        for block in self._blocks():
            if block.shifts:
                state.append(self.nothing.new_zeros(n, block.inputs // SHARE, height, width))
            height, width = -(-height // block.stride), -(-width // block.stride)
        return tuple(state)

    def step(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """See CausalNetwork."""
        before, later = iter(state), []
        x = self.conv1(x)
        for block in self._blocks():
            x, kept = block(x, next(before) if block.shifts else None)
            if kept is not None:
                later.append(kept)
        return self.conv2(x), tuple(later)

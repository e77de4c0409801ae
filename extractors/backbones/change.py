"""How the maps of two frames differ: what moved, by a network that knows only pictures and need not be trained."""

import torch
from torch import Tensor, nn


class Change(nn.Module):
    """A network for frames on two of them: (B, 6, H, W) → the absolute difference of their maps (B, D, h, w)."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone = backbone

    def forward(self, x: Tensor) -> Tensor:
        """The colours of the first frame, then those of the second: (B, 6, H, W) → (B, D, h, w)."""
        first, second = self.backbone(torch.cat(x.chunk(2, 1))).chunk(2)  # (2 B, D, h, w)
        return (first - second).abs()

"""BN-Inception as the flow network of TSN, with the key names and shapes of its published weights.

Sources: the three published layouts agree on names, shapes and order (tsn-pytorch, Cadene, mmaction v0); only the
classifier differs. Traps kept: pools round up (ceil), 5b pools by maximum, ReLU comes before the concatenation.
Strided convolutions round down while strided pools round up, so sides must be multiples of 32.
"""

from collections import OrderedDict

import torch
from torch import Tensor, nn

# name: (1x1, 3x3 reduce, 3x3, double reduce, double, pool, pool_proj); 0 = branch absent, which is a stride of 2
BLOCKS = {
    "3a": (64, 64, 64, 64, 96, "avg", 32),
    "3b": (64, 64, 96, 64, 96, "avg", 64),
    "3c": (0, 128, 160, 64, 96, "max", 0),
    "4a": (224, 64, 96, 96, 128, "avg", 128),
    "4b": (192, 96, 128, 96, 128, "avg", 128),
    "4c": (160, 128, 160, 128, 160, "avg", 128),
    "4d": (96, 128, 192, 160, 192, "avg", 128),
    "4e": (0, 128, 192, 192, 256, "max", 0),
    "5a": (352, 192, 320, 160, 224, "avg", 128),
    "5b": (352, 192, 320, 192, 224, "max", 128),
}


class _Sides(nn.Module):
    """Refuses images that the branches cannot meet on; a module, so that the network can be traced around it."""

    def forward(self, x: Tensor) -> Tensor:
        """The same (B, C, H, W)."""
        if x.shape[-1] % 32 or x.shape[-2] % 32:
            raise ValueError(f"BN-Inception needs sides that are multiples of 32, got {tuple(x.shape[-2:])}")
        return x


class BNInception(nn.Module):
    """BN-Inception without its classifier: (B, in_channels, H, W) to (B, 1024, H/32, W/32), not pooled.

    H and W must be multiples of 32. `in_channels` is 10 for five flow fields, 3 for RGB.
    """

    def __init__(self, in_channels: int = 10):
        super().__init__()
        self._sides = _Sides()
        self._stem_pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self._average = nn.AvgPool2d(3, 1, 1, ceil_mode=True, count_include_pad=True)
        self._maximum = nn.MaxPool2d(3, 1, 1, ceil_mode=True)

        layers: OrderedDict[str, nn.Module] = OrderedDict()

        def add(name: str, n_in: int, n_out: int, size: int, stride: int = 1) -> int:
            layers[name] = nn.Conv2d(n_in, n_out, size, stride, padding=size // 2)
            layers[f"{name}_bn"] = nn.BatchNorm2d(n_out)
            return n_out

        add("conv1_7x7_s2", in_channels, 64, 7, 2)
        add("conv2_3x3_reduce", 64, 64, 1)
        width = add("conv2_3x3", 64, 192, 3)
        for block, (one, reduce, three, double_reduce, double, _, project) in BLOCKS.items():
            name, stride = f"inception_{block}", 1 if one else 2
            if one:
                add(f"{name}_1x1", width, one, 1)
            add(f"{name}_3x3", add(f"{name}_3x3_reduce", width, reduce, 1), three, 3, stride)
            add(f"{name}_double_3x3_1", add(f"{name}_double_3x3_reduce", width, double_reduce, 1), double, 3)
            add(f"{name}_double_3x3_2", double, double, 3, stride)
            if project:
                add(f"{name}_pool_proj", width, project, 1)
            width = one + three + double + (project or width)
        for name, layer in layers.items():
            self.add_module(name, layer)
        self.activation: nn.Module = nn.ReLU(inplace=True)

    def _unit(self, name: str, x: Tensor) -> Tensor:
        """Convolution, batch norm, ReLU."""
        return self.activation(getattr(self, f"{name}_bn")(getattr(self, name)(x)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, 224, 224) → (B, 1024, 7, 7); features are non-negative."""
        x = self._stem_pool(self._unit("conv1_7x7_s2", self._sides(x)))  # (B, 64, 56, 56)
        x = self._unit("conv2_3x3", self._unit("conv2_3x3_reduce", x))
        x = self._stem_pool(x)  # (B, 192, 28, 28)
        for block, (one, _, _, _, _, pool, project) in BLOCKS.items():
            name = f"inception_{block}"
            branches = [self._unit(f"{name}_1x1", x)] if one else []
            branches.append(self._unit(f"{name}_3x3", self._unit(f"{name}_3x3_reduce", x)))
            double = self._unit(f"{name}_double_3x3_1", self._unit(f"{name}_double_3x3_reduce", x))
            branches.append(self._unit(f"{name}_double_3x3_2", double))
            if project:
                pooled = self._average(x) if pool == "avg" else self._maximum(x)
                branches.append(self._unit(f"{name}_pool_proj", pooled))
            else:
                branches.append(self._stem_pool(x))
            x = torch.cat(branches, 1)
        return x

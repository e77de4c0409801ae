"""The backbones of the feature networks: ResNet, BN-Inception, EfficientNet-Lite and torchvision's networks for phones.

Each takes images with any number of channels and returns feature maps, without pooling or a classifier. Tensors have
the names and shapes of the published weights, because files are loaded and hashed by them.
"""

import math
from collections import OrderedDict
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

# Blocks of the four stages. The layers are torchvision's: the 3×3 convolution of a bottleneck has the stride (He et al.
# 2016, as Facebook trained it). The names are mmaction2's.
DEPTHS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3)}


class Wrapper(nn.Module):
    """Base of a module that computes features by a backbone; weights files have the tensors of the backbone alone."""

    def __init__(self, backbone: nn.Module):
        super().__init__()
        self.backbone = backbone


class ConvNorm(nn.Sequential):
    """A convolution without bias, its batch norm, and an optional ReLU."""

    def __init__(self, n_in: int, n_out: int, size: int, stride: int = 1, relu: bool = True):
        super().__init__()
        self.conv = nn.Conv2d(n_in, n_out, size, stride, padding=size // 2, bias=False)
        self.bn = nn.BatchNorm2d(n_out)
        if relu:
            self.activate = nn.ReLU(inplace=True)
        nn.init.kaiming_normal_(self.conv.weight, mode="fan_out", nonlinearity="relu")


class ResidualBlock(nn.Module):
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


class ResNet(nn.Sequential):
    """A ResNet of 18 or 50 layers: (B, C, H, W) → maps (B, 512 or 2048, H/32, W/32), not pooled."""

    def __init__(self, depth: int, in_channels: int = 3):
        super().__init__()
        self.conv1 = ConvNorm(in_channels, 64, 7, 2)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        bottleneck, n_in, stages = depth >= 50, 64, []
        for stage, n_blocks in enumerate(DEPTHS[depth]):
            width, blocks = 64 * 2**stage, []
            for block in range(n_blocks):
                blocks.append(ResidualBlock(n_in, width, 2 if stage and not block else 1, bottleneck))
                n_in = 4 * width if bottleneck else width
            stages.append(nn.Sequential(*blocks))
        self.layer1, self.layer2, self.layer3, self.layer4 = stages


# BN-Inception as the flow network of TSN. The three published layouts (tsn-pytorch, Cadene, mmaction v0) agree on
# names, shapes and order; only the classifier differs. Traps: pools round up (ceil), 5b pools by maximum, ReLU comes
# before the concatenation. Strided convolutions round down while strided pools round up, so sides must be multiples
# of 32.
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


class BNInception(nn.Module):
    """BN-Inception without its classifier: (B, in_channels, H, W) to (B, 1024, H/32, W/32), not pooled.

    H and W must be multiples of 32. `in_channels` is 10 for five flow fields, 3 for RGB.
    """

    def __init__(self, in_channels: int = 10):
        super().__init__()
        self._stem_pool = nn.MaxPool2d(3, 2, ceil_mode=True)
        self._average = nn.AvgPool2d(3, 1, 1, ceil_mode=True, count_include_pad=True)
        self._maximum = nn.MaxPool2d(3, 1, 1, ceil_mode=True)

        def add(name: str, n_in: int, n_out: int, size: int, stride: int = 1) -> int:
            self.add_module(name, nn.Conv2d(n_in, n_out, size, stride, padding=size // 2))
            self.add_module(f"{name}_bn", nn.BatchNorm2d(n_out))
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
        self.activation: nn.Module = nn.ReLU(inplace=True)

    def _unit(self, name: str, x: Tensor) -> Tensor:
        """Convolution, batch norm, ReLU."""
        return self.activation(getattr(self, f"{name}_bn")(getattr(self, name)(x)))

    def forward(self, x: Tensor) -> Tensor:
        """(B, in_channels, 224, 224) → (B, 1024, 7, 7); features are non-negative."""
        x = self._stem_pool(self._unit("conv1_7x7_s2", x))  # (B, 64, 56, 56)
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


# EfficientNet-Lite (Tan & Le 2019, in its authors' form for small devices: ReLU6, and no squeeze-and-excitation). Their
# ImageNet weights come in Python packages with a free licence, so that nothing is downloaded (manifest.json).
LITE_WIDTH, LITE_STEM = 1280, 32  # features per image, and channels after the first convolution, for every size
# The stages of Lite0: blocks, the first of which may halve the maps; kernel, stride, expansion, channels. Larger
# networks have more channels and blocks, but for the blocks of the first and last stage.
LITE_STAGES = (
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
)


class LiteConvolution(nn.Module):
    """A convolution that keeps or halves the sides of maps, and its batch norm; with a bias instead if it is `fused`.

    A stride of 2 halves the sides, rounded up, by zeros at the edges: TensorFlow's `same`.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1, groups: int = 1, fused: bool = False):
        super().__init__()
        self.kernel, self.stride, around = kernel, stride, kernel // 2 if stride == 1 else 0
        self.conv = nn.Conv2d(inputs, outputs, kernel, stride, around, groups=groups, bias=fused)
        self.norm = nn.Identity() if fused else nn.BatchNorm2d(outputs, eps=1e-3, momentum=0.01)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) → (B, C', H / stride, W / stride)."""
        if self.stride > 1:
            sides = []
            for size in (x.shape[-1], x.shape[-2]):
                zeros = self.kernel - 2 + size % 2
                sides += [zeros // 2, zeros - zeros // 2]  # fewer zeros before than after
            x = functional.pad(x, sides)
        return self.norm(self.conv(x))


class InvertedBlock(nn.Module):
    """An inverted residual block: (B, C, H, W) to (B, C', H/stride, W/stride)."""

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, expansion: int, fused: bool = False):
        super().__init__()
        wide = inputs * expansion
        self.expand = LiteConvolution(inputs, wide, 1, fused=fused) if expansion > 1 else None
        self.depthwise = LiteConvolution(wide, wide, kernel, stride, wide, fused)
        self.project = LiteConvolution(wide, outputs, 1, fused=fused)
        self.limit = nn.ReLU6(inplace=True)
        self.adds = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        """Apply the block to maps."""
        wide = x if self.expand is None else self.limit(self.expand(x))
        made = self.project(self.limit(self.depthwise(wide)))
        return x + made if self.adds else made


class EfficientNetLite(nn.Module):
    """EfficientNet-Lite without its classifier: (B, C, H, W) to (B, 1280, H/32, W/32), not pooled.

    `width` and `depth` are factors of the number of channels and blocks of Lite0.
    """

    def __init__(self, in_channels: int = 3, width: float = 1.0, depth: float = 1.0):
        super().__init__()
        self.stem = LiteConvolution(in_channels, LITE_STEM, 3, 2)
        self.limit = nn.ReLU6(inplace=True)
        blocks, channels = [], LITE_STEM
        for n, (count, kernel, stride, expansion, outputs) in enumerate(LITE_STAGES):
            wanted = outputs * width
            # to the next multiple of 8, and at least nine tenths
            outputs = max(8, int(wanted + 4) // 8 * 8)
            outputs += 8 if outputs < 0.9 * wanted else 0
            count = count if n in (0, len(LITE_STAGES) - 1) else math.ceil(depth * count)
            for block in range(count):
                blocks.append(InvertedBlock(channels, outputs, kernel, 1 if block else stride, expansion))
                channels = outputs
        self.blocks = nn.Sequential(*blocks)
        self.head = LiteConvolution(channels, LITE_WIDTH, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Return maps (B, 1280, H/32, W/32) of images (B, C, H, W)."""
        x = self.blocks(self.limit(self.stem(x)))  # (B, 320, H/32, W/32) of Lite0
        return self.limit(self.head(x))


def phone_network(model: str, in_channels: int = 3) -> nn.Module:
    """Build one of torchvision's networks for phones: (B, C, H, W) → maps (B, D, H/32, W/32).

    `shufflenetv2` is ShuffleNetV2 1.0× (Ma et al. 2018; D = 1024), `mobilenetv3` MobileNetV3-Small (Howard et al. 2019;
    D = 576).
    """
    from torchvision import models  # takes seconds to import

    if model == "shufflenetv2":
        layers = OrderedDict(models.shufflenet_v2_x1_0(weights=None).named_children())
        del layers["fc"]
        stem = layers["conv1"]
    else:
        layers = OrderedDict(features=models.mobilenet_v3_small(weights=None).features)
        stem = layers["features"].get_submodule("0")
    assert isinstance(stem, nn.Sequential) and isinstance(first := stem[0], nn.Conv2d)
    stem[0] = nn.Conv2d(in_channels, first.out_channels, 3, 2, 1, bias=False)
    return nn.Sequential(layers)


# Depthwise convolutions with fast gradients in bfloat16 on a CPU. oneDNN lacks fast kernels for two cases: the input
# gradient with a stride of 2, and the weight gradient of a 5 x 5 kernel. On an AMD EPYC (Zen 5) these two took 50 to
# 400 times as long as the forward pass, and two thirds of a training step of EfficientNet-Lite0. Here fast kernels
# compute both, which reduces the time of a step to 0.35.
class _Depthwise(torch.autograd.Function):
    """A depthwise convolution (B, C, H, W) with a kernel (C, 1, k, k), k 3 or 5, and the same stride on both axes."""

    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.bfloat16)
    def forward(ctx: Any, x: Tensor, weight: Tensor, stride: int, padding: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.stride, ctx.padding = stride, padding
        return functional.conv2d(x, weight, None, stride, padding, groups=len(weight))

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        x, weight = ctx.saved_tensors
        stride, padding, size, channels = ctx.stride, ctx.padding, weight.shape[-1], len(weight)
        gradient = gradient.contiguous(memory_format=torch.channels_last)

        def gradients(x: Tensor, weight: Tensor, padding: int, *wanted: bool) -> tuple[Tensor, Tensor]:
            strides, paddings = [stride, stride], [padding, padding]
            return torch.ops.aten.convolution_backward(
                gradient, x, weight, None, strides, paddings, [1, 1], False, [0, 0], channels, [*wanted, False]
            )[:2]

        if stride == 1:
            of_x = gradients(x, weight, padding, True, False)[0]
        else:
            # The forward convolution, with the flipped kernel, of the gradient with zeros between its elements.
            height, width = (side + 2 * padding - size + 1 for side in x.shape[2:])
            spread = gradient.new_zeros(len(x), height, width, channels).permute(0, 3, 1, 2)  # channels last
            spread[:, :, ::stride, ::stride] = gradient
            of_x = functional.conv2d(spread, weight.flip(2, 3), None, 1, size - 1 - padding, groups=channels)
        if size == 3:
            return of_x, gradients(x, weight, padding, False, True)[1], None, None
        # The gradient of a 5 x 5 kernel is assembled from its four overlapping 3 x 3 corners, which have fast kernels.
        x = functional.pad(x, (padding,) * 4)
        height, width = ((side - 1) * stride + 3 for side in gradient.shape[2:])
        of_weight = torch.empty_like(weight)
        for top in (0, 2):
            for left in (0, 2):
                part = x[:, :, top : top + height, left : left + width].contiguous(memory_format=torch.channels_last)
                corner = (..., slice(top, top + 3), slice(left, left + 3))
                of_weight[corner] = gradients(part, weight[corner].contiguous(), 0, False, True)[1]
        return of_x, of_weight, None, None


class DepthwiseConv2d(nn.Conv2d):
    """A depthwise `nn.Conv2d` without bias, with fast gradients in bfloat16 on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        """Map (B, C, H, W) to (B, C, H', W')."""
        is_slow = torch.is_autocast_enabled("cpu") and x.device.type == "cpu" and torch.is_grad_enabled()
        if not is_slow:
            return super().forward(x)
        return _Depthwise.apply(x, self.weight, self.stride[0], self.padding[0])


def speed_up_depthwise(network: nn.Module) -> None:
    """Replace the depthwise convolutions of a network by ones with fast gradients, in place."""
    for module in network.modules():
        if isinstance(module, nn.Conv2d) and module.groups == module.in_channels == module.out_channels > 1:
            size, stride = module.kernel_size[0], module.stride[0]
            is_square = (module.kernel_size, module.stride) == ((size, size), (stride, stride))
            if is_square and size in (3, 5) and module.bias is None and module.dilation == (1, 1):
                module.__class__ = DepthwiseConv2d

"""Depthwise convolutions with fast gradients in bfloat16 on a CPU.

oneDNN lacks fast kernels for two cases: the input gradient with a stride of 2, and the weight gradient of a 5 x 5
kernel. On an AMD EPYC (Zen 5) these two took 50 to 400 times as long as the forward pass, and two thirds of a training
step of EfficientNet-Lite0. Here fast kernels compute both, which reduces the time of a step to 0.35.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


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

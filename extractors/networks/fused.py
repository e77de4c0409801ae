"""A network for inference alone: batch norm inside its convolutions, weights as the processor multiplies them fastest.

Fusing is exact up to rounding. A convolution that gets its weights in oneDNN's own layout need not convert them
at each call, which at batch 1 is a fourth of its time; bfloat16 halves what has to be multiplied, where the
processor can.
"""

import copy
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

if TYPE_CHECKING:
    from mmcv.cnn import ConvModule

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16}
"""By the precision of a recipe."""


def fast_precision(device: str) -> str:
    """`bf16` where the device multiplies bfloat16 in hardware, else `float32`."""
    if device != "cpu":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "float32"
    # torch's own checks of the processor are not documented, so a version may lack them
    checks = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return "bf16" if any(check and check() for check in checks) else "float32"


class FusedConv(nn.Module):
    """A convolution with the batch norm, and perhaps the ReLU, that follow it; it cannot be trained."""

    weight: Tensor
    bias: Tensor

    def __init__(self, conv: nn.Conv2d, norm: nn.BatchNorm2d, relu: bool, dtype: torch.dtype) -> None:
        super().__init__()
        fused = fuse_conv_bn_eval(conv, norm).to(dtype=dtype).to(memory_format=torch.channels_last)
        assert fused.bias is not None and not isinstance(conv.padding, str)
        self.register_buffer("weight", fused.weight.detach())
        self.register_buffer("bias", fused.bias.detach())
        self.geometry = (list(conv.padding), list(conv.stride), list(conv.dilation), conv.groups)
        self.relu = relu
        self.packed: Tensor | None = None

    def forward(self, x: Tensor) -> Tensor:
        """(B, C_in, H, W) to (B, C_out, H', W')."""
        # The operators are torch's own, made for its compiler and not documented, so a version may lack them.
        if x.device.type == "cpu" and hasattr(torch.ops.mkldnn, "_reorder_convolution_weight"):
            if self.packed is None:
                self.packed = torch.ops.mkldnn._reorder_convolution_weight(self.weight, *self.geometry, list(x.shape))
            attribute = "relu" if self.relu else "none"
            return torch.ops.mkldnn._convolution_pointwise(x, self.packed, self.bias, *self.geometry, attribute, [], "")
        padding, stride, dilation, groups = self.geometry
        x = F.conv2d(x, self.weight, self.bias, stride, padding, dilation, groups)
        return torch.relu_(x) if self.relu else x


def _is_plain(module: "ConvModule") -> bool:
    """Whether a ConvModule is a convolution and its batch norm, with no shift or padding of its own before."""
    plain = isinstance(module.conv, nn.Conv2d) and module.conv.padding_mode == "zeros"
    in_order = module.order == ("conv", "norm", "act") and not module.with_explicit_padding
    return bool(plain and in_order and module.with_norm and isinstance(module.norm, nn.BatchNorm2d))


def fuse(network: nn.Module, precision: str, device: str) -> nn.Module:
    """A copy of a backbone for inference on a device: float32 or bf16 in its weights and products, channels-last.

    BN-Inception and the convolution modules of mmaction2's backbones are fused; other layers are as they were.
    """
    from mmcv.cnn import ConvModule

    from extractors.networks.bninception import BNInception

    dtype = DTYPES[precision]
    fused = copy.deepcopy(network)
    for parent in list(fused.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, ConvModule) and _is_plain(child):
                activation = child.activate if child.with_activation else None
                relu = type(activation) is nn.ReLU
                conv = FusedConv(child.conv, child.norm, relu, dtype)
                setattr(parent, name, conv if relu or activation is None else nn.Sequential(conv, activation))
        if isinstance(parent, BNInception):
            for name in parent.unit_names:
                setattr(parent, name, FusedConv(getattr(parent, name), getattr(parent, f"{name}_bn"), True, dtype))
                setattr(parent, f"{name}_bn", nn.Identity())
            parent.activation = nn.Identity()
    fused.to(device=device, dtype=dtype).to(memory_format=torch.channels_last)
    fused.eval()  # mmaction2's ResNet returns None here, so it cannot be chained
    return fused

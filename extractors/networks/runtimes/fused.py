"""A network for inference alone: batch norm inside its convolutions, which is exact up to rounding.

This is what torch runs where no other runtime is installed, and what the other runtimes convert.
"""

import copy
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

if TYPE_CHECKING:
    from mmcv.cnn import ConvModule

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32}
"""Of what torch computes, by the precision of a recipe; int8 is rounded to its steps, and computed in float32."""


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

    from lstr.extractors.networks.backbones.bninception import BNInception

    fused = copy.deepcopy(network)
    for parent in list(fused.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, ConvModule) and _is_plain(child):
                conv = fuse_conv_bn_eval(child.conv, child.norm)
                setattr(parent, name, nn.Sequential(conv, child.activate) if child.with_activation else conv)
        if isinstance(parent, BNInception):
            for name in parent.unit_names:
                setattr(parent, name, fuse_conv_bn_eval(getattr(parent, name), getattr(parent, f"{name}_bn")))
                setattr(parent, f"{name}_bn", nn.Identity())
    fused.to(device=device, dtype=DTYPES[precision]).to(memory_format=torch.channels_last)
    fused.eval()  # mmaction2's ResNet returns None here, so it cannot be chained
    return fused.requires_grad_(False)

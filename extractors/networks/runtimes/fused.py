"""A network for inference alone: batch norm inside its convolutions, which is exact up to rounding.

This is what torch runs where no other runtime is installed, and what the other runtimes convert.
"""

import copy
import sys
from collections import Counter
from typing import cast

import torch
from torch import fx, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from lstr.extractors.backbones.resnet import ConvNorm

DTYPES = {"float32": torch.float32, "bf16": torch.bfloat16, "int8": torch.float32}
"""Types of what torch computes, by the precision of a recipe; int8 is rounded to its steps, and computed in float32."""


class _Calls(fx.Tracer):
    """Follows an image through a network, as far as modules that hold no other; batch norms count as such."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Whether a module is one step."""
        return isinstance(m, nn.BatchNorm2d) or not any(m.children())


def fuse(network: nn.Module, precision: str, device: str, everywhere: bool = True) -> nn.Module:
    """A copy of a backbone for inference on a device: float32 or bf16 in its weights and products, channels-last.

    Each batch norm that follows a convolution goes into it; with `everywhere` False only those of the units that
    mmaction2's layouts consist of. Other layers are as they were.
    """
    fused = copy.deepcopy(network)
    fused.eval()  # the ResNet of a config of mmaction2 returns None here
    for parent in list(fused.modules()):
        for name, child in list(parent.named_children()):
            if _is_unit(child):
                conv = fuse_conv_bn_eval(cast(nn.Conv2d, child.conv), cast(nn.BatchNorm2d, child.bn))
                activate = cast(nn.Module | None, getattr(child, "activate", None))
                setattr(parent, name, conv if activate is None else nn.Sequential(conv, activate))
    if everywhere and any(isinstance(module, nn.BatchNorm2d) for module in fused.modules()):
        for first, second in _pairs(fused):
            norm = cast(nn.BatchNorm2d, fused.get_submodule(second))
            _replace(fused, first, fuse_conv_bn_eval(cast(nn.Conv2d, fused.get_submodule(first)), norm))
            _replace(fused, second, _rest_of(norm))
    fused.to(device=device, dtype=DTYPES[precision]).to(memory_format=torch.channels_last)
    return fused.requires_grad_(False)


def _is_unit(module: nn.Module) -> bool:
    """Whether a module is a convolution and its batch norm, with no shift or padding of its own before: ours, or one of
    mmcv's where a config brought it."""
    if isinstance(module, ConvNorm):
        return True
    mmcv = sys.modules.get("mmcv.cnn")
    if not mmcv or not isinstance(module, mmcv.ConvModule):
        return False
    plain = isinstance(module.conv, nn.Conv2d) and module.conv.padding_mode == "zeros"
    in_order = module.order == ("conv", "norm", "act") and not module.with_explicit_padding
    return bool(plain and in_order and module.with_norm and isinstance(module.norm, nn.BatchNorm2d))


def _pairs(network: nn.Module) -> list[tuple[str, str]]:
    """Names of each convolution and the batch norm that alone sees what it makes; none where no tracing is possible."""
    try:
        nodes = _Calls().trace(network).nodes
    except Exception:  # control flow on values; such a network stays as it is
        return []
    calls = [node for node in nodes if node.op == "call_module"]
    times, found = Counter(node.target for node in calls), []
    for node in calls:
        before = node.args[0] if node.args else None
        if not isinstance(before, fx.Node) or before.op != "call_module" or len(before.users) > 1:
            continue
        conv, norm = network.get_submodule(str(before.target)), network.get_submodule(str(node.target))
        once = times[before.target] == times[node.target] == 1
        if once and type(conv) is nn.Conv2d and isinstance(norm, nn.BatchNorm2d) and _rest_of(norm) is not None:
            found.append((str(before.target), str(node.target)))
    return found


def _rest_of(norm: nn.Module) -> nn.Module | None:
    """What a batch norm does besides: nothing, or of timm's the activation; None where that is not known."""
    if type(norm) is nn.BatchNorm2d:
        return nn.Identity()
    parts = [part for name in ("drop", "act") if isinstance(part := getattr(norm, name, None), nn.Module)]
    return nn.Sequential(*parts) if len(parts) == 2 else None


def _replace(network: nn.Module, name: str, module: nn.Module | None) -> None:
    parent, _, last = name.rpartition(".")
    setattr(network.get_submodule(parent), last, module)

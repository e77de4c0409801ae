"""A copy of a model for inference alone, its weights laid out as the processor multiplies them fastest.

A step of a stream multiplies few tokens by many weights, so most of its time goes to reading weights. oneDNN's own
layout reads them almost twice as fast as a plain matrix.
"""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.models.transformer import Attention

Packed = TypeVar("Packed", bound=nn.Module)

# Tokens the layout is made for: a full work memory.
TOKENS = 32


class PackedLinear(nn.Module):
    """A linear layer in float32 that cannot be trained; the output has the type of the input."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.bias = None if bias is None else bias.detach().float()
        # The operator is torch's own, made for its compiler and not documented, so it may be missing.
        self.packed = weight.device.type == "cpu" and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        self.weight = weight.detach().float()
        if self.packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D_in) to (..., D_out)."""
        x_in = x.float()
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x_in, self.weight, self.bias, "none", [], "").to(x.dtype)
        return F.linear(x_in, self.weight, self.bias).to(x.dtype)


class PackedAttention(Attention):
    """Attention whose projections are packed when they are first used, those alone that are."""

    def __init__(self, plain: Attention) -> None:
        nn.Module.__init__(self)
        self.n_heads, self.dropout = plain.n_heads, plain.dropout
        self.in_proj_weight, self.in_proj_bias = plain.in_proj_weight, plain.in_proj_bias
        linear = cast(nn.Linear, plain.out_proj)
        self.out_proj = PackedLinear(linear.weight, linear.bias)
        self.projections: dict[tuple[int, int], PackedLinear] = {}

    def project(self, x: Tensor, first: int, last: int) -> Tensor:
        """Like `Attention.project`."""
        if (first, last) not in self.projections:
            rows = slice(first * x.shape[-1], last * x.shape[-1])
            self.projections[first, last] = PackedLinear(self.in_proj_weight[rows], self.in_proj_bias[rows])
        return self.projections[first, last](x)


def pack(model: Packed) -> Packed:
    """The model with packed linear layers, for inference; it shares every other tensor with `model`."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    packed = copy.deepcopy(model, shared)
    for parent in list(packed.modules()):
        for name, child in parent.named_children():
            if isinstance(child, Attention):
                setattr(parent, name, PackedAttention(child))
            elif isinstance(child, nn.Linear) and not isinstance(parent, Attention):
                setattr(parent, name, PackedLinear(child.weight, child.bias))
    return packed.eval()

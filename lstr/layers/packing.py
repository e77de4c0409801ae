"""A copy of a model for inference alone, its weights laid out as the processor multiplies them fastest.

A step of a stream multiplies few tokens by many weights, so most of its time goes to reading weights. oneDNN's own
layout reads them almost twice as fast as a plain matrix, and bfloat16 halves what is to be read.
"""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.errors import ConfigError
from lstr.layers.transformer import Attention

Packed = TypeVar("Packed", bound=nn.Module)

PRECISIONS = {"float32": torch.float32, "bf16": torch.bfloat16}
TOKENS = 32
"""Tokens the layout is made for: a full work memory."""


class PackedLinear(nn.Module):
    """A linear layer that cannot be trained; input and output are float32 whatever the precision of its weights."""

    def __init__(self, weight: Tensor, bias: Tensor | None, dtype: torch.dtype) -> None:
        super().__init__()
        self.dtype = dtype
        self.bias = None if bias is None else bias.detach().to(dtype)
        # The operator is torch's own, made for its compiler and not documented, so it may be missing.
        self.packed = weight.device.type == "cpu" and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
        if self.packed and dtype == torch.bfloat16:
            self.packed = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        self.weight = weight.detach().to(dtype)
        if self.packed:
            self.weight = torch.ops.mkldnn._reorder_linear_weight(self.weight.contiguous(), TOKENS)

    def forward(self, x: Tensor) -> Tensor:
        """(..., D_in) to (..., D_out)."""
        x_in = x.to(self.dtype)
        if self.packed:
            return torch.ops.mkldnn._linear_pointwise(x_in, self.weight, self.bias, "none", [], "").to(x.dtype)
        return F.linear(x_in, self.weight, self.bias).to(x.dtype)


class PackedAttention(Attention):
    """Attention whose projections are packed when they are first used, those alone that are."""

    def __init__(self, plain: Attention, dtype: torch.dtype) -> None:
        nn.Module.__init__(self)
        self.n_heads, self.dropout, self.dtype = plain.n_heads, plain.dropout, dtype
        self.in_proj_weight, self.in_proj_bias = plain.in_proj_weight, plain.in_proj_bias
        linear = cast(nn.Linear, plain.out_proj)
        self.out_proj = PackedLinear(linear.weight, linear.bias, dtype)
        self.projections: dict[tuple[int, int], PackedLinear] = {}

    def project(self, x: Tensor, first: int, last: int) -> Tensor:
        """Like `Attention.project`."""
        if (first, last) not in self.projections:
            rows = slice(first * x.shape[-1], last * x.shape[-1])
            packed = PackedLinear(self.in_proj_weight[rows], self.in_proj_bias[rows], self.dtype)
            self.projections[first, last] = packed
        return self.projections[first, last](x)


def pack(model: Packed, precision: str = "float32") -> Packed:
    """The model with packed linear layers, for inference; it shares every other tensor with `model`.

    precision is float32 or bf16: that of the weights of linear layers and of the products with them; all else stays
    float32. Raises ConfigError for another.
    """
    if precision not in PRECISIONS:
        raise ConfigError(f"The precision is {precision!r}.", f"Choose one of: {', '.join(PRECISIONS)}.")
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    packed = copy.deepcopy(model, shared)
    for parent in list(packed.modules()):
        for name, child in parent.named_children():
            if isinstance(child, Attention):
                setattr(parent, name, PackedAttention(child, PRECISIONS[precision]))
            elif isinstance(child, nn.Linear) and not isinstance(parent, Attention):
                setattr(parent, name, PackedLinear(child.weight, child.bias, PRECISIONS[precision]))
    return packed.eval()

"""What streams of all kinds share: tensors that are kept from chunk to chunk, rings of them, and packed weights.

A step needs to know its place in time, which is a plan (`lstr.windows.plans`).
"""

from __future__ import annotations

import copy
from typing import TypeVar, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.models.layers import Attention
from lstr.windows.plans import Plan

Tensors = dict[str, Tensor]
Packed = TypeVar("Packed", bound=nn.Module)

# Tokens the layout is made for: a full work memory.
TOKENS = 32


def as_tensors(plan: Plan, device: torch.device) -> Tensors:
    """Return the arrays of a plan as tensors on a device."""
    return {name: torch.from_numpy(values).to(device) for name, values in plan.items()}


def keep(tensors: Tensors, after: Tensors, taking: Tensor | None = None) -> None:
    """Let the tensors of streams hold what a step gave, those of the streams that took a chunk: taking (B,) bool.

    Those that came back as they are were donated, and hold it already.
    """
    memory = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    given = {name: tensor for name, tensor in after.items() if tensor is not tensors[name]}
    if taking is not None:
        given = {n: torch.where(taking.view(-1, *[1] * (t.ndim - 1)), t, tensors[n]) for n, t in given.items()}
    for name, tensor in given.items():  # one that goes to another's place must not be overwritten before
        given[name] = tensor.clone() if tensor.untyped_storage().data_ptr() in memory else tensor
    for name, tensor in given.items():
        tensors[name].copy_(tensor)


def begun(tensor: Tensor, fresh: Tensor | None) -> Tensor:
    """Return zeros for the streams that begin, fresh (B,) bool or None, and what the others have: tensor (B, ...)."""
    return tensor if fresh is None else tensor.masked_fill(fresh.view(-1, *[1] * (tensor.ndim - 1)), 0)


def put(ring: Tensor, rows: Tensor, values: Tensor, donate: bool = False) -> Tensor:
    """Return rings (B, R, ...) with values (n, ...) at rows (n,); donate: whether in the same memory."""
    flat = ring.flatten(0, 1)
    if not donate:
        return flat.index_copy(0, rows, values).view_as(ring)
    flat.index_copy_(0, rows, values)
    return ring


def take(ring: Tensor, rows: Tensor, length: int, out: Tensor | None = None) -> Tensor:
    """Rows (n * length,) of rings (B, R, ...) as (n, length, ...), in memory of their own, or in that of `out`."""
    flat = ring.flatten(0, 1)
    if out is None:
        return flat.index_select(0, rows).unflatten(0, (-1, length))
    torch.index_select(flat, 0, rows, out=out.flatten(0, 1))
    return out


def newest(x: Tensor, present: Tensor | None, W: int) -> Tensor:
    """The newest present work slot of x (B, W + anticipation, ...) and those of the future: (B, 1 + anticipation, ...).

    present (B, W) bool, None where all are.
    """
    if present is None:
        return x[:, W - 1 :]
    streams = torch.arange(len(x), device=x.device)
    return torch.cat([x[streams, present.sum(dim=1) - 1, None], x[:, W:]], dim=1)


def replace(tensor: Tensor, streams: Tensor, values: Tensor, donate: bool = False) -> Tensor:
    """Tensor (B, ...) with values (n, ...) for some streams (n,), in their order."""
    if len(values) == len(tensor):
        return values
    if not donate:
        return tensor.index_copy(0, streams, values)
    return tensor.index_copy_(0, streams, values)


class PackedLinear(nn.Module):
    """A linear layer in float32 that cannot be trained; the output has the type of the input.

    A step of a stream multiplies few tokens by many weights, so most of its time goes to reading weights. The layout of
    oneDNN reads them almost twice as fast as a plain matrix.
    """

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
        """See `Attention.project`."""
        if (first, last) not in self.projections:
            rows = slice(first * x.shape[-1], last * x.shape[-1])
            self.projections[first, last] = PackedLinear(self.in_proj_weight[rows], self.in_proj_bias[rows])
        return self.projections[first, last](x)


def pack(model: Packed) -> Packed:
    """Return the model with packed linear layers, for inference; it shares every other tensor with `model`."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    packed = copy.deepcopy(model, shared)
    for parent in list(packed.modules()):
        for name, child in parent.named_children():
            if isinstance(child, Attention):
                setattr(parent, name, PackedAttention(child))
            elif isinstance(child, nn.Linear) and not isinstance(parent, Attention):
                setattr(parent, name, PackedLinear(child.weight, child.bias))
    return packed.eval()

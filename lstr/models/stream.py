"""What the steps of all kinds share: tensors that are kept from chunk to chunk, and rings of what is kept of chunks.

What a step needs to know of its place in time is a plan (`lstr.windows.plan`).
"""

from __future__ import annotations

import torch
from torch import Tensor

from lstr.windows.plan import Plan

Tensors = dict[str, Tensor]


def as_tensors(plan: Plan, device: torch.device) -> Tensors:
    """The arrays of a plan as tensors on a device."""
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
    """Zeros for the streams that begin, fresh (B,) bool or None, and what the others have: tensor (B, ...)."""
    return tensor if fresh is None else tensor.masked_fill(fresh.view(-1, *[1] * (tensor.ndim - 1)), 0)


def put(ring: Tensor, rows: Tensor, values: Tensor, donate: bool = False) -> Tensor:
    """Rings (B, R, ...) with values (n, ...) at rows (n,); donate: whether in the same memory."""
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

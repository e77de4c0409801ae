"""What the steps of all kinds share: the plan of a step, and rings of what is kept of chunks.

A plan is what the next chunk of each of B streams needs to know of its place in time: numbers that follow from how many
chunks each stream has seen, worked out in numpy. `step` then is arithmetic on tensors alone. Of its arrays

- a bool one tells where something is to be done; where that is so nowhere it may be missing, which costs less.
- `NAME.…`, each (B, ...), are about the streams where the bool array NAME (B,) is true, and do no harm to the others.
  They may be cut to those streams (NAME is then missing), and missing where there are none.

Rows count through the rings of all streams, one ring after the other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Tensors = dict[str, Tensor]
Plan = dict[str, NDArray[Any]]

CHANGES = "changes"
"""The streams whose long memory is not what it was, and has to be summed up anew: what costs most of a step."""


def needed(plan: Plan) -> Plan:
    """What of a plan does anything: the least work, in shapes that differ from chunk to chunk."""
    groups = {name.partition(".")[0] for name in plan if "." in name}
    kept = {}
    for name, values in plan.items():
        group, _, rest = name.partition(".")
        if rest:
            values = values[plan[group]]
        if name not in groups and len(values) and (values.dtype != np.bool_ or values.any()):
            kept[name] = values
    return kept


def of_two_shapes(plan: Plan) -> Plan:
    """The plan, without what sums up long memories where none is to be: what a captured or exported step needs."""
    if CHANGES not in plan or plan[CHANGES].any():
        return plan
    # of a model of several each group has its member's number before it
    return {n: values for n, values in plan.items() if n.partition(".")[0].rpartition("/")[2] != CHANGES}


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

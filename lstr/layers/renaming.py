"""Published tensors of GateHUB and OadTR, whose blocks are alike, in the shapes of `lstr.layers.blocks`."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

PARTS = ("query_projection", "key_projection", "value_projection")


def with_prefixes(tensors: Mapping[str, Tensor], names: Mapping[str, str]) -> dict[str, Tensor]:
    """Tensors whose names begin otherwise: by `names`, first part to first part; the others keep theirs."""
    found = {}
    for name, tensor in tensors.items():
        first = next((prefix for prefix in names if name.startswith(prefix)), "")
        found[names.get(first, "") + name.removeprefix(first)] = tensor
    return found


def packed_blocks(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Tensors of blocks under the names of `lstr.layers.blocks`; tables of row numbers are left out.

    Queries, keys and values become one projection, convolutions over one place linear layers. A block with one
    attention calls it `attention`, whether it looks at itself or at others.
    """
    blocks = {name.split(".cross_attention.")[0] for name in tensors if ".cross_attention." in name}
    found, parts = {}, dict[str, dict[str, Tensor]]()
    for name, tensor in tensors.items():
        if name.endswith(".position_ids"):
            continue
        block, _, rest = name.partition(".self_attention.")
        if rest:
            name = f"{block}.{'self_attn' if block in blocks else 'attention'}.{rest}"
        name = name.replace(".cross_attention.", ".attention.").replace(".out_projection.", ".out_proj.")
        for ours, theirs in (("linear1", "conv1"), ("linear2", "conv2")):
            if f".{theirs}." in name:
                name = name.replace(f".{theirs}.", f".{ours}.")
                tensor = tensor[..., 0] if tensor.ndim == 3 else tensor
        attention, _, projection = name.rpartition(".attention." if ".attention." in name else ".self_attn.")
        part, _, what = projection.partition(".")
        if part in PARTS:
            kept = name.removesuffix(projection) + f"in_proj_{what}"
            parts.setdefault(kept, {})[part] = tensor
        else:
            found[name] = tensor
    for name, three in parts.items():
        if set(three) == set(PARTS):  # else what is missing is told by the model that lacks it
            found[name] = torch.cat([three[part] for part in PARTS])
    return found

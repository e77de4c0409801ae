"""Post-norm blocks with GELU, as GateHUB and OadTR have them, and published tensors of such in their shapes."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.layers.transformer import Attention

PARTS = ("query_projection", "key_projection", "value_projection")


class Block(nn.Module):
    """One attention and a feed-forward, each added and then normalised."""

    def __init__(self, d_model: int, n_heads: int, d_feedforward: int, dropout: float) -> None:
        super().__init__()
        self.attention = Attention(d_model, n_heads, dropout)
        self.linear1 = nn.Linear(d_model, d_feedforward)
        self.linear2 = nn.Linear(d_feedforward, d_model)
        self.norm2 = nn.LayerNorm(d_model)
        self.norm3 = nn.LayerNorm(d_model)
        self.dropout = nn.Dropout(dropout)

    def after(self, x: Tensor, attended: Tensor) -> Tensor:
        """Tokens x (..., N, D) after the attention output joins them, and the feed-forward that follows."""
        x = self.norm2(x + self.dropout(attended))
        hidden = self.linear2(self.dropout(F.gelu(self.linear1(x))))
        return self.norm3(x + self.dropout(hidden))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (B, N, D) looks at memory (B, M, D); the mask is as of `Attention.attend`."""
        return self.after(x, self.attention(x, memory, mask))


class CausalBlock(Block):
    """A causal self-attention before the attention to a memory."""

    def __init__(self, d_model: int, n_heads: int, d_feedforward: int, dropout: float) -> None:
        super().__init__(d_model, n_heads, d_feedforward, dropout)
        self.self_attn = Attention(d_model, n_heads, dropout)
        self.norm1 = nn.LayerNorm(d_model)

    def after_self(self, x: Tensor, attended: Tensor) -> Tensor:
        """Tokens x (..., N, D) after the self-attention output joins them."""
        return self.norm1(x + self.dropout(attended))

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor | None = None) -> Tensor:
        """x (B, N, D), each token looking at those up to itself and then at memory (B, M, D)."""
        queries, (keys, values) = self.self_attn.queries(x), self.self_attn.keys_values(x)
        x = self.after_self(x, self.self_attn.attend(queries, keys, values, causal=True))
        return super().forward(x, memory, mask)


def packed_blocks(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Published tensors of blocks under the names of `CausalBlock`; tables of row numbers are left out.

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

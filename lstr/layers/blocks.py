"""Post-norm blocks with GELU, as GateHUB and OadTR have them."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from lstr.layers.transformer import Attention


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

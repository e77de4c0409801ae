"""What features and positions become tokens by."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from lstr.models.transformer import sinusoid


class Head(nn.Module):
    """Layers that a chunk's features (..., D) enter through."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.input_linear = nn.Sequential(*layers)

    def forward(self, features: Tensor) -> Tensor:
        """(..., D) to (..., width)."""
        return self.input_linear(features)


class FeatureHead(Head):
    """Linear and ReLU from a chunk's features (..., D) to tokens (..., d_model)."""

    def __init__(self, input_dim: int, d_model: int) -> None:
        super().__init__(nn.Linear(input_dim, d_model), nn.ReLU())


class PositionalEncoding(nn.Module):
    """Adds rows of a sinusoid table to tokens, then drops out. The table is saved with the weights, as published."""

    pe: Tensor

    def __init__(self, length: int, d_model: int, dropout: float) -> None:
        super().__init__()
        self.register_buffer("pe", sinusoid(length, d_model).unsqueeze(1))  # (length, 1, d_model)
        self.dropout = nn.Dropout(dropout)

    def rows(self, positions: Tensor) -> Tensor:
        """Table rows (..., d_model) of positions (...)."""
        return self.pe[:, 0][positions]

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Tokens (B, N, d_model) with positions (N,) or (B, N)."""
        return self.dropout(tokens + self.rows(positions))


class Scaled(nn.Module):
    """Each feature times a number plus a number, neither of them trained: what brings features to one scale."""

    weight: Tensor
    bias: Tensor

    def __init__(self, width: int) -> None:
        super().__init__()
        self.register_buffer("weight", torch.ones(width))
        self.register_buffer("bias", torch.zeros(width))

    def forward(self, features: Tensor) -> Tensor:
        """(..., D) to the same shape."""
        return features * self.weight + self.bias

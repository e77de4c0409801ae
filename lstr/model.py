"""The Long Short-Term Transformer (Xu et al., NeurIPS 2021), with the parameter names of the published code."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lstr import memory
from lstr.config import LSTRConfig
from lstr.errors import LstrError
from lstr.transformer import DecoderLayer, EncoderLayer, Stack, sinusoid

PUBLISHED_POSITIONS = 5000
"""Rows of the position table in published checkpoints."""


class FeatureHead(nn.Module):
    """Linear and ReLU from a chunk's features (..., D) to tokens (..., d_model)."""

    def __init__(self, input_dim: int, d_model: int) -> None:
        super().__init__()
        self.input_linear = nn.Sequential(nn.Linear(input_dim, d_model), nn.ReLU())

    def forward(self, features: Tensor) -> Tensor:
        """(..., D) to (..., d_model)."""
        return self.input_linear(features)


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


class LSTR(nn.Module):
    """Two-stage memory encoder and causal decoder (paper, sections 3.2 to 3.4).

    Positions: with "slot", long tokens take 0 .. n_long - 1, oldest first, and work tokens n_long and up, whatever
    the stride (published code). With "distance", a token takes its distance in chunks to the newest work
    slot, 0 being the newest (paper, section 3.3); see `lstr.memory.long_distances`.
    """

    def __init__(self, config: LSTRConfig, n_classes: int) -> None:
        super().__init__()
        self.config = config
        self.n_classes = n_classes
        d_model = config.d_model
        shape = (d_model, config.n_heads, config.d_feedforward, config.dropout)
        # In the published order, which is also that of the parameters in a published optimizer state.
        if config.n_long:
            self.feature_head_long = FeatureHead(config.input_dim, d_model)
        self.feature_head_work = FeatureHead(config.input_dim, d_model)
        self.pos_encoding = PositionalEncoding(table_length(config), d_model, config.dropout)
        if config.n_long:
            self.enc_queries = nn.ModuleList([nn.Embedding(config.n0, d_model), nn.Embedding(config.n1, d_model)])
            self.enc_modules = nn.ModuleList(
                [Stack(DecoderLayer(*shape), 1, d_model), Stack(DecoderLayer(*shape), config.l_enc, d_model)]
            )
            self.dec_modules = Stack(DecoderLayer(*shape), config.l_dec, d_model)
        else:
            self.dec_modules = Stack(EncoderLayer(*shape), config.l_dec, d_model)
        self.classifier = nn.Linear(d_model, n_classes)

    def forward(
        self,
        long: Tensor | None,
        long_mask: Tensor | None,
        work: Tensor,
        work_mask: Tensor | None = None,
        distances: Tensor | None = None,
    ) -> Tensor:
        """Logits (B, W, C) of every work chunk, each seeing only the work chunks up to itself.

        long (B, n_long, D) and long_mask (B, n_long) bool, True = visible; both are ignored without a long memory.
        work (B, W, D) with W <= work_length: the first W slots. work_mask (B, W) bool, True = present, is only
        needed when absent slots do not come last. distances (B, n_long) int, from `lstr.memory.long_distances`,
        is needed with positions "distance". Raises LstrError on shapes that do not fit.
        """
        if self.config.n_long and (long is None or long_mask is None):
            raise LstrError("The model has a long memory but none was given.", "Pass long and long_mask.")
        for name, features in (("work", work), ("long", long if self.config.n_long else work)):
            if features.shape[-1] != self.config.input_dim:
                raise LstrError(
                    f"{name} features are {features.shape[-1]} wide, the model takes {self.config.input_dim}.",
                    "Join rgb and flow in this order, from the recipe the model was trained on.",
                )
        tokens = self.feature_head_long(long) if self.config.n_long else None  # (B, n_long, d_model)
        return self.forward_tokens(tokens, long_mask, self.feature_head_work(work), work_mask, distances)

    def forward_tokens(
        self,
        long: Tensor | None,
        long_mask: Tensor | None,
        work: Tensor,
        work_mask: Tensor | None = None,
        distances: Tensor | None = None,
    ) -> Tensor:
        """As `forward`, from tokens (B, ., d_model) that have been through the feature heads already."""
        compressed = self.compress(long, long_mask, distances) if self.config.n_long else None
        return self.classifier(self.decode(work, compressed, work_mask))  # (B, W, C)

    def compress(self, long: Tensor, long_mask: Tensor, distances: Tensor | None = None) -> Tensor:
        """Long tokens (B, n_long, d_model) to n1 tokens (B, n1, d_model) (paper, section 3.3)."""
        B, n_long, _ = long.shape
        if n_long != self.config.n_long:
            raise LstrError(
                f"The long memory has {n_long} slots, the model takes {self.config.n_long}.",
                "Gather it with lstr.model.window, with the model's own config.",
            )
        if self.config.positions == "slot":
            positions = torch.arange(n_long, device=long.device)
        elif distances is None:
            raise LstrError('The model has positions "distance" but no distances were given.', "Pass distances.")
        else:
            positions = distances
        long = self.pos_encoding(long, positions)
        first, second = (query.weight.expand(B, -1, -1) for query in self.enc_queries)  # (B, n0 or n1, d_model)
        tokens = self.enc_modules[0](first, long, memory_mask=long_mask[:, None, None, :])  # (B, n0, d_model)
        return self.enc_modules[1](second, tokens)  # (B, n1, d_model)

    def decode(self, work: Tensor, compressed: Tensor | None, work_mask: Tensor | None = None) -> Tensor:
        """Work tokens (B, W, d_model), each joined with its past and the compressed memory (B, n1, d_model)."""
        W = work.shape[1]
        if not 0 < W <= self.config.work_length:
            raise LstrError(
                f"The work memory has {W} chunks, the model takes 1 to {self.config.work_length}.",
                "Gather it with lstr.model.window, with the model's own config.",
            )
        work = self.pos_encoding(work, self.work_positions(W))
        mask = torch.ones(W, W, dtype=torch.bool, device=work.device).tril()
        if work_mask is not None:
            # A slot sees itself even when absent: its output means nothing, but it must not be NaN.
            itself = torch.eye(W, dtype=torch.bool, device=work.device)
            mask = mask & (work_mask[:, None, None, :] | itself)  # (B, 1, W, W)
        return self.dec_modules(work, compressed, mask)

    def work_positions(self, W: int) -> Tensor:
        """Positions (W,) of the first W work slots."""
        slots = torch.arange(W, device=self.pos_encoding.pe.device)
        if self.config.positions == "slot":
            return self.config.n_long + slots
        return self.config.work_length - 1 - slots


def table_length(config: LSTRConfig) -> int:
    """Rows the position table needs: the published 5000, or more where the memory reaches further."""
    reach = config.n_long if config.positions == "slot" else config.long_length
    return max(PUBLISHED_POSITIONS, reach + config.work_length)


def window(features: Tensor | NDArray[np.float32], T: int, config: LSTRConfig) -> tuple[Tensor, Tensor, Tensor]:
    """What the window at chunk T sees of features (L, D): long (n_long, D), long_mask (n_long,), work (W, D).

    W is min(T + 1, work_length). Only chunks up to T are read. Raises LstrError when T is not in [0, L).
    """
    if not 0 <= T < len(features):
        raise LstrError(f"There is no window at chunk {T} of {len(features)}.", "Count chunks from 0.")
    long, long_mask = memory.long_indices(T, config)
    work, _ = memory.work_indices(T, config)
    seen_long, seen_work = (torch.as_tensor(features[chunks]).float() for chunks in (long, work))
    return seen_long, torch.from_numpy(long_mask).to(seen_work.device), seen_work

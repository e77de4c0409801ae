"""TTPP (Wang et al., Neurocomputing 2021), kind ttm: chunks ahead one by one, each from what the last one was.

After the description, for no code was published. The newest chunk looks at those of its window with one Transformer
layer; a small network, the same at every step, takes what that gave, the token imagined last and its probabilities to
the next token. What is said of the newest chunk itself is from its features alone.
"""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.models.encoder_decoder import TRAINING, Looking
from lstr.models.kind import Kind, Preset
from lstr.models.publication import OLD_ANET, Publication, anticipation
from lstr.models.transformer import sinusoid
from lstr.models.windowed import at_slot


class TTPPConfig(WindowConfig, frozen=True):
    """What a TTPP is made of."""

    uses: ClassVar[Uses] = Uses(long_memory=False, anticipation=True, ahead=8)

    kind: str = "ttm"


class TTPP(Looking):
    """A Transformer layer over `config.work_length` chunks, then `config.n_ahead` steps of progressive prediction.

    Positions are distances to the chunk that looks, so a stream keeps keys and values of its chunks.
    """

    table: Tensor

    def __init__(self, config: TTPPConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        self.token_dim = 3 * d_model
        self.query, self.key, self.value = (nn.Linear(d_model, d_model) for _ in range(3))
        self.attended = nn.Linear(d_model, d_model)
        self.norm1, self.norm2 = nn.LayerNorm(d_model), nn.LayerNorm(d_model)
        self.feedforward = nn.Sequential(
            nn.Linear(d_model, config.d_feedforward), nn.ReLU(), nn.Linear(config.d_feedforward, d_model)
        )
        self.progress = nn.Sequential(
            nn.Linear(2 * d_model + n_classes, d_model), nn.LayerNorm(d_model), nn.ReLU(), nn.Linear(d_model, d_model)
        )
        self.register_buffer("table", sinusoid(config.work_length, d_model), persistent=False)  # (W, d_model)

    def constants(self) -> tuple[Tensor, Tensor]:
        """What distances add to keys and to values, (W, d_model) each."""
        return F.linear(self.table, self.key.weight), F.linear(self.table, self.value.weight)

    def embed(self, features: Tensor) -> Tensor:
        """Features (..., D) to token, key and value (..., 3 * d_model), all without a position."""
        token = self.feature_head_work(features)
        return torch.cat([token, self.key(token), self.value(token)], dim=-1)

    def decide(self, tokens: Tensor, newest: Tensor, constants: tuple[Tensor, Tensor]) -> Tensor:
        """Logits (B, 1 + n_ahead, C) at the newest slot of windows of tokens (B, W, 3 * d_model)."""
        own = at_slot(tokens, newest)[:, None, : self.config.d_model]  # (B, 1, d_model)
        return self.progressed(own, self.looked(own, tokens, newest[:, None], constants))[0][:, 0]

    def imagine(self, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """Like `Looking.imagine`."""
        own = tokens[..., : self.config.d_model]
        slots = torch.arange(own.shape[1], device=own.device).expand(len(own), -1)
        return self.progressed(own, self.looked(own, tokens, slots, self.constants()))

    def looked(self, own: Tensor, tokens: Tensor, slots: Tensor, constants: tuple[Tensor, Tensor]) -> Tensor:
        """What chunks at slots (B, N), of tokens (B, N, d_model), find in those up to them of (B, W, 3 * d_model)."""
        H, (_, keys, values) = self.config.n_heads, tokens.chunk(3, dim=-1)
        back = slots[:, :, None] - torch.arange(tokens.shape[1], device=slots.device)  # (B, N, W) chunks
        keys, values = (
            part[:, None] + table[back.clamp(min=0)] for part, table in zip((keys, values), constants, strict=True)
        )  # (B, N, W, d_model)
        query = self.query(own + self.table[0]).unflatten(-1, (H, -1))  # (B, N, H, d)
        scores = torch.einsum("bnhd,bnwhd->bnhw", query, keys.unflatten(-1, (H, -1))) * query.shape[-1] ** -0.5
        weights = scores.masked_fill((back < 0)[:, :, None], float("-inf")).softmax(dim=-1)
        found = torch.einsum("bnhw,bnwhd->bnhd", weights, values.unflatten(-1, (H, -1))).flatten(-2)
        seen = self.norm1(own + self.dropout(self.attended(found)))
        return self.norm2(seen + self.dropout(self.feedforward(seen)))

    def progressed(self, own: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (..., 1 + n_ahead, C) and the tokens ahead (..., n_ahead, d_model), of two tokens (..., d_model)."""
        logits, ahead = [self.classify(own)], [own]
        for _ in range(self.config.n_ahead):
            told = torch.cat([seen, ahead[-1], logits[-1].softmax(dim=-1)], dim=-1)
            ahead.append(self.progress(told))
            seen = seen + ahead[-1]
            logits.append(self.classify(ahead[-1]))
        return torch.stack(logits, dim=-2), torch.stack(ahead[1:], dim=-2)


KIND = Kind(
    TTPP,
    TTPPConfig,
    Publication(
        "TTPP",
        "TTPP: Temporal Transformer with Progressive Prediction for Efficient Action Anticipation, Wang et al., "
        "Neurocomputing 2021",
        "https://arxiv.org/abs/2003.03530",
        "",
        "no code found",
        "sizes and the progressive network are ours; TTM is what the LSTR paper calls it",
        (),
        anticipation(40.9, 77.9, OLD_ANET, presets=("ttm-thumos14",)),
        ("the published training is not known",),
    ),
    {"ttm-thumos14": Preset(TTPPConfig(n_heads=4, dropout=0.1, work_length=16), TRAINING)},
)

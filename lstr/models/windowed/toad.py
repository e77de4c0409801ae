"""TOAD (arXiv 2501.13518): CLIP's vectors of single frames, a small transformer over them, and texts as classifier.

After a description of the published code, which has the licence GPL-3.0; nothing of it was copied. The vectors of the
last chunks get learnt positions and go through pre-norm blocks; what comes out is added to what went in, and the mean
over the window is brought to length 1. Its products with the vectors of the classes' names are the logits of the newest
chunk, those of one more layer with the vectors of other names the logits of the chunk after it. The vectors of names
are no weights: nothing learns them.

In a window that is younger than its length, the chunks that are missing have no part; the published code has no such
windows. Features of another width than `d_model` go through one linear layer first, which the published code has not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.errors import ConfigError
from lstr.layers.heads import Head, Scaled
from lstr.layers.transformer import module_list
from lstr.metrics.scoring_rule import TOAD_RULE
from lstr.models.kind import Kind, Preset
from lstr.models.publication import Publication, Result
from lstr.models.windowed.windowed import Windowed
from lstr.windows.loss import Supervision, loss_of
from lstr.windows.windows import Outputs, Part, Windows

PLACES = 77
"""Rows of the table of positions, as many as CLIP's texts have tokens; a window is not longer."""
SCALE = 100.0
"""What products of vectors of length 1 are multiplied by: CLIP's last temperature, constant here."""
NEXT_WEIGHT = 0.5
"""What the loss of the next chunk weighs."""
EPS = 1e-12
"""What layer norms add to a variance"""
SPREAD = 0.02
"""Standard deviation of weights before training"""


class QuickGELU(nn.Module):
    """CLIP's approximation of GELU: x times the logistic function of 1.702 x."""

    def forward(self, x: Tensor) -> Tensor:
        """The same shape."""
        return x * torch.sigmoid(1.702 * x)


class TextVectors(nn.Linear):
    """A vector of length 1 for each class, as a linear layer without bias whose weight (C, D) is a buffer.

    They are random until they are given.
    """

    def __init__(self, width: int, n_classes: int) -> None:
        super().__init__(width, n_classes, bias=False)
        del self.weight
        self.register_buffer("weight", F.normalize(torch.randn(n_classes, width), dim=-1))


class ResidualBlock(nn.Module):
    """CLIP's block: attention of normalised tokens, then an MLP of normalised tokens, each added to what it was of."""

    def __init__(self, d_model: int, n_heads: int, d_feedforward: int, dropout: float) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.norm1 = nn.LayerNorm(d_model, EPS)
        self.qkv = nn.Linear(d_model, 3 * d_model)
        self.proj = nn.Linear(d_model, d_model)
        self.norm2 = nn.LayerNorm(d_model, EPS)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, d_feedforward), QuickGELU(), nn.Dropout(dropout), nn.Linear(d_feedforward, d_model)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, absent: Tensor) -> Tensor:
        """x (B, W, D) to (B, W, D), absent (B, W) bool: slots that are not looked at."""
        parts = self.qkv(self.norm1(x)).unflatten(-1, (3, self.n_heads, -1))  # (B, W, 3, n_heads, D / n_heads)
        queries, keys, values = parts.permute(2, 0, 3, 1, 4)  # (B, n_heads, W, D / n_heads) each
        scores = queries @ keys.transpose(-1, -2) * queries.shape[-1] ** -0.5
        weights = self.dropout(scores.masked_fill(absent[:, None, None], float("-inf")).softmax(dim=-1))
        x = x + self.dropout(self.proj((weights @ values).transpose(1, 2).flatten(2)))
        return x + self.dropout(self.mlp(self.norm2(x)))


@dataclass(frozen=True)
class TOADConfig(WindowConfig):
    """What a TOAD is made of: `l_enc` blocks, of which there may be none."""

    uses: ClassVar[Uses] = Uses(long_memory=False, ahead=1, texts=True)
    least: ClassVar[dict[str, int]] = {**WindowConfig.least, "l_enc": 0}

    kind: str = "toad"
    next_chunk: bool = True
    """Whether it scores the chunk after the newest too."""

    @property
    def n_ahead(self) -> int:
        """Chunks ahead of the newest that the model predicts."""
        return int(self.next_chunk)

    def check(self) -> None:
        """Like `WindowConfig.check`."""
        super().check()
        if self.work_length > PLACES:
            raise ConfigError(
                f"work_length is {self.work_length}, and kind toad has {PLACES} positions.",
                f"Give a work_length of {PLACES} at most.",
            )


class TOAD(Windowed):
    """`config.l_enc` blocks over `config.work_length` chunks, and the vectors of two texts for each class."""

    config: TOADConfig
    scoring_rule = TOAD_RULE

    def __init__(self, config: TOADConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        width = self.token_dim = config.d_model
        fits = config.input_dim == width
        self.feature_head_work = Head(Scaled(width) if fits else nn.Linear(config.input_dim, width))
        self.positions = nn.Embedding(PLACES, width)
        self.blocks: Sequence[ResidualBlock] = module_list(
            ResidualBlock(width, config.n_heads, config.d_feedforward, config.dropout) for _ in range(config.l_enc)
        )
        self.classifier = TextVectors(width, n_classes)
        if config.next_chunk:
            self.next_norm = nn.LayerNorm(width, EPS)
            self.next_classifier = TextVectors(width, n_classes)
        self.apply(_begin)

    def outputs(self) -> Outputs:
        """The newest chunk, and the one after it, whose mean weighs half as much in the loss."""
        n = 1 + self.config.n_ahead
        parts = (Part(np.array([0])), Part(np.array([1]), NEXT_WEIGHT))
        return Outputs(np.full(n, -1), np.arange(n), parts[:n])

    def take_texts(self, now: Tensor, after: Tensor) -> None:
        """Take the vectors (C, D) of the classes' texts, of the newest chunk and of the next; they get length 1.

        A row of zeros stays: a class without a text. Raises ConfigError where they are of another shape.
        """
        wanted = tuple(self.classifier.weight.shape)
        layers = [self.classifier, *([self.next_classifier] if self.config.next_chunk else [])]
        for vectors, layer in zip((now, after), layers, strict=False):
            if tuple(vectors.shape) != wanted:
                raise ConfigError(
                    f"The text vectors are {' × '.join(map(str, vectors.shape))} (classes × width), and the model has "
                    f"{wanted[0]} × {wanted[1]}.",
                    f"Give --set model.d_model={vectors.shape[-1]}, and text vectors of the same classes.",
                )
            layer.weight.copy_(F.normalize(vectors.to(layer.weight), dim=-1))

    def embed(self, features: Tensor) -> Tensor:
        """Features (..., D) to tokens (..., d_model): CLIP's vectors as they are."""
        return self.feature_head_work(features)

    def forward(self, windows: Windows) -> Tensor:
        """Logits (B, 1 + n_ahead, C)."""
        return self.decide(self.embed(windows.work), windows.work_mask.sum(dim=1) - 1, None)

    def decide(self, tokens: Tensor, newest: Tensor, constants: Any) -> Tensor:
        """Logits (B, 1 + n_ahead, C) of windows of tokens (B, W, d_model) up to the slot `newest` (B,)."""
        W = tokens.shape[1]
        absent = torch.arange(W, device=tokens.device) > newest[:, None]  # (B, W)
        x = tokens + self.positions.weight[:W]
        for block in self.blocks:
            x = block(x, absent)
        x = (x + tokens).masked_fill(absent[..., None], 0)
        vector = F.normalize(x.sum(dim=1) / (newest[:, None] + 1), dim=-1)  # (B, d_model)
        scores = [self.classifier(vector)]
        if self.config.next_chunk:
            scores.append(self.next_classifier(F.relu(self.next_norm(vector))))
        return SCALE * torch.stack(scores, dim=1)

    def loss(self, forwarded: Tensor, windows: Windows, supervision: Supervision) -> Tensor:
        """Like `Model.loss`, of the first label alone where a chunk has several."""
        targets = supervision.targets
        first = torch.zeros_like(targets).scatter(-1, targets.argmax(dim=-1, keepdim=True), 1)
        first = first * targets.any(dim=-1, keepdim=True)
        if (ambiguous := supervision.ignore) is not None:  # it is what leaves the chunk out
            first[..., ambiguous] = targets[..., ambiguous]
        return loss_of(forwarded, self.outputs(), replace(supervision, targets=first))


def _begin(module: nn.Module) -> None:
    """Weights before training: normal with a small deviation, biases 0; vectors of texts stay."""
    if isinstance(module, TextVectors):
        return
    if isinstance(module, nn.Linear | nn.Embedding):
        nn.init.normal_(module.weight, std=SPREAD)
    if isinstance(module, nn.Linear) and module.bias is not None:
        nn.init.zeros_(module.bias)


PUBLISHED = TOADConfig(
    rgb_dim=512, flow_dim=0, d_model=512, n_heads=8, d_feedforward=2048, dropout=0.0, work_length=8, l_enc=6
)
TRAINING: dict[str, Any] = {
    "epochs": 30,
    "batch_size": 32,
    "lr": 5e-5,
    "weight_decay": 0.2,
    "optimiser": "adamw",
    "warmup_epochs": 5.0,
    "windows": "every",
    "stride": 1,
    "background": "cut",
    "seed": 1024,
}

KIND = Kind(
    TOAD,
    TOADConfig,
    Publication(
        "TOAD",
        "Text-driven Online Action Detection, Benavent-Lledo et al., Integrated Computer-Aided Engineering 2025",
        "https://arxiv.org/abs/2501.13518",
        "",
        "GPL-3.0, not looked at",
        "from a table of what the published code does; the epsilon of the next chunk's norm and windows younger than "
        "their length are ours; its 82.46 mAP on THUMOS'14 is of action frames alone (`lstr evaluate --protocol toad`)",
        results=(
            Result(
                "THUMOS'14 mAP, of action frames alone",
                82.46,
                "CLIP ViT-B/16 of RGB",
                "the paper's abstract",
                ("toad-thumos14",),
            ),
        ),
    ),
    {
        "toad-thumos14": Preset(PUBLISHED, TRAINING),
        **{f"toad-{k}-shot": Preset(PUBLISHED, TRAINING | {"shots": k}) for k in (1, 2, 4, 8)},
    },
)

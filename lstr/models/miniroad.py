"""MiniROAD (An et al., ICCV 2023): a GRU on one layer of features, trained on nothing but the last chunk of a window.

A training window is 128 chunks long and begins at a state of zeros; where the video is younger, rows of zeros stand
before it. Its loss is that of the newest chunk, so that the state is judged by what it has come to, not by what it says
after a few chunks. A video and a stream carry the state on without end.
"""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lstr.config import Size, Uses, WindowConfig
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.heads import Head
from lstr.models.kind import Kind, Preset
from lstr.models.publication import KINETICS, Publication, Result
from lstr.models.published import Published, Tables
from lstr.models.recurrent import Recurrent
from lstr.models.stream import Tensors
from lstr.windows.windows import Outputs, Windows

# First part of a published tensor's name to ours.
PUBLISHED_NAMES = {
    "layer1.0.": "feature_head_work.input_linear.0.",
    "layer1.1.": "feature_head_work.input_linear.1.",
    "gru.": "recurrent.",
    "f_classification.0.": "classifier.",
    "anticipation_layer.0.": "anticipate.",
}


class MiniROADConfig(WindowConfig, frozen=True):
    """What a MiniROAD is made of."""

    uses: ClassVar[Uses] = Uses(long_memory=False, anticipation=True, heads=False)

    kind: str = "miniroad"
    n_layers: Size = 1
    """Layers of the GRU."""


class MiniROAD(Recurrent):
    """A GRU of `config.d_model` on features of width `config.d_feedforward`.

    With `config.anticipation`, a linear layer makes one token for each chunk ahead, all of them before the one
    classifier; the loss is then theirs alone, as published.
    """

    config: MiniROADConfig
    feature_head_work: Head

    def __init__(self, config: MiniROADConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        width = config.d_feedforward
        self.feature_head_work = Head(
            nn.Linear(config.input_dim, width), nn.LayerNorm(width), nn.ReLU(), nn.Dropout(config.dropout)
        )
        self.state_names = ("hidden", *(f"hidden.{layer}" for layer in range(1, config.n_layers)))
        self.recurrent = nn.GRU(config.d_feedforward, config.d_model, config.n_layers, batch_first=True)
        if config.anticipation:
            self.anticipate = nn.Linear(config.d_model, config.anticipation * config.d_model)

    scoring_rule = ScoringRule("MiniROAD", "every", "ignored")

    def outputs(self) -> Outputs:
        """The newest chunk; with anticipation, the chunks after it instead."""
        ahead = np.arange(1, self.config.anticipation + 1) if self.config.anticipation else np.zeros(1, dtype=np.int64)
        return Outputs(np.full(len(ahead), -1, dtype=np.int64), ahead.astype(np.int64))

    def forward(self, windows: Windows) -> Tensor:
        """Logits (B, 1, C), or (B, anticipation, C) with anticipation."""
        tokens = self.feature_head_work(windows.newest_last())  # (B, W, d_feedforward)
        hidden, _ = self.recurrent(tokens)  # (B, W, d_model)
        logits = self._scores(hidden[:, -1])  # (B, 1 + n_ahead, C)
        return logits[:, 1:] if self.config.anticipation else logits

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Tokens (B, T, d_feedforward) from a state on: logits (B, T, 1 + n_ahead, C), and the state after them."""
        if tokens.shape[1] == 1:
            last, after = tokens[:, 0], {}
            for name, weights in zip(self.state_names, self.recurrent.all_weights, strict=True):
                after[name] = last = torch.gru_cell(last, state[name], *weights)  # (B, d_model)
            return self._scores(last)[:, None], after
        hidden, states = self.recurrent(tokens, torch.stack([state[name] for name in self.state_names]))
        return self._scores(hidden), dict(zip(self.state_names, states, strict=True))

    def _scores(self, hidden: Tensor) -> Tensor:
        """Hidden states (..., d_model) to logits (..., 1 + n_ahead, C)."""
        tokens = hidden.relu()[..., None, :]  # (..., 1, d_model)
        if self.config.anticipation:
            ahead = self.anticipate(tokens[..., 0, :]).relu().unflatten(-1, (self.config.anticipation, -1))
            tokens = torch.cat([tokens, ahead], dim=-2)  # (..., 1 + n_ahead, d_model)
        return self.classifier(tokens)


README = "MiniROAD's README"
PUBLISHED = MiniROADConfig(d_feedforward=2048, work_length=128)
TRAINING = {
    "epochs": 10,
    "lr": 1e-4,
    "weight_decay": 0.05,
    "optimiser": "adamw",
    "schedule": "constant",
    "windows": "every",
    "targets": "unit",
    "ambiguous": "class",
}


class PublishedMiniROAD(Published):
    """The published code of MiniROAD."""

    config = PUBLISHED
    marks = ("layer1.0.weight gru.weight_ih_l0", "feature_head_work.input_linear.1.weight recurrent.weight_ih_l0")
    names = PUBLISHED_NAMES
    sizes = {"d_feedforward": ("feature_head_work.input_linear.0.weight", 0)}
    layers = {"n_layers": "recurrent.weight_ih_l"}
    needed = ("d_feedforward",)

    def shapes(self, tensors: Tables) -> dict[str, int]:
        """Like `Published.shapes`, with `anticipation`."""
        found = super().shapes(tensors)
        ahead = len(tensors["anticipate.weight"]) if "anticipate.weight" in tensors else 0
        return {**found, "anticipation": ahead // max(1, found.get("d_model", 1))}


KIND = Kind(
    MiniROAD,
    MiniROADConfig,
    Publication(
        "MiniROAD",
        "MiniROAD: Minimal RNN Framework for Online Action Detection, An et al., ICCV 2023",
        "",
        "jbistanbul/MiniROAD @ 8307131",
        "Apache-2.0 by its README, without a licence file",
        "within 1e-5 in logits, losses and gradients too",
        ("miniroad_small", "miniroad_anticipation_small"),
        (
            Result("THUMOS'14 mAP", 71.8, KINETICS, README, ("miniroad-thumos14",)),
            Result("THUMOS'14 mAP", 68.4, "RGB of Kinetics, flow by NVOF", README),
            Result("TVSeries mcAP", 89.6, "RGB and flow by ResNet-50 of Kinetics", README, ("miniroad-tvseries",)),
            Result("FineAction mAP", 37.1, "I3D", README),
        ),
    ),
    {
        "miniroad-thumos14": Preset(PUBLISHED, TRAINING),
        "miniroad-tvseries": Preset(PUBLISHED, {**TRAINING, "batch_size": 64, "metric": "mcAP"}),
    },
    PublishedMiniROAD(),
)

"""Recurrent kinds: their common base, the plain RNN of the LSTR paper, and MiniROAD.

Training starts from a zero state at the first chunk of the work memory. A video and a stream carry the state on from
their first chunk.
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lstr.config import Size, Uses, WindowConfig
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.kind import SMALL_TRAINING, Kind, Model, Preset
from lstr.models.layers import FeatureHead, Head, Step, Tensors, reset_fresh
from lstr.models.published import Published, Tables, read_publication
from lstr.windows.plans import States
from lstr.windows.windows import Outputs, Windows, in_order


class Recurrent(Model):
    """What recurrent kinds share: all but `run`, which takes tokens through the cells."""

    feature_head_work: Head
    plans = States

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        self.feature_head_work = FeatureHead(config.input_dim, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.d_model, n_classes)

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors, Any]:
        """Return logits (B, T, 1 + n_ahead, C) of tokens (B, T, d_model) from a state on, and the state after them.

        Also return what else `forward` needs for the loss; None by default.
        """
        raise NotImplementedError

    def forward(self, windows: Windows) -> Tensor:
        """Return logits (B, W * (1 + n_ahead), C) in the order of `outputs`, from the work memory alone."""
        tokens = self.feature_head_work(windows.work)  # (B, W, d_model)
        logits, *_ = self.run(tokens, self.begin(len(tokens)))  # (B, W, 1 + n_ahead, C)
        return in_order(logits)

    def video_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        """See `Model.video_logits`; one pass, without windows."""
        logits, *_ = self.run(self.feature_head_work(features)[None], self.begin(1))
        return logits[0]

    def step(self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False) -> Step:
        state = {name: reset_fresh(tensor, plan.get("fresh")) for name, tensor in tensors.items()}
        logits, after, _ = self.run(self.feature_head_work(features)[:, None], state)  # (B, 1, 1 + n_ahead, C)
        return logits[:, 0], after


class RNNConfig(WindowConfig, frozen=True):
    uses: ClassVar[Uses] = Uses(long_memory=False, heads=False)

    kind = "rnn"
    cell: Literal["lstm", "gru"] = "lstm"
    """lstm or gru."""
    deltas: bool = False
    """Also give the cell the change of each token since the previous chunk, as delta features of speech recognition."""


class RNN(Recurrent):
    """One layer of LSTM or GRU, `config.cell`, between the feature head and the classifier."""

    config: RNNConfig

    def __init__(self, config: RNNConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        layer = nn.LSTM if config.cell == "lstm" else nn.GRU
        names = ("hidden", *(["cell"] if config.cell == "lstm" else []), *(["token"] if config.deltas else []))
        self.memory_shapes = dict.fromkeys(names, (config.d_model,))
        self.recurrent = layer(config.d_model * (1 + config.deltas), config.d_model, batch_first=True)

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors, None]:
        newest = {}
        if self.config.deltas:
            before = torch.cat([state["token"][:, None], tokens[:, :-1]], 1)
            newest["token"] = tokens[:, -1]
            tokens = torch.cat([tokens, tokens - before], -1)
        if self.config.cell == "lstm" and tokens.shape[1] == 1:
            # On a CPU nn.LSTM first packs its weights, which takes ten times as long as the one step of a stream.
            weights = self.recurrent.all_weights[0]
            last, cell = torch.lstm_cell(tokens[:, 0], (state["hidden"], state["cell"]), *weights)  # (B, d_model) each
            hidden, after = last[:, None], {"hidden": last, "cell": cell}
        elif self.config.cell == "lstm":
            hidden, (last, cell) = self.recurrent(tokens, (state["hidden"][None], state["cell"][None]))
            after = {"hidden": last[0], "cell": cell[0]}
        else:
            hidden, last = self.recurrent(tokens, state["hidden"][None])
            after = {"hidden": last[0]}
        return self.classifier(self.dropout(hidden))[:, :, None], after | newest, None


class MiniROADConfig(WindowConfig, frozen=True):
    uses: ClassVar[Uses] = Uses(long_memory=False, anticipation=True, heads=False)

    kind = "miniroad"
    n_layers: Size = 1
    """Layers of the GRU."""


class MiniROAD(Recurrent):
    """A GRU of `config.d_model` on features of width `config.d_feedforward` (An et al., ICCV 2023).

    A training window is 128 chunks long and starts at a state of zeros; where the video is younger, rows of zeros come
    before it. Its loss is that of the newest chunk alone.

    With `config.anticipation`, a linear layer makes one token for each chunk ahead, all of them before the one
    classifier; the loss is then theirs alone, as published.
    """

    config: MiniROADConfig
    scoring_rule = ScoringRule("MiniROAD", "every", "ignored")

    def __init__(self, config: MiniROADConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        width = config.d_feedforward
        self.feature_head_work = Head(
            nn.Linear(config.input_dim, width), nn.LayerNorm(width), nn.ReLU(), nn.Dropout(config.dropout)
        )
        self.recurrent = nn.GRU(config.d_feedforward, config.d_model, config.n_layers, batch_first=True)
        names = ("hidden", *(f"hidden.{layer}" for layer in range(1, config.n_layers)))
        self.memory_shapes = dict.fromkeys(names, (config.d_model,))
        if config.anticipation:
            self.anticipate = nn.Linear(config.d_model, config.anticipation * config.d_model)

    def outputs(self) -> Outputs:
        """Return the newest chunk; with anticipation, the chunks after it instead."""
        ahead = np.arange(1, self.config.anticipation + 1) if self.config.anticipation else np.zeros(1, dtype=np.int64)
        return Outputs(np.full(len(ahead), -1, dtype=np.int64), ahead.astype(np.int64))

    def forward(self, windows: Windows) -> Tensor:
        """Return logits (B, 1, C), or (B, anticipation, C) with anticipation."""
        tokens = self.feature_head_work(windows.newest_last())  # (B, W, d_feedforward)
        # the loss is of the newest chunk alone, so that a state is not judged after a few chunks
        hidden, _ = self.recurrent(tokens)  # (B, W, d_model)
        logits = self._scores(hidden[:, -1])  # (B, 1 + n_ahead, C)
        return logits[:, 1:] if self.config.anticipation else logits

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors, None]:
        """See `Recurrent.run`; the tokens are (B, T, d_feedforward)."""
        if tokens.shape[1] == 1:
            last, after = tokens[:, 0], {}
            for name, weights in zip(self.memory_shapes, self.recurrent.all_weights, strict=True):
                after[name] = last = torch.gru_cell(last, state[name], *weights)  # (B, d_model)
            return self._scores(last)[:, None], after, None
        hidden, states = self.recurrent(tokens, torch.stack([state[name] for name in self.memory_shapes]))
        return self._scores(hidden), dict(zip(self.memory_shapes, states, strict=True)), None

    def _scores(self, hidden: Tensor) -> Tensor:
        """Return logits (..., 1 + n_ahead, C) of hidden states (..., d_model)."""
        tokens = hidden.relu()[..., None, :]  # (..., 1, d_model)
        if self.config.anticipation:
            ahead = self.anticipate(tokens[..., 0, :]).relu().unflatten(-1, (self.config.anticipation, -1))
            tokens = torch.cat([tokens, ahead], dim=-2)  # (..., 1 + n_ahead, d_model)
        return self.classifier(tokens)


SMALL = RNNConfig(d_model=128, dropout=0.3, work_length=32, long_length=0)
# The best of all kinds on data sets of minutes (docs/explanation/results.md). Soft targets raised mAP by .004 to .008
# on UT-Interaction and UR Fall, with each seed.
PRESETS = {"rnn-small": Preset(SMALL, {**SMALL_TRAINING, "targets": "soft"}, for_little_video=True)}
KIND = Kind(RNN, RNNConfig, read_publication("rnn"), PRESETS)
PUBLISHED = MiniROADConfig(d_feedforward=2048, work_length=128)
TRAINING: dict[str, Any] = dict(windows="every", targets="unit", ambiguous="class")
TRAINING |= dict(epochs=10, lr=1e-4, weight_decay=0.05, optimiser="adamw", schedule="constant")


class PublishedMiniROAD(Published):
    """The published code of MiniROAD."""

    config = PUBLISHED
    marks = ("layer1.0.weight gru.weight_ih_l0", "feature_head_work.input_linear.1.weight recurrent.weight_ih_l0")
    names = {
        "layer1.0.": "feature_head_work.input_linear.0.",
        "layer1.1.": "feature_head_work.input_linear.1.",
        "gru.": "recurrent.",
        "f_classification.0.": "classifier.",
        "anticipation_layer.0.": "anticipate.",
    }
    sizes = {
        "d_feedforward": ("feature_head_work.input_linear.0.weight", 0),
        "ahead_width": ("anticipate.weight", 0),
    }
    layers = {"n_layers": "recurrent.weight_ih_l"}
    optional = ("ahead_width",)

    def settings(self, tensors: Tables, changes: Mapping[str, Any]) -> dict[str, Any]:
        known = super().settings(tensors, changes)
        return {"anticipation": known.pop("ahead_width", 0) // max(1, known["d_model"]), **known}


MINIROAD_PRESETS = {
    "miniroad-thumos14": Preset(PUBLISHED, TRAINING),
    "miniroad-tvseries": Preset(PUBLISHED, {**TRAINING, "batch_size": 64, "metric": "mcAP"}),
}
MINIROAD_KIND = Kind(MiniROAD, MiniROADConfig, read_publication("miniroad"), MINIROAD_PRESETS, PublishedMiniROAD())

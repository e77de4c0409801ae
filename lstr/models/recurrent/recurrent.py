"""The recurrent baselines of the LSTR paper: a plain RNN, and the Temporal Recurrent Network (Xu et al., ICCV 2019).

Training starts from a zero state at the first chunk of the work memory; a video and a stream carry the state on from
their first chunk, so that what they remember has no bound but the cell's own forgetting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lstr.config import LSTRConfig
from lstr.layers.heads import FeatureHead
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.kind import Model
from lstr.models.stream import Plan, Tensors, begun
from lstr.windows.windows import Outputs, Part, Windows


class Recurrent(Model):
    """What RNN and TRN share: all but `run`, which takes tokens through the cells."""

    feature_head_work: nn.Module
    state_names: tuple[str, ...]
    """Tensors (B, d_model) that go on from one chunk to the next."""

    def __init__(self, config: LSTRConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        self.feature_head_work = FeatureHead(config.input_dim, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.d_model, n_classes)

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Tokens (B, T, d_model) from a state on: logits (B, T, 1 + n_ahead, C), and the state after them."""
        raise NotImplementedError

    def outputs(self) -> Outputs:
        """Every work slot, then for every work slot the n_ahead chunks that follow it."""
        W, ahead = self.config.work_length, self.config.n_ahead
        slots = np.arange(W)
        return Outputs(
            np.concatenate([slots, np.repeat(slots, ahead)]),
            np.concatenate([np.zeros(W, dtype=np.int64), np.tile(np.arange(1, ahead + 1), W)]),
        )

    def forward(self, windows: Windows) -> Tensor:
        """Logits (B, W * (1 + n_ahead), C), in the order of `outputs`; a recurrent kind sees the work memory alone."""
        tokens = self.feature_head_work(windows.work)  # (B, W, d_model)
        logits, _ = self.run(tokens, self.begin(len(tokens)))  # (B, W, 1 + n_ahead, C)
        return torch.cat([logits[:, :, 0], logits[:, :, 1:].flatten(1, 2)], dim=1)

    def video_logits(self, features: Tensor, batch_size: int) -> Tensor:
        """Logits (L, 1 + n_ahead, C) of a video's features (L, D) in one pass, without windows."""
        logits, _ = self.run(self.feature_head_work(features)[None], self.begin(1))
        return logits[0]

    def begin(self, n_streams: int) -> Tensors:
        """States of B streams before their first chunk: zeros (B, d_model) by name."""
        weight = self.classifier.weight
        return {name: weight.new_zeros(n_streams, self.config.d_model) for name in self.state_names}

    def plan(self, chunks: NDArray[np.int64]) -> Plan:
        """As `Model.plan`: which streams (B,) begin."""
        return {"fresh": chunks == 0}

    def step(
        self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """As `Model.step`."""
        state = {name: begun(tensor, plan.get("fresh")) for name, tensor in tensors.items()}
        logits, after = self.run(self.feature_head_work(features)[:, None], state)  # (B, 1, 1 + n_ahead, C)
        return logits[:, 0], after


class RNN(Recurrent):
    """One layer of LSTM or GRU, `config.cell`, between the feature head and the classifier."""

    def __init__(self, config: LSTRConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        layer = nn.LSTM if config.cell == "lstm" else nn.GRU
        self.state_names = ("hidden", "cell") if config.cell == "lstm" else ("hidden",)
        self.recurrent = layer(config.d_model, config.d_model, batch_first=True)

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Tokens (B, T, d_model) from a state on: logits (B, T, 1, C), and the state after them."""
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
        return self.classifier(self.dropout(hidden))[:, :, None], after


PUBLISHED_NAMES = {
    "feature_extractor.": "feature_head_work.",
    "hx_trans.": "decoder_hidden.",
    "cx_trans.": "decoder_cell.",
    "fusion_linear.": "decoder_input.",
    "future_linear.": "future_gate.",
    "enc_cell.": "accumulator.",
    "dec_cell.": "decoder.",
}
"""First part of a published TRN tensor's name to ours."""


class TRN(Recurrent):
    """At each chunk, predict the chunks that follow, and let what was predicted inform the next chunk (Xu et al. 2019).

    The spatiotemporal accumulator takes a chunk's token and the future token that the chunk before left; from its
    state the temporal decoder runs its steps; its states, each through the future gate, have the next future token as
    their mean. Dropout is where the published code has it: on what enters a cell and on what enters a classifier.

    Step h of the decoder, from 1 to `config.n_ahead`, is about the chunk h ahead, and the decoder has a classifier of
    its own. In the published code its first step is about the chunk itself (`config.decoder_from` 0), whose score is
    the accumulator's all the same, one classifier serves both (`config.shared_classifier`), and tokens are not as wide
    as the states (`config.d_token`).
    """

    state_names = ("hidden", "cell", "future")

    def __init__(self, config: LSTRConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model, d_token = config.d_model, config.d_token or config.d_model
        if d_token != d_model:
            self.feature_head_work = FeatureHead(config.input_dim, d_token)
        self.accumulator = nn.LSTMCell(2 * d_token, d_model)
        self.decoder = nn.LSTMCell(d_model, d_model)
        self.decoder_hidden = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU())
        self.decoder_cell = nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU())
        self.decoder_input = nn.Sequential(nn.Linear(n_classes, d_model), nn.ReLU())
        self.future_gate = nn.Sequential(nn.Linear(d_model, d_token), nn.ReLU())
        if not config.shared_classifier:
            self.future_classifier = nn.Linear(d_model, n_classes)

    scoring_rule = ScoringRule("TRN", "every", "ignored")

    @property
    def has_idle_parameters(self) -> bool:
        """Whether no chunk follows another, or no step of the decoder: what is taken from one to the next is idle."""
        return self.config.work_length == 1 or self.config.n_ahead == self.config.decoder_from

    def outputs(self) -> Outputs:
        """Every work slot, then for every work slot the chunks of the decoder's steps; each is one mean in the loss."""
        W, first = self.config.work_length, self.config.decoder_from
        ahead = np.arange(first, self.config.n_ahead + 1)
        slots = np.arange(W)
        return Outputs(
            np.concatenate([slots, np.repeat(slots, len(ahead))]),
            np.concatenate([np.zeros(W, dtype=np.int64), np.tile(ahead, W)]),
            (Part(slots), Part(np.arange(W, W + W * len(ahead)))),
        )

    def forward(self, windows: Windows) -> Tensor:
        """Logits (B, W * (1 + steps), C), in the order of `outputs`."""
        tokens = self.feature_head_work(windows.work)  # (B, W, d_token)
        logits, _ = self.unroll(tokens, self.begin(len(tokens)))  # (B, W, 1 + steps, C)
        return torch.cat([logits[:, :, 0], logits[:, :, 1:].flatten(1, 2)], dim=1)

    def begin(self, n_streams: int) -> Tensors:
        """States of B streams before their first chunk: zeros by name, the future token (B, d_token)."""
        future = self.classifier.weight.new_zeros(n_streams, self.config.d_token or self.config.d_model)
        return {**super().begin(n_streams), "future": future}

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Tokens (B, T, d_token) from a state on: logits (B, T, 1 + n_ahead, C), and the state after them."""
        logits, after = self.unroll(tokens, state)
        if self.config.decoder_from == 0:
            logits = torch.cat([logits[:, :, :1], logits[:, :, 2:]], dim=2)
        return logits, after

    def unroll(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """As `run`, with the logits of all steps of the decoder: (B, T, 1 + steps, C)."""
        hidden, cell, future = (state[name] for name in self.state_names)  # (B, d_model) twice, (B, d_token)
        logits = []
        for token in tokens.unbind(dim=1):
            seen = torch.cat([token, future], dim=-1)  # (B, 2 * d_token)
            hidden, cell = self.accumulator(self.dropout(seen), (hidden, cell))
            now = self.classifier(self.dropout(hidden))  # (B, C)
            ahead, future = self.look_ahead(hidden, cell)
            logits.append(torch.cat([now[:, None], ahead], dim=1))  # (B, 1 + steps, C)
        return torch.stack(logits, dim=1), {"hidden": hidden, "cell": cell, "future": future}

    def look_ahead(self, hidden: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
        """From an accumulator's state, (B, d_model) twice, logits (B, steps, C) and the future token (B, d_token)."""
        classifier = self.classifier if self.config.shared_classifier else self.future_classifier
        hidden, cell = self.decoder_hidden(hidden), self.decoder_cell(cell)
        logits: list[Tensor] = []
        futures = []
        for _ in range(self.config.n_ahead + 1 - self.config.decoder_from):
            seen = self.decoder_input(logits[-1]) if logits else torch.zeros_like(hidden)  # (B, d_model)
            hidden, cell = self.decoder(self.dropout(seen), (hidden, cell))
            logits.append(classifier(self.dropout(hidden)))
            futures.append(self.future_gate(hidden))
        return torch.stack(logits, dim=1), torch.stack(futures).mean(dim=0)

"""The Temporal Recurrent Network (Xu et al., ICCV 2019), a baseline of the LSTR paper."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lstr.config import SizeOrZero, Uses, WindowConfig
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.heads import FeatureHead
from lstr.models.kind import Kind, Preset, Tensors
from lstr.models.publication import KINETICS, LSTR_TABLES, OLD_ANET, Publication, anticipation, detection
from lstr.models.published import Published
from lstr.models.recurrent import Recurrent
from lstr.windows.windows import Outputs, Windows, every_slot, in_order

# First part of a published TRN tensor's name to ours.
PUBLISHED_NAMES = {
    "feature_extractor.": "feature_head_work.",
    "hx_trans.": "decoder_hidden.",
    "cx_trans.": "decoder_cell.",
    "fusion_linear.": "decoder_input.",
    "future_linear.": "future_gate.",
    "enc_cell.": "accumulator.",
    "dec_cell.": "decoder.",
}


class TRNConfig(WindowConfig, frozen=True):
    """What a TRN is made of."""

    uses: ClassVar[Uses] = Uses(long_memory=False, anticipation=True, ahead=8, heads=False)

    kind: str = "trn"
    d_token: SizeOrZero = 0
    """Width of a chunk's token; 0 is d_model."""
    shared_classifier: bool = False
    """Whether the decoder scores by the classifier of the present (published code)."""
    decoder_from: Literal[0, 1] = 1
    """Chunks ahead that the first step of the decoder is about: 1 (paper), or 0, the chunk itself (published code),
    whose own score is not the decoder's."""

    @property
    def told_by_tensors(self) -> bool:
        """Not where one width stands for another."""
        return self.d_token > 0


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

    config: TRNConfig
    state_names = ("hidden", "cell", "future")

    def __init__(self, config: TRNConfig, n_classes: int) -> None:
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

    def outputs(self) -> Outputs:
        """Every work slot, then for every work slot the chunks of the decoder's steps; each is one mean in the loss."""
        return every_slot(self.config.work_length, np.arange(self.config.decoder_from, self.config.n_ahead + 1))

    def forward(self, windows: Windows) -> Tensor:
        """Logits (B, W * (1 + steps), C), in the order of `outputs`."""
        tokens = self.feature_head_work(windows.work)  # (B, W, d_token)
        logits, _ = self.unroll(tokens, self.begin(len(tokens)))  # (B, W, 1 + steps, C)
        return in_order(logits)

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
        """Like `run`, with the logits of all steps of the decoder: (B, T, 1 + steps, C)."""
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
        logits, states = decoded(self, hidden, cell, classifier, self.config.n_ahead + 1 - self.config.decoder_from)
        return torch.stack(logits, dim=1), torch.stack([self.future_gate(state) for state in states]).mean(dim=0)


def decoded(
    model: Any, hidden: Tensor, cell: Tensor, classifier: nn.Module, steps: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Logits (B, C) and states (B, d_model) of each step of a decoder, from states (B, d_model) of an accumulator."""
    hidden, cell = model.decoder_hidden(hidden), model.decoder_cell(cell)
    logits: list[Tensor] = []
    states: list[Tensor] = []
    for _ in range(steps):
        seen = model.decoder_input(logits[-1]) if logits else torch.zeros_like(hidden)  # (B, d_model)
        hidden, cell = model.decoder(model.dropout(seen), (hidden, cell))
        logits.append(classifier(model.dropout(hidden)))
        states.append(hidden)
    return logits, states


PUBLISHED = TRNConfig(
    d_model=4096,
    d_token=3072,
    dropout=0.1,
    work_length=64,
    shared_classifier=True,
    decoder_from=0,
    anticipation=7,
)
TRAINING = {
    "epochs": 21,
    "batch_size": 32,
    "lr": 5e-4,
    "weight_decay": 5e-4,
    "schedule": "constant",
    "windows": "tiled",
    "tails": False,
}


class PublishedTRN(Published):
    """The published code of TRN."""

    config = PUBLISHED
    marks = ("enc_cell.weight_ih", "accumulator.weight_ih")
    names = PUBLISHED_NAMES
    sizes = {"d_token": ("feature_head_work.input_linear.0.weight", 0)}
    needed = ("d_token",)
    unknown = ("anticipation",)


KIND = Kind(
    TRN,
    TRNConfig,
    Publication(
        "TRN",
        "Temporal Recurrent Networks for Online Action Detection, Xu et al., ICCV 2019",
        "https://arxiv.org/abs/1811.07391",
        "xumingze0308/TRN.pytorch @ d432c1e",
        "MIT",
        "within 1e-5 in probability with the settings of its preset; without them the decoder begins at the next chunk",
        ("trn_small",),
        (
            *detection(62.1, 86.2, KINETICS, "TRN's README", ("trn-thumos14",)),
            *detection(47.2, 83.7, OLD_ANET, LSTR_TABLES, ("trn-thumos14",)),
            *anticipation(38.9, 75.7, OLD_ANET),
        ),
        ("weights begin as those of PyTorch's layers, where the published ones are drawn otherwise",),
    ),
    {"trn-thumos14": Preset(PUBLISHED, TRAINING)},
    PublishedTRN(),
)

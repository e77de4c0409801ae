"""What recurrent kinds share, and the plain RNN, a baseline of the LSTR paper.

Training starts from a zero state at the first chunk of the work memory; a video and a stream carry the state on from
their first chunk, so that what they remember has no bound but the cell's own forgetting.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.models.heads import FeatureHead, Head
from lstr.models.kind import Kind, Model, Preset
from lstr.models.lstr_config import SMALL_TRAINING
from lstr.models.publication import Publication
from lstr.models.stream import Tensors, begun
from lstr.windows.short_plan import States
from lstr.windows.windows import Windows, in_order


class Recurrent(Model):
    """What recurrent kinds share: all but `run`, which takes tokens through the cells."""

    feature_head_work: Head
    plans = States
    state_names: tuple[str, ...]
    """Tensors (B, d_model) that go on from one chunk to the next."""

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        self.feature_head_work = FeatureHead(config.input_dim, config.d_model)
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(config.d_model, n_classes)

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Tokens (B, T, d_model) from a state on: logits (B, T, 1 + n_ahead, C), and the state after them."""
        raise NotImplementedError

    def forward(self, windows: Windows) -> Tensor:
        """Logits (B, W * (1 + n_ahead), C), in the order of `outputs`; a recurrent kind sees the work memory alone."""
        tokens = self.feature_head_work(windows.work)  # (B, W, d_model)
        logits, _ = self.run(tokens, self.begin(len(tokens)))  # (B, W, 1 + n_ahead, C)
        return in_order(logits)

    def video_logits(self, features: Tensor, batch_size: int) -> Tensor:
        """Logits (L, 1 + n_ahead, C) of a video's features (L, D) in one pass, without windows."""
        logits, _ = self.run(self.feature_head_work(features)[None], self.begin(1))
        return logits[0]

    def begin(self, n_streams: int) -> Tensors:
        """States of B streams before their first chunk: zeros (B, d_model) by name."""
        weight = self.classifier.weight
        return {name: weight.new_zeros(n_streams, self.config.d_model) for name in self.state_names}

    def step(
        self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """Like `Model.step`."""
        state = {name: begun(tensor, plan.get("fresh")) for name, tensor in tensors.items()}
        logits, after = self.run(self.feature_head_work(features)[:, None], state)  # (B, 1, 1 + n_ahead, C)
        return logits[:, 0], after


class RNNConfig(WindowConfig, frozen=True):
    """What an RNN is made of."""

    uses: ClassVar[Uses] = Uses(long_memory=False, heads=False)

    kind: str = "rnn"
    cell: Literal["lstm", "gru"] = "lstm"
    """lstm or gru."""


class RNN(Recurrent):
    """One layer of LSTM or GRU, `config.cell`, between the feature head and the classifier."""

    config: RNNConfig

    def __init__(self, config: RNNConfig, n_classes: int) -> None:
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


SMALL = RNNConfig(d_model=128, dropout=0.3, work_length=32, long_length=0)
KIND = Kind(
    RNN,
    RNNConfig,
    Publication(
        "RNN",
        "Online Action Detection, De Geest et al., ECCV 2016",
        "",
        "",
        "no code looked at",
        "an LSTM on chunk features is among the baselines of that paper",
    ),
    {
        # what did best of all kinds on data sets of minutes (documentation, page "What the numbers mean")
        "rnn-small": Preset(SMALL, SMALL_TRAINING, for_little_video=True)
    },
)

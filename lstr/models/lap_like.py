"""Kind lap-like, after LAP-Net (Qu et al., arXiv 2011.07915): only the idea is the paper's, the layout is ours.

The idea: how far an action has come tells which stretch of time around it is of use. Here that is TRN's skeleton, whose
decoder imagines the chunks ahead; a head tells which tenth of its action a chunk is in, or that it is in none. Each of
these eleven has learned weights for the newest `n_ahead` states and for as many imagined ones. Their sum, weighed by
what the head says, goes on to the next chunk, where TRN has a mean of the imagined ones.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.models.kind import Kind, Preset
from lstr.models.publication import Publication
from lstr.models.recurrent import Recurrent
from lstr.models.stream import Tensors
from lstr.models.trn import TRAINING, decoded
from lstr.windows.loss import Supervision, loss_mask, loss_of, mean_of_kept
from lstr.windows.windows import Outputs, Windows, in_order

TENTHS = 10
# Chunks before and after a window whose labels are read in training, to know how long its actions are.
REACH = 64


class LapLikeConfig(WindowConfig, frozen=True):
    """What a model of kind lap-like is made of."""

    uses: ClassVar[Uses] = Uses(long_memory=False, anticipation=True, ahead=8, heads=False)

    kind: str = "lap-like"


class LapLike(Recurrent):
    """An LSTM that takes in, with each chunk, a weighted sum of its last states and of those that a decoder imagines.

    Step h of the decoder, from 1 to `config.n_ahead`, is about the chunk h ahead.
    """

    def __init__(self, config: LapLikeConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model, n_ahead = config.d_model, config.n_ahead
        self.state_names = ("hidden", "cell", "future", *(f"hidden.{age}" for age in range(1, n_ahead)))
        self.accumulator = nn.LSTMCell(2 * d_model, d_model)
        self.decoder = nn.LSTMCell(d_model, d_model)
        self.decoder_hidden, self.decoder_cell, self.future_gate = (
            nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU()) for _ in range(3)
        )
        self.decoder_input = nn.Sequential(nn.Linear(n_classes, d_model), nn.ReLU())
        self.future_classifier = nn.Linear(d_model, n_classes)
        self.progress = nn.Linear(d_model, TENTHS + 1)
        self.ranges = nn.Parameter(torch.zeros(TENTHS + 1, 2 * n_ahead))  # equal weights, until it learns others

    def outputs(self) -> Outputs:
        """Every work slot, then for each of them the n_ahead chunks that follow; then labels without logits.

        Those are of all chunks from `REACH` before a full window to `REACH` after it.
        """
        outputs, W = super().outputs(), self.config.work_length
        around = np.arange(1 - W - REACH, REACH + 1)
        return Outputs(
            np.concatenate([outputs.slots, np.full(len(around), -1)]),
            np.concatenate([outputs.ahead, around]),
            outputs.parts,
        )

    def forward(self, windows: Windows) -> Any:
        """Logits (B, W * (1 + n_ahead), C) in the order of `outputs`, and of the tenths (B, W, TENTHS + 1)."""
        tokens = self.feature_head_work(windows.work)  # (B, W, d_model)
        logits, progress, _ = self.unroll(tokens, self.begin(len(tokens)))
        return in_order(logits), progress

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors]:
        """Tokens (B, T, d_model) from a state on: logits (B, T, 1 + n_ahead, C), and the state after them."""
        logits, _, after = self.unroll(tokens, state)
        return logits, after

    def unroll(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensor, Tensors]:
        """Like `run`, with the logits of the tenths (B, T, TENTHS + 1) between the two."""
        hidden, cell, future, *older = (state[name] for name in self.state_names)  # (B, d_model) each
        ranges, logits, told = self.ranges.softmax(dim=-1), [], []
        for token in tokens.unbind(dim=1):
            older = [hidden, *older][: self.config.n_ahead - 1]
            hidden, cell = self.accumulator(self.dropout(torch.cat([token, future], dim=-1)), (hidden, cell))
            progress = self.progress(self.dropout(hidden))  # (B, TENTHS + 1)
            ahead, imagined = decoded(self, hidden, cell, self.future_classifier, self.config.n_ahead)
            states = torch.stack([hidden, *older, *imagined], dim=1)  # (B, 2 * n_ahead, d_model)
            weights = progress.softmax(dim=-1) @ ranges  # (B, 2 * n_ahead)
            future = self.future_gate((weights[..., None] * states).sum(dim=1))
            logits.append(torch.stack([self.classifier(self.dropout(hidden)), *ahead], dim=1))
            told.append(progress)
        after = dict(zip(self.state_names, (hidden, cell, future, *older), strict=True))
        return torch.stack(logits, dim=1), torch.stack(told, dim=1), after

    def loss(self, forwarded: tuple[Tensor, Tensor], windows: Windows, supervision: Supervision) -> Tensor:
        """Cross entropy now, ahead, and of the tenth of the action that each chunk is in, where that is known."""
        logits, progress = forwarded
        W, n = self.config.work_length, logits.shape[1]
        targets, counts = supervision.targets[:, n:], supervision.counts[:, n:]
        tenths = tenths_of(targets, counts, supervision.ignore)  # (B, 2 * REACH + W)
        newest = windows.work_mask.sum(1, keepdim=True) - 1  # (B, 1)
        places = (W - 1 + REACH - newest + torch.arange(W, device=newest.device)).clamp(max=tenths.shape[1] - 1)
        tenths = tenths.gather(1, places)  # (B, W)
        keep = loss_mask(supervision.targets[:, :W], supervision.ignore, supervision.counts[:, :W])
        each = F.cross_entropy(progress.flatten(0, 1), tenths.clamp(min=0).flatten(), reduction="none").view_as(keep)
        told = mean_of_kept(torch.where(tenths >= 0, each, 0), keep, supervision.totals)
        return loss_of(logits, self.outputs(), supervision) + told


def tenths_of(targets: Tensor, exists: Tensor, ignore: int | None = None) -> Tensor:
    """Which tenth of its action each of some neighbouring chunks is in (B, S), from labels (B, S, C) and exists (B, S).

    `TENTHS` is for background; -1 where an action goes on beyond the first or the last of the chunks, so that its
    length is not known, and where nothing is known. An action is a run of chunks with the same classes.
    """
    S = targets.shape[1]
    places = torch.arange(S, device=targets.device)
    acts = targets.index_fill(-1, places.new_tensor([0] if ignore is None else [0, ignore]), 0).any(-1)  # (B, S)
    same = (targets[:, 1:] == targets[:, :-1]).all(-1) & exists[:, 1:] & exists[:, :-1]
    begins, ends = ~F.pad(same, (1, 0)), ~F.pad(same, (0, 1))
    first = torch.where(begins, places, -1).cummax(dim=1).values
    last = torch.where(ends, places, S).flip(1).cummin(dim=1).values.flip(1)
    tenth = (places - first) * TENTHS // (last - first + 1)
    known = exists & acts & (first > 0) & (last < S - 1)
    return torch.where(known, tenth, torch.where(exists & (targets[..., 0] > 0), TENTHS, -1))


KIND = Kind(
    LapLike,
    LapLikeConfig,
    Publication(
        "after LAP-Net",
        "LAP-Net: Adaptive Features Sampling via Learning Action Progression for Online Action Detection, Qu et al., "
        "arXiv 2020",
        "https://arxiv.org/abs/2011.07915",
        "",
        "no code found",
        "only the idea is the paper's, that progression chooses the range of time; layout and sizes are ours, and no "
        "number of the paper is claimed",
        differs=("the training is ours",),
    ),
    {"lap-like-thumos14": Preset(LapLikeConfig(dropout=0.1, work_length=64), TRAINING)},
)

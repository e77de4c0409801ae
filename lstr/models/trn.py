"""The Temporal Recurrent Network (Xu et al., ICCV 2019), a baseline of the LSTR paper, and kind lap-like on it.

Kind lap-like is after LAP-Net (Qu et al., arXiv 2011.07915): the idea is from the paper, the layout is not.
"""

from typing import Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import SizeOrZero, Uses, WindowConfig, define_config
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.kind import TILED, Kind, Preset
from lstr.models.layers import FeatureHead, Tensors
from lstr.models.published import Published, read_publication
from lstr.models.recurrent import Recurrent
from lstr.windows.windows import Outputs, Supervision, Windows, every_slot, in_order, loss_mask, loss_of, masked_mean


class TRNConfig(WindowConfig, frozen=True):
    uses: ClassVar[Uses] = Uses(long_memory=False, anticipation=True, ahead=8, heads=False)

    kind = "trn"
    d_token: SizeOrZero = 0
    """Width of a chunk's token; 0 is d_model."""
    shared_classifier: bool = False
    """Whether the decoder scores by the classifier of the present (published code)."""
    decoder_from: Literal[0, 1] = 1
    """Chunks ahead that the first step of the decoder predicts: 1 (paper), or 0 for the chunk itself (published code);
    the score of that chunk does not come from the decoder."""


class TRN(Recurrent):
    """At each chunk, predict the chunks that follow, and let what was predicted inform the next chunk (Xu et al. 2019).

    The spatiotemporal accumulator takes a chunk's token and the future token that the chunk before left; from its
    state the temporal decoder runs its steps; its states, each through the future gate, have the next future token as
    their mean. Dropout is as in the published code: on the inputs of cells and of classifiers.

    Step h of the decoder, from 1 to `config.n_ahead`, is about the chunk h ahead, and the decoder has a classifier of
    its own. In the published code its first step is about the chunk itself (`config.decoder_from` 0), whose score is
    the accumulator's all the same, one classifier serves both (`config.shared_classifier`), and tokens are not as wide
    as the states (`config.d_token`).
    """

    config: TRNConfig
    scoring_rule = ScoringRule("TRN", "every", "ignored")

    def __init__(self, config: TRNConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model, d_token = config.d_model, config.d_token or config.d_model
        self.memory_shapes = {"hidden": (d_model,), "cell": (d_model,), "future": (d_token,)}
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

    def outputs(self) -> Outputs:
        """Return every work slot, then for each the chunks of the decoder's steps; each is one mean in the loss."""
        return every_slot(self.config.work_length, np.arange(self.config.decoder_from, self.config.n_ahead + 1))

    def forward(self, windows: Windows) -> Tensor:
        """Return logits (B, W * (1 + steps), C), in the order of `outputs`."""
        tokens = self.feature_head_work(windows.work)  # (B, W, d_token)
        *_, every_step = self.run(tokens, self.begin(len(tokens)))  # (B, W, 1 + steps, C)
        return in_order(every_step)

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors, Tensor]:
        """See `Recurrent.run`, with the logits (B, T, 1 + steps, C) of all steps of the decoder."""
        hidden, cell, future = (state[name] for name in self.memory_shapes)  # (B, d_model) twice, (B, d_token)
        classifier = self.classifier if self.config.shared_classifier else self.future_classifier
        steps = self.config.n_ahead + 1 - self.config.decoder_from
        logits = []
        for token in tokens.unbind(dim=1):
            seen = torch.cat([token, future], dim=-1)  # (B, 2 * d_token)
            hidden, cell = self.accumulator(self.dropout(seen), (hidden, cell))
            now = self.classifier(self.dropout(hidden))  # (B, C)
            ahead, states = decoded(self, hidden, cell, classifier, steps)
            future = torch.stack([self.future_gate(state) for state in states]).mean(dim=0)
            logits.append(torch.stack([now, *ahead], dim=1))  # (B, 1 + steps, C)
        every_step = scored = torch.stack(logits, dim=1)
        if self.config.decoder_from == 0:  # its first step is about the chunk itself
            scored = torch.cat([every_step[:, :, :1], every_step[:, :, 2:]], dim=2)
        return scored, {"hidden": hidden, "cell": cell, "future": future}, every_step


def decoded(
    model: Any, hidden: Tensor, cell: Tensor, classifier: nn.Module, steps: int
) -> tuple[list[Tensor], list[Tensor]]:
    """Return logits (B, C) and states (B, d_model) of each step of a decoder, from an accumulator's states."""
    hidden, cell = model.decoder_hidden(hidden), model.decoder_cell(cell)
    logits: list[Tensor] = []
    states: list[Tensor] = []
    for _ in range(steps):
        seen = model.decoder_input(logits[-1]) if logits else torch.zeros_like(hidden)  # (B, d_model)
        hidden, cell = model.decoder(model.dropout(seen), (hidden, cell))
        logits.append(classifier(model.dropout(hidden)))
        states.append(hidden)
    return logits, states


TENTHS = 10
REACH = 64  # chunks before and after a window whose labels are read in training, to know how long its actions are

LapLikeConfig = define_config(
    __name__, "LapLikeConfig", "lap-like", Uses(long_memory=False, anticipation=True, ahead=8, heads=False)
)


class LapLike(Recurrent):
    """TRN whose future token is a weighted sum of the last states and of the states that the decoder predicts.

    The idea of LAP-Net: the progress of an action says which stretch of time around it is useful. A head says in which
    tenth of its action a chunk is, or that it is in none. Each of these eleven has learned weights for the newest
    `n_ahead` states and for `n_ahead` predicted ones. Step h of the decoder, from 1 to `n_ahead`, is about the chunk h
    ahead.
    """

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model, n_ahead = config.d_model, config.n_ahead
        names = ("hidden", "cell", "future", *(f"hidden.{age}" for age in range(1, n_ahead)))
        self.memory_shapes = dict.fromkeys(names, (d_model,))
        self.accumulator = nn.LSTMCell(2 * d_model, d_model)
        self.decoder = nn.LSTMCell(d_model, d_model)
        self.decoder_hidden, self.decoder_cell, self.future_gate = (
            nn.Sequential(nn.Linear(d_model, d_model), nn.ReLU()) for _ in range(3)
        )
        self.decoder_input = nn.Sequential(nn.Linear(n_classes, d_model), nn.ReLU())
        self.future_classifier = nn.Linear(d_model, n_classes)
        self.progress = nn.Linear(d_model, TENTHS + 1)
        self.ranges = nn.Parameter(torch.zeros(TENTHS + 1, 2 * n_ahead))  # equal weights at the start

    def outputs(self) -> Outputs:
        """Return every work slot, then for each of them the n_ahead chunks that follow; then labels without logits.

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
        """Return logits (B, W * (1 + n_ahead), C) in the order of `outputs`, and of the tenths (B, W, TENTHS + 1)."""
        tokens = self.feature_head_work(windows.work)  # (B, W, d_model)
        logits, _, progress = self.run(tokens, self.begin(len(tokens)))
        return in_order(logits), progress

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors, Tensor]:
        """See `Recurrent.run`, with the logits of the tenths (B, T, TENTHS + 1)."""
        hidden, cell, future, *older = (state[name] for name in self.memory_shapes)  # (B, d_model) each
        ranges, logits, tenths = self.ranges.softmax(dim=-1), [], []
        for token in tokens.unbind(dim=1):
            older = [hidden, *older][: self.config.n_ahead - 1]
            hidden, cell = self.accumulator(self.dropout(torch.cat([token, future], dim=-1)), (hidden, cell))
            progress = self.progress(self.dropout(hidden))  # (B, TENTHS + 1)
            ahead, imagined = decoded(self, hidden, cell, self.future_classifier, self.config.n_ahead)
            states = torch.stack([hidden, *older, *imagined], dim=1)  # (B, 2 * n_ahead, d_model)
            weights = progress.softmax(dim=-1) @ ranges  # (B, 2 * n_ahead)
            future = self.future_gate((weights[..., None] * states).sum(dim=1))
            logits.append(torch.stack([self.classifier(self.dropout(hidden)), *ahead], dim=1))
            tenths.append(progress)
        after = dict(zip(self.memory_shapes, (hidden, cell, future, *older), strict=True))
        return torch.stack(logits, dim=1), after, torch.stack(tenths, dim=1)

    def loss(self, forwarded: tuple[Tensor, Tensor], windows: Windows, supervision: Supervision) -> Tensor:
        """Return the cross entropy now, ahead, and of the tenth of the action that each chunk is in, if known."""
        logits, progress = forwarded
        W, n = self.config.work_length, logits.shape[1]
        targets, counts = supervision.targets[:, n:], supervision.counts[:, n:]
        tenths = tenths_of(targets, counts, supervision.ignore)  # (B, 2 * REACH + W)
        newest = windows.work_mask.sum(1, keepdim=True) - 1  # (B, 1)
        places = (W - 1 + REACH - newest + torch.arange(W, device=newest.device)).clamp(max=tenths.shape[1] - 1)
        tenths = tenths.gather(1, places)  # (B, W)
        keep = loss_mask(supervision.targets[:, :W], supervision.ignore, supervision.counts[:, :W])
        each = F.cross_entropy(progress.flatten(0, 1), tenths.clamp(min=0).flatten(), reduction="none").view_as(keep)
        progress_loss = masked_mean(torch.where(tenths >= 0, each, 0), keep, supervision.totals)
        return loss_of(logits, self.outputs(), supervision) + progress_loss


def tenths_of(targets: Tensor, exists: Tensor, ignore: int | None = None) -> Tensor:
    """Return the tenth of its action that each chunk is in (B, S), from labels (B, S, C) and exists (B, S).

    `TENTHS` is for background; -1 where an action extends beyond the first or the last of the chunks, so that its
    length is not known, and where labels are missing. An action is a run of chunks with the same classes.
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


PUBLISHED = TRNConfig(
    d_model=4096, d_token=3072, dropout=0.1, work_length=64, shared_classifier=True, decoder_from=0, anticipation=7
)
TRAINING = TILED | dict(epochs=21, batch_size=32, lr=5e-4, weight_decay=5e-4, schedule="constant")


class PublishedTRN(Published):
    """The published code of TRN."""

    config = PUBLISHED
    marks = ("enc_cell.weight_ih", "accumulator.weight_ih")
    names = {
        "feature_extractor.": "feature_head_work.",
        "hx_trans.": "decoder_hidden.",
        "cx_trans.": "decoder_cell.",
        "fusion_linear.": "decoder_input.",
        "future_linear.": "future_gate.",
        "enc_cell.": "accumulator.",
        "dec_cell.": "decoder.",
    }
    sizes = {"d_token": ("feature_head_work.input_linear.0.weight", 0)}
    unknown = ("anticipation",)


KIND = Kind(TRN, TRNConfig, read_publication("trn"), {"trn-thumos14": Preset(PUBLISHED, TRAINING)}, PublishedTRN())
LAP_LIKE_SIZE = LapLikeConfig(dropout=0.1, work_length=64)
LAP_LIKE_KIND = Kind(
    LapLike, LapLikeConfig, read_publication("lap-like"), {"lap-like-thumos14": Preset(LAP_LIKE_SIZE, TRAINING)}
)

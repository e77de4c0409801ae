"""WOAD (Gao et al., CVPR 2021): an LSTM with a head for starts of actions, trained with a classifier of whole videos.

Online, an LSTM on one layer of features scores the chunk, its state carried without end. A second layer on the largest
of its last four states says whether an action starts now. In training only, a second classifier on the same layer
scores whole videos: by their most active chunks, and by the similarity of videos of one class there. A window is a
whole video up to `config.work_length` chunks; the LSTM reads it in pieces of `config.unroll`, each from a state of
zeros.
"""

import itertools
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Size, Uses, WindowConfig
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.kind import Kind, Preset
from lstr.models.layers import FeatureHead, Tensors
from lstr.models.published import Published, Tables, read_publication
from lstr.models.recurrent import Recurrent
from lstr.windows.windows import Supervision, Windows, loss_mask, multi_hot_cross_entropy

# The last states whose largest values tell whether an action starts.
STATES = 4
SHARED_DROPOUT = 0.7
TOP_SHARE = 8  # a video's score of a class is the mean of its highest eighth of chunks, rounded up
# What each of the two losses of whole videos weighs.
WHOLE_VIDEO = 0.5
MARGIN = 0.5
NEGATIVES, NEGATIVES_ALONE = 3, 100  # chunks without a start that are drawn for each with one, and where there is none
WARM_UP = 100  # batches before pseudo-labels are made
# What the class's own score adds to the peak of a run that is labelled by it
PEAK_SHARE = 0.7
CONFIDENCE = 0.7
SHORTEST = 2  # what the peak of such a run, and its chunks, are at least


class WOADConfig(WindowConfig, frozen=True):
    uses: ClassVar[Uses] = Uses(long_memory=False, heads=False)

    kind = "woad"
    unroll: Size = 64
    """Chunks that it trains its LSTM through, from a state of zeros."""
    supervision: Literal["segment", "video"] = "segment"
    """Labels that it learns from. segment: labels of chunks; video: only which classes are in a window."""


class WOAD(Recurrent):
    """An LSTM of `config.d_model` on features of width `config.d_feedforward`, with a head for starts.

    A stream's tensor `start` (B, 1) is the probability that an action starts at its last chunk. With
    `config.supervision` "video" the loss reads which classes are in a window, but not when.
    """

    config: WOADConfig
    batches: Tensor
    scoring_rule = ScoringRule("WOAD", "every", "negative")

    def __init__(self, config: WOADConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        self.feature_head_work = FeatureHead(config.input_dim, config.d_feedforward)
        self.unit = nn.LSTMCell(config.d_feedforward, config.d_model)
        self.start = nn.Linear(config.d_model, 2)
        self.video_classifier = nn.Linear(config.d_feedforward, n_classes - 1)
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))
        self.state_names = ("hidden", "cell", *(f"hidden.{age}" for age in range(1, STATES)))
        self.memory_shapes = {**dict.fromkeys(self.state_names, (config.d_model,)), "start": (1,)}

    def run(self, tokens: Tensor, state: Tensors) -> tuple[Tensor, Tensors, Tensor]:
        """See `Recurrent.run`, with the logits of no start and of a start (B, T, 2)."""
        hidden, cell, *older = (state[name] for name in self.state_names)
        hiddens, largest = [], []
        for token in self.dropout(tokens).unbind(dim=1):
            older = [hidden, *older][: STATES - 1]
            hidden, cell = self.unit(token, (hidden, cell))
            hiddens.append(hidden)
            largest.append(torch.stack([hidden, *older]).amax(dim=0))
        logits = self.classifier(self.dropout(torch.stack(hiddens, dim=1)))
        starts = self.start(torch.stack(largest, dim=1))
        after = dict(zip(self.state_names, (hidden, cell, *older), strict=True))
        return logits[:, :, None], {**after, "start": starts[:, -1].softmax(dim=-1)[:, 1:]}, starts

    def forward(self, windows: Windows) -> Any:
        """Return logits (B, T, C) and of starts (B, T, 2); of whole videos (B, W, C - 1); tokens (B, W, d_feedforward).

        T is the largest multiple of `unroll` in W: the rest has no loss of chunks, as published.
        """
        tokens = self.feature_head_work(windows.work)  # (B, W, d_feedforward)
        tokens = F.dropout(tokens, SHARED_DROPOUT, self.training)
        W, steps = tokens.shape[1], min(self.config.unroll, tokens.shape[1])
        pieces = tokens[:, : W // steps * steps].unflatten(1, (-1, steps))  # (B, n, steps, d_feedforward)
        logits, _, starts = self.run(pieces.flatten(0, 1), self.begin(pieces.shape[0] * pieces.shape[1]))
        parts = (part.unflatten(0, pieces.shape[:2]).flatten(1, 2) for part in (logits[:, :, 0], starts))
        return *parts, self.video_classifier(tokens), tokens

    def loss(self, forwarded: tuple[Tensor, ...], windows: Windows, supervision: Supervision) -> Tensor:
        """Return the losses of chunks and starts, plus half the losses of whole videos: highest chunks, and similarity.

        In a batch of several pieces each piece's losses weigh as much as its share of the windows.
        """
        logits, starts, activity, tokens = forwarded
        # the published code takes the padding after a short video for background; here it has no loss
        targets, ignore, present = supervision.targets, supervision.ignore, supervision.counts
        columns = [c for c in range(1, self.n_classes) if c != ignore]
        labels = (targets * present[..., None])[..., columns].amax(dim=1)  # (B, K) classes of each window
        activity = activity[..., [c - 1 for c in columns]]
        whole = video_loss(activity, labels, present) + likeness_loss(tokens, activity, labels, present)
        share = supervision.share
        if self.config.supervision == "video":
            self.batches += int(self.training)
            if self.batches <= WARM_UP:
                return share * WHOLE_VIDEO * whole
            made, beginning, usable = pseudo_targets(activity.detach(), labels, present)
            targets, present, ignore = torch.zeros_like(targets), present & usable[:, None], None
            targets[..., columns] = made.to(targets)
            targets[..., 0] = (made.sum(-1) == 0).to(targets)
        else:
            acts = targets[..., columns] > 0  # (B, W, K)
            before = torch.cat([acts[:, :1], acts[:, :-1]], dim=1)  # the chunk before the first slot is unknown
            beginning = (acts & ~before).any(-1)  # (B, W)
        T = logits.shape[1]
        keep = loss_mask(targets, ignore, present)[:, :T]
        # the loss of starts has all chunks that start an action, and random ones of the others
        beginning = beginning[:, :T]
        drawn = beginning & keep
        negatives, positives = (~beginning & keep).flatten().nonzero()[:, 0], int(drawn.sum())
        count = NEGATIVES * positives if positives else NEGATIVES_ALONE
        drawn.view(-1)[negatives[torch.randperm(len(negatives))[:count].to(negatives.device)]] = True
        frames = multi_hot_cross_entropy(logits, targets[:, :T], ignore, present[:, :T])
        return share * (frames + focal_loss(starts[drawn], beginning[drawn].long()) + WHOLE_VIDEO * whole)


def video_loss(activity: Tensor, labels: Tensor, present: Tensor) -> Tensor:
    """Return the cross entropy of videos with their classes (B, K), by the mean of the highest chunks of a class."""
    rows = []
    for one, those, chunks in zip(activity, labels, present, strict=True):
        if those.any():
            seen = one[chunks]  # (l, K)
            top = seen.topk(-(-len(seen) // TOP_SHARE), dim=0).values.mean(0)
            rows.append(-(top.log_softmax(-1) * those / those.sum()).sum())
    return torch.stack(rows).mean() if rows else activity.sum() * 0


def likeness_loss(
    tokens: Tensor, activity: Tensor, labels: Tensor, present: Tensor, pairs: Iterable[tuple[int, int]] | None = None
) -> Tensor:
    """Return the co-activity loss of W-TALC (Paul et al., ECCV 2018): chunks of one class should have similar features.

    tokens (B, L, F), activity (B, L, K), labels (B, K); pairs of videos, None for all that share a class.
    """
    highs, lows = [], []
    for one, seen, chunks in zip(tokens, activity, present, strict=True):
        weights = seen[chunks].softmax(dim=0)  # (l, K) over time
        highs.append(weights.T @ one[chunks])  # (K, F)
        lows.append((1 - weights).T @ one[chunks] / max(1, int(chunks.sum()) - 1))
    total, count = activity.sum() * 0, labels.new_zeros(())
    # every pair, because batches are not drawn to hold pairs that share a class, as those of the published code are
    for i, j in itertools.combinations(range(len(labels)), 2) if pairs is None else pairs:
        shared = (labels[i] > 0) * (labels[j] > 0) * labels.new_ones(())  # (K,)
        if not shared.any():
            continue
        alike = F.cosine_similarity(highs[i], highs[j], dim=-1)
        for high, low in ((highs[i], lows[j]), (highs[j], lows[i])):
            apart = F.cosine_similarity(high, low, dim=-1)
            total = total + 0.5 * ((apart - alike + MARGIN).clamp(min=0) * shared).sum()
        count = count + shared.sum()
    return total / count.clamp(min=1)


def focal_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean over rows (N, 2) of (1 - p)^2 times the cross entropy with targets (N,); 0 of none."""
    if not len(logits):
        return logits.sum()
    likely = logits.log_softmax(-1).gather(1, targets[:, None])[:, 0]
    return -((1 - likely.exp()).square() * likely).mean()


def runs_of(activity: Tensor) -> list[list[tuple[int, int, float]]]:
    """Return the runs (first chunk, end, score) of each class in a video whose chunks are as active as (L, K) says.

    A class has runs where the mean of its highest eighth is above 0: where it is above the middle of its range.
    """
    found: list[list[tuple[int, int, float]]] = []
    length = len(activity)
    for values in activity.T:
        runs = []
        score = float(values.topk(max(1, length // TOP_SHARE)).values.mean())
        if score > 0:
            above = values > (values.max() - values.min()) / 2 + values.min()
            edges = F.pad(above.int(), (1, 1)).diff()
            for first, end in zip((edges == 1).nonzero()[:, 0], (edges == -1).nonzero()[:, 0], strict=True):
                if end - first >= SHORTEST:
                    runs.append((int(first), int(end), float(values[first:end].max()) + PEAK_SHARE * score))
        found.append(runs)
    return found


def pseudo_targets(activity: Tensor, labels: Tensor, present: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return pseudo-labels (B, L, K) of chunks, which of them are starts (B, L), and which videos to use (B,).

    activity (B, L, K), classes of the videos (B, K), present (B, L). Runs of at least `CONFIDENCE` of a video's own
    classes count, one chunk past their end too, as published; a video to use (B,) has one of each of its classes.
    """
    targets, starts = torch.zeros_like(activity), torch.zeros_like(present)
    usable = labels.any(dim=1)
    for b, (one, those, chunks) in enumerate(zip(activity, labels, present, strict=True)):
        length = int(chunks.sum())
        for k, runs in enumerate(runs_of(one[:length]) if length else []):
            kept = [run for run in runs if run[2] >= CONFIDENCE and those[k] > 0]
            if those[k] > 0 and not kept:
                usable[b] = False
            for first, end, _ in kept:
                targets[b, first : min(end + 1, length), k] = 1
                starts[b, first] = True
    return targets, starts, usable


PUBLISHED = WOADConfig(rgb_dim=1024, d_model=4096, d_feedforward=2048, dropout=0.1, work_length=750)
TRAINING = dict(epochs=1000, max_steps=4000, lr=1e-4, weight_decay=5e-4, batch_size=10, schedule="constant")


class PublishedWOAD(Published):
    """The published code of WOAD."""

    config = PUBLISHED
    marks = ("enc_lstm.weight_ih", "video_classifier.weight")
    names = {
        "enc_lstm.": "unit.",
        "classifier_frame.": "classifier.",
        "mask.": "start.",
        "model.fc.": "feature_head_work.input_linear.0.",
        "model.classifier.": "video_classifier.",
    }
    sizes = {"d_feedforward": ("feature_head_work.input_linear.0.weight", 0)}

    def renamed(self, tensors: Tables) -> dict[str, Tensor]:
        """See `Published.renamed`; the count of batches starts over."""
        return {**super().renamed(tensors), "batches": torch.zeros((), dtype=torch.int64)}


PRESETS = {
    "woad-thumos14": Preset(PUBLISHED, TRAINING),
    "woad-video-thumos14": Preset(PUBLISHED.replace(supervision="video"), TRAINING),
}
KIND = Kind(WOAD, WOADConfig, read_publication("woad"), PRESETS, PublishedWOAD())

"""Per-chunk average precision, plain and calibrated, and what the labels alone would score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import LstrError
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND

# Chunks to either side that `time_prior` averages over: 2 s.
SMOOTHING_CHUNKS = 8


def per_frame(
    scores: NDArray[np.floating], targets: NDArray[Any], classes: Sequence[str], ignore: str | None = AMBIGUOUS
) -> dict[str, Any]:
    """mAP and mcAP over the chunks of all videos together: {"mAP", "mcAP", "per_class": {name: {...}}}.

    scores (N, C) and multi-hot targets (N, C). Each entry of per_class has "AP", "cAP" and "positives" (chunks).
    Background and classes without a positive chunk are left out, and so are the class `ignore` and the chunks
    that carry it, as in the published evaluation of THUMOS'14, of AP and cAP alike. Chunks of equal score count
    together, which the published cAP orders arbitrarily; a class that is on in every chunk has 1. The means are NaN
    when no class is left. Raises LstrError when shapes differ or a score is NaN.
    """
    scores, on = _scored(scores, targets, classes, ignore)
    per_class = {}
    for column, name in scored_columns(on, classes):
        per_class[name] = {
            "AP": average_precision(scores[:, column], on[:, column]),
            "cAP": calibrated_average_precision(scores[:, column], on[:, column]),
            "positives": int(on[:, column].sum()),
        }
    return {"mAP": mean_of(per_class, "AP"), "mcAP": mean_of(per_class, "cAP"), "per_class": per_class}


def _scored(
    scores: NDArray[np.floating], targets: NDArray[Any], classes: Sequence[str], ignore: str | None
) -> tuple[NDArray[np.floating], NDArray[np.bool_]]:
    """Scores and what is on in the chunks that count. Raises LstrError when shapes differ or a score is NaN."""
    scores, targets = np.asarray(scores), np.asarray(targets)
    if scores.ndim != 2 or scores.shape != targets.shape or scores.shape[1] != len(classes):
        raise LstrError(
            f"Scores have shape {scores.shape} and targets {targets.shape}, for {len(classes)} classes.",
            "Score and label the same chunks with the same classes.",
        )
    if np.isnan(scores).any():
        raise LstrError(
            f"Scores are NaN in {int(np.isnan(scores).any(axis=1).sum())} of {len(scores)} chunks.",
            "Check the features for values that are not finite, and the checkpoint.",
        )
    on = targets > 0
    keep = counted(on, classes, ignore)
    return (scores, on) if keep.all() else (scores[keep], on[keep])


def counted(on: NDArray[np.bool_], classes: Sequence[str], ignore: str | None = AMBIGUOUS) -> NDArray[np.bool_]:
    """Which chunks (N,) of on (N, C) do not carry the class `ignore`."""
    if ignore is None or ignore not in classes:
        return np.ones(len(on), dtype=bool)
    return ~on[:, classes.index(ignore)]


def scored_columns(on: NDArray[np.bool_], classes: Sequence[str]) -> list[tuple[int, str]]:
    """The classes that are scored: actions that are on somewhere in on (N, C)."""
    return [(i, name) for i, name in enumerate(classes) if name not in (BACKGROUND, AMBIGUOUS) and on[:, i].any()]


def mean_of(per_class: dict[str, dict[str, Any]], key: str) -> float:
    """Mean of one figure over classes, NaN without any."""
    return float(np.mean([entry[key] for entry in per_class.values()])) if per_class else float("nan")


def average_precision(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float:
    """AP without interpolation of scores (N,) for one class, positive (N,) bool."""
    # Here, because scikit-learn takes a second to import and most commands never measure.
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(positive, scores))


def calibrated_average_precision(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float:
    """AP with precision TP / (TP + FP / w), w = negatives / positives (De Geest et al. 2016, published evaluation).

    It does not depend on how rare the class is. Chunks of equal score count together, so their order is no matter
    and constant scores give 0.5. scores (N,), positive (N,) bool with at least one True.
    """
    return Ranking(scores, positive).average_precision(calibrated=True)


class Ranking:
    """Chunks of one class sorted once, for the average precision of many subsets and resamples of them."""

    def __init__(self, scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> None:
        self.order = np.argsort(-scores, kind="stable")
        """(N,) chunks from the highest score to the lowest"""
        ranked = scores[self.order]
        last = np.flatnonzero(np.append(ranked[1:] != ranked[:-1], True))  # of each tie
        self.positive = np.flatnonzero(positive[self.order])
        """(P,) places in the order of those in which the class is on"""
        self.end = last[np.searchsorted(last, self.positive)]
        """(P,) place of the last chunk that scores the same"""
        self._up_to = np.searchsorted(self.positive, self.end, side="right") - 1

    def average_precision(self, weights: NDArray[np.integer] | None = None, calibrated: bool = False) -> float:
        """AP, or cAP, where chunk n of the order counts weights[n] times; NaN without a positive."""
        if weights is None:
            weights = np.ones(len(self.order), dtype=np.int64)
        gained = weights[self.positive]
        total = int(gained.sum())
        if not total:
            return float("nan")
        seen = np.cumsum(weights, dtype=np.int64)
        true = np.cumsum(gained, dtype=np.int64)[self._up_to].astype(np.float64)
        false = seen[self.end] - true
        if calibrated and seen[-1] > total:
            false *= total / (seen[-1] - total)
        counts = gained > 0
        return float((gained[counts] * true[counts] / (true[counts] + false[counts])).sum() / total)


def class_prior(train_targets: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """Share of training chunks (C,) that carry each class. Raises LstrError without a training chunk."""
    if not sum(len(video) for video in train_targets):
        raise LstrError("Without a training chunk no class can be counted.", "Use labels with a training subset.")
    return np.concatenate(list(train_targets)).mean(axis=0, dtype=np.float64).astype(np.float32)


def chance(train_targets: Sequence[NDArray[Any]], n: int) -> NDArray[np.float32]:
    """Scores (n, C) that are the same for every chunk: the share of training chunks of each class.

    train_targets: a (L, C) array for each training video.
    """
    prior = class_prior(train_targets)
    return np.tile(prior, (n, 1))


def time_prior(train_targets: Sequence[NDArray[Any]], length: int) -> NDArray[np.float32]:
    """Scores (length, C) that know only the time since a video's start: how often each class is on at that chunk.

    Counts are averaged over 2 s to either side, and the class prior weighs as much as one more video, so that it
    takes over where training videos become few and stands alone beyond the longest.
    """
    prior = class_prior(train_targets)
    on = np.zeros((length, len(prior)))
    videos = np.zeros((length, 1))
    for video in train_targets:
        n = min(len(video), length)
        on[:n] += video[:n] > 0
        videos[:n] += 1
    on, videos = (_moving_sum(counts) for counts in (on, videos))
    weight = _moving_sum(np.ones((length, 1)))
    return ((on + weight * prior) / (videos + weight)).astype(np.float32)


def _moving_sum(counts: NDArray[np.float64]) -> NDArray[np.float64]:
    """Sums over SMOOTHING_CHUNKS to either side along the first axis, of shape (n, ...)."""
    n = len(counts)
    total = np.concatenate([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
    chunk = np.arange(n)
    return total[np.minimum(chunk + SMOOTHING_CHUNKS + 1, n)] - total[np.maximum(chunk - SMOOTHING_CHUNKS, 0)]

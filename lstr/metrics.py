"""Per-chunk average precision, plain and calibrated, and what the labels alone would score."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import LstrError
from lstr.labels import AMBIGUOUS, BACKGROUND

SMOOTHING_CHUNKS = 8
"""Chunks to either side that `time_prior` averages over: 2 s."""


def per_frame(
    scores: NDArray[np.floating], targets: NDArray[Any], classes: Sequence[str], ignore: str | None = AMBIGUOUS
) -> dict[str, Any]:
    """mAP and mcAP over the chunks of all videos together: {"mAP", "mcAP", "per_class": {name: {...}}}.

    scores (N, C) and multi-hot targets (N, C). Each entry of per_class has "AP", "cAP" and "positives" (chunks).
    Background and classes without a positive chunk are left out, and so are the class `ignore` and the chunks
    that carry it (published evaluation; its mcAP keeps them, which is ignore=None). The means are NaN when no
    class is left. Raises LstrError when shapes differ or a score is NaN.
    """
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
    if ignore in classes:
        keep = ~on[:, list(classes).index(ignore)]
        scores, on = scores[keep], on[keep]
    per_class = {}
    for column, name in enumerate(classes):
        if name in (BACKGROUND, ignore, AMBIGUOUS) or not on[:, column].any():
            continue
        per_class[name] = {
            "AP": average_precision(scores[:, column], on[:, column]),
            "cAP": calibrated_average_precision(scores[:, column], on[:, column]),
            "positives": int(on[:, column].sum()),
        }
    means = {
        mean: float(np.mean([entry[key] for entry in per_class.values()])) if per_class else float("nan")
        for mean, key in (("mAP", "AP"), ("mcAP", "cAP"))
    }
    return {**means, "per_class": per_class}


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
    order = np.argsort(-scores, kind="stable")
    ranked, hits = scores[order], positive[order]
    last_of_tie = np.append(ranked[1:] != ranked[:-1], True)
    true = np.cumsum(hits)[last_of_tie].astype(np.float64)
    false = np.cumsum(~hits)[last_of_tie].astype(np.float64)
    w = max(float(false[-1] / true[-1]), np.finfo(np.float64).tiny)
    gained = np.diff(true, prepend=0.0)
    counted = gained > 0
    true, false, gained = true[counted], false[counted], gained[counted]
    return float((gained * true / (true + false / w)).sum() / true[-1])


def class_prior(train_targets: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """Share of training chunks (C,) that carry each class. Raises LstrError without a training chunk."""
    if not sum(len(video) for video in train_targets):
        raise LstrError("There is no training chunk to count classes in.", "Give labels with a training subset.")
    return np.concatenate(list(train_targets)).mean(axis=0, dtype=np.float64).astype(np.float32)


def chance(train_targets: Sequence[NDArray[Any]], n: int) -> NDArray[np.float32]:
    """Scores (n, C) that say the same of every chunk: the share of training chunks of each class.

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

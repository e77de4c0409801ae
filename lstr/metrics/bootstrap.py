"""How far a mean AP would move with other test videos: resamples of the videos with replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import AMBIGUOUS
from lstr.metrics.per_frame import Ranking, counted, scored_columns

LEVEL = 0.95
RESAMPLES_TOGETHER = 100


def draw(n_videos: int, resamples: int, seed: int = 0) -> NDArray[np.int64]:
    """How often each video is in each resample (resamples, n_videos); the same for the same numbers."""
    drawn = np.random.default_rng(seed).integers(0, n_videos, (resamples, n_videos))
    return np.array([np.bincount(row, minlength=n_videos) for row in drawn], dtype=np.int64).reshape(-1, n_videos)


def resampled_means(
    scores: Sequence[NDArray[np.floating]],
    targets: Sequence[NDArray[Any]],
    classes: Sequence[str],
    draws: NDArray[np.int64],
    calibrated: bool = False,
    ignore: str | None = AMBIGUOUS,
) -> NDArray[np.float64]:
    """mAP, or mcAP, of each resample (resamples,), as `per_frame` defines them; an array (L, C) per video.

    A class that is on in no chunk of a resample is not in its mean, which is NaN where no class is left.
    """
    on = np.concatenate([np.asarray(video) for video in targets]) > 0
    keep = counted(on, classes, ignore)
    of_video = np.repeat(np.arange(len(targets)), [len(video) for video in targets])[keep]
    on, rows = on[keep], np.concatenate(list(scores))[keep]
    columns = scored_columns(on, classes)
    precisions = np.full((len(draws), len(columns)), np.nan)
    for place, (column, _) in enumerate(columns):
        precisions[:, place] = _precisions(Ranking(rows[:, column], on[:, column]), of_video, draws, calibrated)
    defined = ~np.isnan(precisions)
    totals = np.where(defined, precisions, 0).sum(axis=1)
    return np.where(defined.any(axis=1), totals / np.maximum(defined.sum(axis=1), 1), np.nan)


def _precisions(
    ranking: Ranking, of_video: NDArray[np.int64], draws: NDArray[np.int64], calibrated: bool
) -> NDArray[np.float64]:
    """What `ranking.average_precision` gives of each resample (R,), as one product of draws with counts per video.

    of_video (N,) is the video of each chunk. Counts are whole numbers below 2 ** 24, so float32 holds them.
    """
    n_videos, of_ranked = draws.shape[1], of_video[ranking.order]

    def counts(ranks: NDArray[np.int64]) -> NDArray[np.float32]:
        """How many of `ranks` are at or above each positive and its ties, per video: (P, V)."""
        first = np.searchsorted(ranking.end, ranks)  # the first positive that each is at or above
        inside = first < len(ranking.end)
        cells = first[inside] * n_videos + of_ranked[ranks[inside]]
        table = np.bincount(cells, minlength=len(ranking.end) * n_videos).reshape(-1, n_videos)
        return table.cumsum(axis=0).astype(np.float32)

    above, true_above = counts(np.arange(len(of_ranked))), counts(ranking.positive)
    chunks, found = np.bincount(of_ranked, minlength=n_videos), []
    for part in np.array_split(draws, range(RESAMPLES_TOGETHER, len(draws), RESAMPLES_TOGETHER)):
        times = part.T.astype(np.float32)  # (V, R)
        true = (true_above @ times).astype(np.float64)  # (P, R)
        false = (above @ times) - true
        gained = part.T[of_ranked[ranking.positive]]  # (P, R)
        total = gained.sum(axis=0)  # (R,)
        if calibrated:
            negatives = part @ chunks - total
            false *= np.where(negatives > 0, total / np.maximum(negatives, 1), 1.0)
        precision = np.divide(true, true + false, out=np.zeros_like(true), where=true > 0)
        found.append(np.where(total > 0, (gained * precision).sum(axis=0) / np.maximum(total, 1), np.nan))
    return np.concatenate(found)


def interval(values: NDArray[np.float64]) -> list[float]:
    """The middle `LEVEL` of resampled values (percentile bootstrap): [low, high]; NaN without a value."""
    values = values[~np.isnan(values)]
    if not len(values):
        return [float("nan"), float("nan")]
    tail = 100 * (1 - LEVEL) / 2
    return [float(edge) for edge in np.percentile(values, [tail, 100 - tail])]

"""How far a mean AP would move with other test videos: resamples of the videos with replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels import AMBIGUOUS
from lstr.metrics import Ranking, counted, scored_columns

LEVEL = 0.95


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
    """mAP, or mcAP, of each resample (resamples,), as `lstr.metrics.per_frame` defines them; arrays (L, C) a video.

    A class that is on in no chunk of a resample is not in its mean, which is NaN where no class is left.
    """
    on = np.concatenate([np.asarray(video) for video in targets]) > 0
    keep = counted(on, classes, ignore)
    of_video = np.repeat(np.arange(len(targets)), [len(video) for video in targets])[keep]
    on, rows = on[keep], np.concatenate(list(scores))[keep]
    columns = scored_columns(on, classes)
    precisions = np.full((len(draws), len(columns)), np.nan)
    for place, (column, _) in enumerate(columns):
        ranking = Ranking(rows[:, column], on[:, column])
        ranked = of_video[ranking.order]
        for i, times in enumerate(draws):
            precisions[i, place] = ranking.average_precision(times[ranked], calibrated)
    there = ~np.isnan(precisions)
    totals = np.where(there, precisions, 0).sum(axis=1)
    return np.where(there.any(axis=1), totals / np.maximum(there.sum(axis=1), 1), np.nan)


def interval(values: NDArray[np.float64], level: float = LEVEL) -> list[float]:
    """The middle `level` of resampled values (percentile bootstrap): [low, high]; NaN without a value."""
    values = values[~np.isnan(values)]
    if not len(values):
        return [float("nan"), float("nan")]
    tail = 100 * (1 - level) / 2
    return [float(edge) for edge in np.percentile(values, [tail, 100 - tail])]

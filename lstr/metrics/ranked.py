"""Predictions of one class ranked by their scores, and the average precision of any resample of their videos."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.metrics.intervals import interval

# Numbers of one table that are held at once
CELLS_TOGETHER = 4_000_000


@dataclass(frozen=True)
class Ranked:
    """The predictions of a class in all videos, and which are right or wrong by each of several limits.

    A prediction that is neither counts for nothing, as one that is labelled ambiguous.
    """

    scores: NDArray[np.float64]
    """(N,)"""
    videos: NDArray[np.int64]
    """(N,) the place of each one's video"""
    right: NDArray[np.bool_]
    """(N, K) by limit"""
    wrong: NDArray[np.bool_]
    """(N, K)"""
    truths: NDArray[np.int64]
    """(V,) how many there are to be found in each video"""

    def average_precisions(self, draws: NDArray[np.int64] | None = None, interpolated: bool = False) -> NDArray[Any]:
        """Return the AP (R, K) of each resample of the videos by each limit; NaN if nothing is to be found.

        `draws` (R, V) are of `intervals.draw`; without them each video is there once, and R is 1. AP is the precision
        at each right prediction, averaged over everything to be found; `interpolated`, the highest precision at that
        recall or a higher one. Predictions of equal score count together, so that the order of videos has no effect.
        """
        draws = np.ones((1, len(self.truths)), dtype=np.int64) if draws is None else draws
        found = np.full((len(draws), self.right.shape[1]), np.nan)
        most = max(1, int(self.right.sum(axis=0).max(initial=0)))
        for rows in np.array_split(np.arange(len(draws)), 1 + len(draws) * most // CELLS_TOGETHER):
            for limit in range(found.shape[1]):
                found[rows, limit] = self._of_limit(limit, draws[rows], interpolated)
        return found

    def _of_limit(self, limit: int, draws: NDArray[np.int64], interpolated: bool) -> NDArray[np.float64]:
        """Return the AP (R,) by one limit: counts by rank and video, times how often each video is drawn."""
        times = draws.T.astype(np.float64)  # (V, R)
        total = draws @ self.truths
        right, wrong = self.right[:, limit], self.wrong[:, limit]
        if not right.any():
            return np.where(total > 0, 0.0, np.nan)
        steps = -np.unique(-self.scores[right])  # the scores at which recall rises, from the highest down
        gained = self._counts(right, steps) @ times  # (P, R)
        true, false = np.cumsum(gained, axis=0), np.cumsum(self._counts(wrong, steps) @ times, axis=0)
        precision = np.divide(true, true + false, out=np.zeros_like(true), where=true > 0)
        if interpolated:
            precision = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
        return np.where(total > 0, (gained * precision).sum(axis=0) / np.maximum(total, 1), np.nan)

    def _counts(self, chosen: NDArray[np.bool_], steps: NDArray[np.float64]) -> Any:
        """Return how many of the chosen come with each step, those between two with the lower one: sparse (P, V)."""
        from scipy.sparse import csr_matrix

        at = np.searchsorted(-steps, -self.scores[chosen])  # the first step that is as low
        inside = at < len(steps)  # what is below all of them lowers no precision that counts
        cells = np.ones(int(inside.sum())), (at[inside], self.videos[chosen][inside])
        return csr_matrix(cells, shape=(len(steps), len(self.truths)))


def joined(of_videos: Sequence[tuple[Any, Any, Any]], truths: Sequence[int], limits: int) -> Ranked:
    """Return the predictions of all videos: scores (N,), right (N, K) and wrong (N, K) of each, and its truths."""
    scores, right, wrong = zip(*of_videos, strict=True) if of_videos else ((), (), ())
    lengths = [len(rows) for rows in scores]
    none = np.zeros((0, limits), bool)
    return Ranked(
        np.concatenate([np.zeros(0), *scores]),
        np.repeat(np.arange(len(lengths)), lengths),
        np.concatenate([none, *right]),
        np.concatenate([none, *wrong]),
        np.array(truths, dtype=np.int64),
    )


def match_by_score(
    worth: NDArray[np.float64], scores: NDArray[np.float64], limits: Sequence[float]
) -> NDArray[np.int64]:
    """Which truth each prediction of a video gets (N, K) by each limit, -1 for none; `worth` (N, T) of every pair.

    From the highest score down (equal ones in their order) a prediction gets the truth of most worth that is still
    free, if that is worth at least the limit.
    """
    found = np.full((len(scores), len(limits)), -1, dtype=np.int64)
    order = np.argsort(-scores, kind="stable")
    for place, limit in enumerate(limits):
        hopeful = worth >= limit
        free = np.ones(worth.shape[1], dtype=bool)
        for at in order[hopeful[order].any(axis=1)]:
            open_to = hopeful[at] & free
            if open_to.any():
                found[at, place] = best = int(np.where(open_to, worth[at], -np.inf).argmax())
                free[best] = False
    return found


def summary(of_class: dict[str, Ranked], draws: NDArray[np.int64] | None, interpolated: bool = False) -> dict[str, Any]:
    """AP by limit of classes that have something to be found, their means over the limits, and intervals over `draws`.

    {"mAP": [...], "mean", "interval": {"mAP": [[low, high], ...], "mean": [...]} or None, "per_class": {label: {"AP",
    "mean", "interval" of both, "labels", "said"}}}. A class is in no mean of a resample that lacks its truths.
    """
    labelled = {name: ranked for name, ranked in of_class.items() if ranked.truths.sum()}
    limits = next(iter(of_class.values())).right.shape[1] if of_class else 0
    drawn = draws is not None and len(draws) > 0
    per_class: dict[str, Any] = {}
    points, resampled = [], []
    for name, ranked in labelled.items():
        points.append(ranked.average_precisions(interpolated=interpolated)[0])
        if drawn:
            resampled.append(ranked.average_precisions(draws, interpolated))
        per_class[name] = _values("AP", points[-1], resampled[-1] if drawn else None)
        per_class[name] |= {"labels": int(ranked.truths.sum()), "said": len(ranked.scores)}
    means = np.mean(points, axis=0) if points else np.full(limits, np.nan)
    return {**_values("mAP", means, mean_of(resampled) if resampled else None), "per_class": per_class}


def mean_of(resampled: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the mean (R, K) of the classes that each resample has, NaN if it has none."""
    values = np.array(resampled)  # (C, R, K)
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    return np.where(count > 0, np.where(known, values, 0).sum(axis=0) / np.maximum(count, 1), np.nan)


def _values(name: str, points: NDArray[np.float64], resampled: NDArray[np.float64] | None) -> dict[str, Any]:
    """Return the values by limit, their mean, and the intervals of both."""
    entry = {name: points.tolist(), "mean": float(np.mean(points)) if len(points) else float("nan")}
    if resampled is None:
        return {**entry, "interval": None}
    edges = [interval(resampled[:, limit]) for limit in range(resampled.shape[1])]
    return {**entry, "interval": {name: edges, "mean": interval(resampled.mean(axis=1))}}

"""Average precision of predicted instances (On-TAL) and of predicted starts (ODAS), ranked by their scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.segment import Segment
from lstr.metrics.actions import SLACK, VideoEvents, is_ambiguous, labelled_spans, overlaps, spans_of
from lstr.metrics.intervals import interval, percentiles
from lstr.metrics.per_frame import counted, predicted_classes

IOUS = (0.3, 0.4, 0.5, 0.6, 0.7)
# Seconds that a start may be off (Shou et al. 2018, online detection of action starts)
OFFSETS = tuple(range(1, 11))
# Numbers of one table in memory, 32 MB
CELLS_TOGETHER = 4_000_000


@dataclass(frozen=True)
class Ranked:
    """The predictions of a class in all videos, and which are right or wrong by each of several limits.

    A prediction that is neither counts for nothing, as one that is labelled ambiguous.
    """

    # (N,)
    scores: NDArray[np.float64]
    # (N,) the place of each one's video
    videos: NDArray[np.int64]
    # (N, K) by limit
    right: NDArray[np.bool_]
    # (N, K)
    wrong: NDArray[np.bool_]
    # (V,) how many there are to be found in each video
    truths: NDArray[np.int64]

    def average_precisions(self, draws: NDArray[np.int64] | None = None, interpolated: bool = False) -> NDArray[Any]:
        """Return the AP (R, K) of each resample of the videos by each limit; NaN if nothing is to be found.

        `draws` (R, V) are of `intervals.draw`; without them each video is there once, and R is 1. AP is the precision
        at each right prediction, averaged over everything to be found; `interpolated`, the highest precision at that
        recall or a higher one. Predictions of equal score count together, so that the order of videos has no effect.
        """
        from scipy.sparse import csr_matrix

        draws = np.ones((1, len(self.truths)), dtype=np.int64) if draws is None else draws
        found = np.full((len(draws), self.right.shape[1]), np.nan)
        most = max(1, int(self.right.sum(axis=0).max(initial=0)))
        parts = np.array_split(np.arange(len(draws)), 1 + len(draws) * most // CELLS_TOGETHER)
        for limit in range(found.shape[1]):
            right, wrong = self.right[:, limit], self.wrong[:, limit]
            steps = -np.unique(-self.scores[right])  # the scores at which recall rises, from the highest down

            def counts(chosen: NDArray[np.bool_], steps: NDArray[np.float64] = steps) -> Any:
                """Return the number of the chosen from each step up to the next lower one: sparse (P, V)."""
                at = np.searchsorted(-steps, -self.scores[chosen])
                inside = at < len(steps)  # those below all steps lower no precision that counts
                cells = np.ones(int(inside.sum())), (at[inside], self.videos[chosen][inside])
                return csr_matrix(cells, shape=(len(steps), len(self.truths)))

            for rows in parts:
                total = draws[rows] @ self.truths
                if not len(steps):
                    found[rows, limit] = np.where(total > 0, 0.0, np.nan)
                    continue
                times = draws[rows].T.astype(np.float64)  # (V, R)
                gained = counts(right) @ times  # (P, R)
                true, false = np.cumsum(gained, axis=0), np.cumsum(counts(wrong) @ times, axis=0)
                precision = np.divide(true, true + false, out=np.zeros_like(true), where=true > 0)
                if interpolated:
                    precision = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
                sums = (gained * precision).sum(axis=0)
                found[rows, limit] = np.where(total > 0, sums / np.maximum(total, 1), np.nan)
        return found


def measure_instances(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """AP of the detections as instances by IoU: {"ious", "mAP", "mean", "interval", "per_class"} of `ranked.summary`,
    and "late" of all and of each class: p50 and p95 of the seconds from a label's end until the detection that is right
    for it at an IoU of 0.3 was reported, None if it is unknown.

    ActivityNet's rules, which the code of OAT-OSN takes for online localisation: from the highest score down (equal
    ones of a video in their order) a detection is right when the label of its class and video with the highest IoU that
    is still free has at least that IoU; precision is interpolated at every recall. Two things differ: detections of
    equal score count together, and one without a label that is labelled ambiguous in at least half is left out. A
    detection's score is the reported one, or 1. `draws` (R, videos) of `intervals.draw` give the
    intervals.

    A class without a label is in no mean; NaN where none is left.
    """
    found = summary(_rank_instances(videos, classes), draws, interpolated=True)
    every: list[float] = []
    for label, entry in found["per_class"].items():
        late: list[float] = []
        for video in videos:
            if video.told is None:
                continue
            truth, detections, scores = _of_class(video, label)
            told = [time for s, time in zip(video.detections, video.told, strict=True) if s.label == label]
            places = match_by_score(overlaps(truth, detections).T, scores, [IOUS[0] - SLACK])[:, 0]
            late += [float(told[d] - truth[t, 1]) for d, t in enumerate(places) if t >= 0]
        entry["late"] = percentiles(late)
        every += late
    return {"ious": list(IOUS), **found, "late": percentiles(every)}


def resampled_instances(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The mean over IoUs of the mAP in each of `draws` (R, videos), (R,); NaN where there is nothing to be found."""
    labelled = [ranked for ranked in _rank_instances(videos, classes).values() if ranked.truths.sum()]
    if not labelled:
        return np.full(len(draws), np.nan)
    return np.asarray(
        mean_of([ranked.average_precisions(draws, interpolated=True) for ranked in labelled]).mean(axis=1)
    )


def _rank_instances(videos: Sequence[VideoEvents], classes: Sequence[str]) -> dict[str, Ranked]:
    """Return the detections of each action, each judged in its video."""
    found = {}
    for label in (label for label in classes if label not in (BACKGROUND, AMBIGUOUS)):
        judged, truths = [], []
        for video in videos:
            truth, detections, scores = _of_class(video, label)
            right = match_by_score(overlaps(truth, detections).T, scores, [least - SLACK for least in IOUS]) >= 0
            excused = is_ambiguous(detections, spans_of(video.truth, AMBIGUOUS))
            judged.append((scores, right, ~right & ~excused[:, None]))
            truths.append(len(truth))
        found[label] = joined(judged, truths, len(IOUS))
    return found


def _of_class(video: VideoEvents, label: str) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.float64]]:
    """Return the labels (N, 2) and detections (M, 2) of a class, and the scores of the detections."""
    scores = [1.0 if s.score is None else s.score for s in video.detections if s.label == label]
    truth = labelled_spans(video.truth, label, video.seconds)
    return truth, spans_of(video.detections, label), np.array(scores, dtype=np.float64)


def start_precision(
    scores: Sequence[NDArray[np.floating]],
    targets: Sequence[NDArray[Any]],
    segments: Sequence[Sequence[Segment]],
    classes: Sequence[str],
    offsets: Sequence[float] = OFFSETS,
    draws: NDArray[np.int64] | None = None,
    clock: Clock = CLOCK,
) -> dict[str, Any]:
    """Return the point-level AP of action starts (ODAS): {"offsets", "mAP": one value per offset, "mean", "interval",
    "per_class"} of `ranked.summary`.

    A start is predicted where the predicted class becomes an action, with that class's score, at the beginning of the
    chunk. From the highest score down (equal ones of a video by time), one is right when a labelled start of its class
    in its video, to which none is matched yet, is at most an offset (seconds) away; the nearest is matched. AP is the
    sum of the precisions at the right ones, over the labelled starts; starts of equal score count together. Arrays
    (L, C) and segments per video; starts predicted in an ambiguous chunk are left out. Classes without a labelled start
    are left out, and the means are NaN without any. `draws` (R, videos) of `intervals.draw` give the intervals.
    """
    actions = [name for name in classes if name not in (BACKGROUND, AMBIGUOUS)]
    judged: dict[str, list[Any]] = {name: [] for name in actions}
    truths: dict[str, list[int]] = {name: [] for name in actions}
    for rows, on, labelled in zip(scores, targets, segments, strict=True):
        tops, keep = predicted_classes(rows, classes), counted(np.asarray(on) > 0, classes)
        begins = np.flatnonzero(np.append(True, tops[1:] != tops[:-1]) & keep if len(tops) else keep)
        for name in actions:
            column = classes.index(name)
            chunks = begins[tops[begins] == column]
            starts = np.array([action.start for action in labelled if action.label == name])
            surety = np.asarray(rows)[chunks, column].astype(np.float64)
            near = -np.abs(clock.at(chunks)[:, None] - starts[None])
            right = match_by_score(near, surety, [-offset for offset in offsets]) >= 0
            judged[name].append((surety, right, ~right))
            truths[name].append(len(starts))
    of_class = {name: joined(judged[name], truths[name], len(offsets)) for name in actions}
    found = summary(of_class, draws)
    for entry in found["per_class"].values():
        entry["starts"] = entry.pop("labels")
    return {"offsets": list(offsets), **found}


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

"""Average precision of predicted instances (On-TAL) and of predicted starts (ODAS), ranked by their scores."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, actions_of
from lstr.labels.segment import Segment
from lstr.metrics.actions import SLACK, VideoEvents, is_ambiguous, labelled_spans, overlaps, spans_of
from lstr.metrics.intervals import Draws, interval, mean_of_known, percentiles
from lstr.metrics.per_frame import Ranked, Videos, counted, predicted_classes

IOUS = (0.3, 0.4, 0.5, 0.6, 0.7)
OFFSETS = tuple(range(1, 11))  # tolerances of a start in seconds (Shou et al. 2018, online detection of action starts)


def measure_instances(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: Draws | None = None
) -> dict[str, Any]:
    """Compute the AP of detections as instances, by IoU (On-TAL).

    The rules are ActivityNet's, which OAT-OSN uses for online localisation. In descending order of scores (equal scores
    in their order in the video) a detection is right if the unmatched label of its class and video with the highest IoU
    reaches the limit; precision is interpolated at every recall. There are two differences: detections with equal
    scores count together, and a detection without a label is skipped if at least half of it is labelled ambiguous. The
    score of a detection is the reported one, or 1.

    Args:
        videos: Labels and detections of each video.
        classes: The classes to measure.
        draws: Resamples (R, videos) of `intervals.draw` for confidence intervals.

    Returns:
        {"ious", "mAP", "mean", "interval", "per_class"} of `ranked.summary`, and "late" for all classes and for each:
        p50 and p95 of the seconds from a label's end to the report of its detection at IoU 0.3; None if unknown.
        Classes without labels are in no mean, which is NaN without any class.
    """
    of_class, late = _rank_instances(videos, classes)
    found = summary(of_class, draws, interpolated=True)
    for label, entry in found["per_class"].items():
        entry["late"] = percentiles(late[label])
    every = [seconds for label in found["per_class"] for seconds in late[label]]
    return {"ious": list(IOUS), **found, "late": percentiles(every)}


def resampled_instances(videos: Sequence[VideoEvents], classes: Sequence[str], draws: Draws) -> NDArray[np.float64]:
    """Return the mean over IoUs of the mAP (R,) for each of `draws` (R, videos); NaN without labels."""
    labelled = [ranked for ranked in _rank_instances(videos, classes)[0].values() if ranked.truths.sum()]
    if not labelled:
        return np.full(len(draws), np.nan)
    of_class = np.array([ranked.average_precisions(draws, interpolated=True) for ranked in labelled])  # (C, R, K)
    return np.asarray(mean_of_known(of_class, axis=0).mean(axis=1))


def _rank_instances(
    videos: Sequence[VideoEvents], classes: Sequence[str]
) -> tuple[dict[str, Ranked], dict[str, list[float]]]:
    """Return the judged detections of each action, and their delays: the `late` of `measure_instances`."""
    found, late = {}, {}
    for label in actions_of(classes):
        judged, truths, delays = [], [], []
        for video in videos:
            truth, detections = labelled_spans(video.truth, label, video.seconds), spans_of(video.detections, label)
            scores = np.array([1.0 if s.score is None else s.score for s in video.detections if s.label == label])
            places = match_by_score(overlaps(truth, detections).T, scores, [least - SLACK for least in IOUS])
            excused = is_ambiguous(detections, spans_of(video.truth, AMBIGUOUS))
            judged.append((scores, places >= 0, (places < 0) & ~excused[:, None]))
            truths.append(len(truth))
            if video.ended is not None:
                ended = [time for s, time in zip(video.detections, video.ended, strict=True) if s.label == label]
                delays += [float(ended[d] - truth[t, 1]) for d, t in enumerate(places[:, 0]) if t >= 0]
        found[label], late[label] = joined(judged, truths, len(IOUS)), delays
    return found, late


def start_precision(
    scores: Videos,
    targets: Videos,
    segments: Sequence[Sequence[Segment]],
    classes: Sequence[str],
    offsets: Sequence[float] = OFFSETS,
    draws: Draws | None = None,
    clock: Clock = CLOCK,
) -> dict[str, Any]:
    """Compute the point-level AP of action starts (ODAS).

    A start is predicted where the predicted class changes to an action, at the beginning of the chunk, with the score
    of that class. In descending order of scores (equal scores of a video by time) it is right if an unmatched labelled
    start of its class and video is at most an offset (in seconds) away; the nearest one is matched. AP is the sum of
    the precisions at right starts divided by the number of labelled starts; starts with equal scores count together.
    Starts that are predicted in an ambiguous chunk and classes without a labelled start are excluded.

    Args:
        scores: Scores (L, C) of each video.
        targets: Multi-hot targets (L, C) of each video.
        segments: Labelled segments of each video.
        classes: Names of the C classes.
        offsets: Tolerances in seconds.
        draws: Resamples (R, videos) of `intervals.draw` for confidence intervals.
        clock: The clock of the chunks.

    Returns:
        {"offsets", "mAP": one value per offset, "mean", "interval", "per_class"} of `ranked.summary`; means are NaN
        without any class.
    """
    actions = actions_of(classes)
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
    """Join the predictions of videos, each as scores (N,), right (N, K), wrong (N, K), and the numbers of labels."""
    scores, right, wrong = zip(*of_videos, strict=True) if of_videos else ((), (), ())
    lengths = [len(rows) for rows in scores]
    none = np.zeros((0, limits), bool)
    return Ranked(
        np.concatenate([np.zeros(0), *scores]),
        np.repeat(np.arange(len(lengths)), lengths),
        np.concatenate([none, *right]),
        np.concatenate([none, *wrong]),
        np.tile(np.array(truths, dtype=np.int64)[:, None], limits),
    )


def match_by_score(
    worth: NDArray[np.float64], scores: NDArray[np.float64], limits: Sequence[float]
) -> NDArray[np.int64]:
    """Match predictions of a video to labels greedily; return the label of each prediction (N, K) by limit, or -1.

    In descending order of scores (equal scores in their order) a prediction gets the unmatched label with the highest
    value in `worth` (N, T), if that value is at least the limit.
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


def summary(of_class: dict[str, Ranked], draws: Draws | None, interpolated: bool = False) -> dict[str, Any]:
    """Summarise the AP by limit of the classes with labels, their means over the limits, and intervals over `draws`.

    Returns {"mAP": [...], "mean", "interval": {"mAP": [[low, high], ...], "mean": [...]} or None, "per_class": {label:
    {"AP", "mean", "interval" of both, "labels", "detections"}}}; both are numbers. A class is excluded from the mean of
    a resample without its labels.
    """
    labelled = {name: ranked for name, ranked in of_class.items() if ranked.truths.sum()}
    limits = next(iter(of_class.values())).right.shape[1] if of_class else 0
    drawn = draws is not None and len(draws) > 0
    per_class: dict[str, Any] = {}
    points, resampled = [], []
    for name, ranked in labelled.items():
        points.append(ranked.average_precisions(interpolated=interpolated)[0])
        if drawn:
            resampled.append(ranked.average_precisions(draws, interpolated=interpolated))
        per_class[name] = _values("AP", points[-1], resampled[-1] if drawn else None)
        per_class[name] |= {"labels": int(ranked.truths[:, 0].sum()), "detections": len(ranked.scores)}
    means = np.mean(points, axis=0) if points else np.full(limits, np.nan)
    of_draws = mean_of_known(np.array(resampled), axis=0) if resampled else None  # (R, K)
    return {**_values("mAP", means, of_draws), "per_class": per_class}


def _values(name: str, points: NDArray[np.float64], resampled: NDArray[np.float64] | None) -> dict[str, Any]:
    """Return the values by limit, their mean, and the intervals of both."""
    entry = {name: points.tolist(), "mean": float(np.mean(points)) if len(points) else float("nan")}
    if resampled is None:
        return {**entry, "interval": None}
    edges = [interval(resampled[:, limit]) for limit in range(resampled.shape[1])]
    return {**entry, "interval": {name: edges, "mean": interval(resampled.mean(axis=1))}}

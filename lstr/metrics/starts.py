"""Actions as moments: how well their starts are found, how long until they are known, what is taken for what."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.segment import Segment
from lstr.metrics.per_frame import counted

OFFSETS = tuple(range(1, 11))
"""Seconds that a start may be off (Shou et al. 2018, online detection of action starts)."""


def predicted_classes(scores: NDArray[np.floating], classes: Sequence[str]) -> NDArray[np.int64]:
    """The class (L,) of the highest score in each row of scores (L, C); the ambiguous class is never predicted."""
    open_to = [i for i, name in enumerate(classes) if name != AMBIGUOUS]
    return np.array(open_to)[np.asarray(scores)[:, open_to].argmax(axis=1)] if len(scores) else np.zeros(0, np.int64)


def start_precision(
    scores: Sequence[NDArray[np.floating]],
    targets: Sequence[NDArray[Any]],
    segments: Sequence[Sequence[Segment]],
    classes: Sequence[str],
    offsets: Sequence[float] = OFFSETS,
    clock: Clock = CLOCK,
) -> dict[str, Any]:
    """Point-level AP of action starts (ODAS): {"offsets", "mAP": one value per offset, "per_class": {name: {...}}}.

    A start is predicted where the predicted class becomes an action, with that class's score, at the beginning of the
    chunk. From the highest score down (equal ones by video and time), one is right when a labelled start of its class
    in its video, to which none is matched yet, is at most an offset (seconds) away; the nearest is matched. AP is the
    sum of the precisions at the right ones, over the labelled starts. Arrays (L, C) and segments per video; starts
    predicted in an ambiguous chunk are left out. Classes without a labelled start are left out, and the means are NaN
    without any.
    """
    predicted: dict[str, list[tuple[float, int, float]]] = {name: [] for name in classes}
    labelled: dict[str, list[tuple[int, float]]] = {name: [] for name in classes}
    for video, (rows, on, actions) in enumerate(zip(scores, targets, segments, strict=True)):
        for action in actions:
            labelled[action.label].append((video, action.start))
        tops, keep = predicted_classes(rows, classes), counted(np.asarray(on) > 0, classes)
        begins = np.append(True, tops[1:] != tops[:-1]) & keep if len(tops) else keep
        for chunk in np.flatnonzero(begins):
            point = float(rows[chunk, tops[chunk]]), video, float(clock.at(int(chunk)))
            predicted[classes[tops[chunk]]].append(point)
    per_class = {
        name: {
            "AP": [_point_average_precision(predicted[name], labelled[name], offset) for offset in offsets],
            "starts": len(labelled[name]),
            "said": len(predicted[name]),
        }
        for name in classes
        if labelled[name] and name not in (BACKGROUND, AMBIGUOUS)
    }
    rows = np.array([entry["AP"] for entry in per_class.values()])
    means = rows.mean(axis=0).tolist() if len(rows) else [float("nan")] * len(offsets)
    return {"offsets": list(offsets), "mAP": means, "per_class": per_class}


def _point_average_precision(
    predicted: Sequence[tuple[float, int, float]], labelled: Sequence[tuple[int, float]], offset: float
) -> float:
    free: dict[int, list[float]] = {}
    for video, start in labelled:
        free.setdefault(video, []).append(start)
    right, gained = 0, 0.0
    for rank, (_, video, time) in enumerate(sorted(predicted, key=lambda point: -point[0]), start=1):
        near = [start for start in free.get(video, []) if abs(start - time) <= offset]
        if near:
            free[video].remove(min(near, key=lambda start: abs(start - time)))
            right += 1
            gained += right / rank
    return gained / len(labelled)


def detection_delay(
    scores: Sequence[NDArray[np.floating]],
    targets: Sequence[NDArray[Any]],
    segments: Sequence[Sequence[Segment]],
    classes: Sequence[str],
    clock: Clock = CLOCK,
) -> dict[str, Any]:
    """Seconds from each action's start to its first correct decision: summary, "per_class", and "seconds" of each.

    A decision is made at the end of its chunk. It is correct for an action when, in a chunk of that action, its class
    scores above every class that is not on in it, so that an action under way at the same time is no mistake. A
    perfect model therefore needs up to the length of a chunk. Actions without a chunk in the video are left out; those
    that are never decided correctly are missed, and in no median. Arrays (L, C) and segments per video.
    """
    column = {name: i for i, name in enumerate(classes)}
    delays: dict[str, list[float]] = {name: [] for name in classes}
    for rows, on, actions in zip(scores, targets, segments, strict=True):
        rivals = np.where(np.asarray(on) > 0, -np.inf, rows)
        if AMBIGUOUS in column:
            rivals[:, column[AMBIGUOUS]] = -np.inf
        best = rivals.max(axis=1, initial=-np.inf)
        for action in actions:
            first, stop = max(0, clock.first(action.start)), min(clock.end(action.end), len(rows))
            if action.label in (BACKGROUND, AMBIGUOUS) or first >= stop:
                continue
            right = np.flatnonzero(rows[first:stop, column[action.label]] > best[first:stop])
            decided = clock.at(first + int(right[0]) + 1) - action.start if len(right) else np.inf
            delays[action.label].append(float(decided))
    per_class = {name: _summary(values) for name, values in delays.items() if values}
    every = [value for values in delays.values() for value in values]
    return {**_summary(every), "per_class": per_class, "seconds": sorted(v for v in every if np.isfinite(v))}


def _summary(delays: Sequence[float]) -> dict[str, Any]:
    """Actions, how many are detected, and median, mean and 90th percentile of the delays (s) of those, NaN if none."""
    found = np.array([value for value in delays if np.isfinite(value)])
    shown = found if len(found) else np.array([np.nan])
    return {
        "actions": len(delays),
        "detected": len(found),
        "median": float(np.median(shown)),
        "mean": float(np.mean(shown)),
        "p90": float(np.percentile(shown, 90)),
    }


def confusion(
    scores: Sequence[NDArray[np.floating]], targets: Sequence[NDArray[Any]], classes: Sequence[str]
) -> NDArray[np.int64]:
    """How many chunks of each class (row) were taken for another (column), counts (C, C), wrong chunks alone.

    A chunk is wrong when the predicted class is not on; it counts for each class that is on. Ambiguous chunks are left
    out.
    """
    counts = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for rows, video in zip(scores, targets, strict=True):
        on = np.asarray(video) > 0
        tops = predicted_classes(rows, classes)
        wrong = counted(on, classes) & ~on[np.arange(len(on)), tops]
        chunks, truth = np.nonzero(on & wrong[:, None])
        np.add.at(counts, (truth, tops[chunks]), 1)
    return counts

"""Actions as moments: how well their starts are found, how long until they are known, what is taken for what."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.action_stages import runs
from lstr.config import FEATURES_PER_SECOND
from lstr.labels import AMBIGUOUS, BACKGROUND, Segment, end_chunk, first_chunk
from lstr.metrics import counted

OFFSETS = tuple(range(1, 11))
"""Seconds that a start may be off (Shou et al. 2018, online detection of action starts)."""


def segments_of(targets: NDArray[Any], classes: Sequence[str]) -> list[Segment]:
    """Segments (label, start, end) in seconds of targets (L, C), for a video whose labels are chunks alone."""
    return [
        (name, start / FEATURES_PER_SECOND, stop / FEATURES_PER_SECOND)
        for column, name in enumerate(classes)
        if name not in (BACKGROUND, AMBIGUOUS)
        for start, stop in runs(np.asarray(targets)[:, column] > 0)
    ]


def said_classes(scores: NDArray[np.floating], classes: Sequence[str]) -> NDArray[np.int64]:
    """The class (L,) of the highest score in each row of scores (L, C); the ambiguous class is never said."""
    open_to = [i for i, name in enumerate(classes) if name != AMBIGUOUS]
    return np.array(open_to)[np.asarray(scores)[:, open_to].argmax(axis=1)] if len(scores) else np.zeros(0, np.int64)


def start_precision(
    scores: Sequence[NDArray[np.floating]],
    targets: Sequence[NDArray[Any]],
    segments: Sequence[Sequence[Segment]],
    classes: Sequence[str],
    offsets: Sequence[float] = OFFSETS,
) -> dict[str, Any]:
    """Point-level AP of action starts (ODAS): {"offsets", "mAP": a value an offset, "per_class": {name: {...}}}.

    A start is said where the class said becomes an action's, with that class's score, at the beginning of the chunk.
    From the highest score down (equal ones by video and time), one is right when a labelled start of its class in its
    video, to which none is matched yet, is at most an offset (seconds) away; the nearest is matched. AP is the sum of
    the precisions at the right ones, over the labelled starts. Arrays (L, C) and segments a video; what is said in an
    ambiguous chunk is left out. Classes without a labelled start are left out, and the means are NaN without any.
    """
    said: dict[str, list[tuple[float, int, float]]] = {name: [] for name in classes}
    labelled: dict[str, list[tuple[int, float]]] = {name: [] for name in classes}
    for video, (rows, on, there) in enumerate(zip(scores, targets, segments, strict=True)):
        for label, start, _ in there:
            labelled[label].append((video, start))
        tops, keep = said_classes(rows, classes), counted(np.asarray(on) > 0, classes)
        begins = np.append(True, tops[1:] != tops[:-1]) & keep if len(tops) else keep
        for chunk in np.flatnonzero(begins):
            said[classes[tops[chunk]]].append((float(rows[chunk, tops[chunk]]), video, chunk / FEATURES_PER_SECOND))
    per_class = {
        name: {
            "AP": [_point_average_precision(said[name], labelled[name], offset) for offset in offsets],
            "starts": len(labelled[name]),
            "said": len(said[name]),
        }
        for name in classes
        if labelled[name] and name not in (BACKGROUND, AMBIGUOUS)
    }
    rows = np.array([entry["AP"] for entry in per_class.values()])
    means = rows.mean(axis=0).tolist() if len(rows) else [float("nan")] * len(offsets)
    return {"offsets": list(offsets), "mAP": means, "per_class": per_class}


def _point_average_precision(
    said: Sequence[tuple[float, int, float]], labelled: Sequence[tuple[int, float]], offset: float
) -> float:
    free: dict[int, list[float]] = {}
    for video, start in labelled:
        free.setdefault(video, []).append(start)
    right, gained = 0, 0.0
    for rank, (_, video, time) in enumerate(sorted(said, key=lambda point: -point[0]), start=1):
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
) -> dict[str, Any]:
    """Seconds from each action's start to its first correct decision: summary, "per_class", and "seconds" of each.

    A decision is made at the end of its chunk. It is correct for an action when, in a chunk of that action, its class
    scores above every class that is not on there, so that an action under way at the same time is no mistake. A
    perfect model therefore needs up to 0.25 s. Actions without a chunk in the video are left out; those that are never
    decided correctly are missed, and in no median. Arrays (L, C) and segments a video.
    """
    column = {name: i for i, name in enumerate(classes)}
    delays: dict[str, list[float]] = {name: [] for name in classes}
    for rows, on, there in zip(scores, targets, segments, strict=True):
        rivals = np.where(np.asarray(on) > 0, -np.inf, rows)
        if AMBIGUOUS in column:
            rivals[:, column[AMBIGUOUS]] = -np.inf
        best = rivals.max(axis=1, initial=-np.inf)
        for label, start, end in there:
            first, stop = first_chunk(start), min(end_chunk(end), len(rows))
            if label in (BACKGROUND, AMBIGUOUS) or first >= stop:
                continue
            right = np.flatnonzero(rows[first:stop, column[label]] > best[first:stop])
            decided = (first + right[0] + 1) / FEATURES_PER_SECOND - start if len(right) else np.inf
            delays[label].append(float(decided))
    per_class = {name: _summary(values) for name, values in delays.items() if values}
    every = [value for values in delays.values() for value in values]
    return {**_summary(every), "per_class": per_class, "seconds": sorted(v for v in every if np.isfinite(v))}


def _summary(delays: Sequence[float]) -> dict[str, Any]:
    """Actions, how many are detected, and median, mean and 90th percentile of the delays (s) of those, NaN if none."""
    found = np.array([value for value in delays if np.isfinite(value)])
    named = {"median": np.median, "mean": np.mean, "p90": lambda values: np.percentile(values, 90)}
    return {
        "actions": len(delays),
        "detected": len(found),
        **{name: float(of(found)) if len(found) else float("nan") for name, of in named.items()},
    }


def confusion(
    scores: Sequence[NDArray[np.floating]], targets: Sequence[NDArray[Any]], classes: Sequence[str]
) -> NDArray[np.int64]:
    """How many chunks of each class (row) were said to be another (column), counts (C, C), wrong chunks alone.

    A chunk is wrong when the class said is not on; it counts for each class that is. Ambiguous chunks are left out.
    """
    counts = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for rows, video in zip(scores, targets, strict=True):
        on = np.asarray(video) > 0
        tops = said_classes(rows, classes)
        wrong = counted(on, classes) & ~on[np.arange(len(on)), tops]
        chunks, truth = np.nonzero(on & wrong[:, None])
        np.add.at(counts, (truth, tops[chunks]), 1)
    return counts

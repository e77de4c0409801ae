"""Actions as moments: how well their starts are found, how long until they are known, what is taken for what."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.segment import Segment
from lstr.metrics.per_frame import counted
from lstr.metrics.ranked import joined, match_by_score, summary

# Seconds that a start may be off (Shou et al. 2018, online detection of action starts).
OFFSETS = tuple(range(1, 11))


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
    """Return how many chunks of each class (row) were taken for another (column), counts (C, C), wrong chunks alone.

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

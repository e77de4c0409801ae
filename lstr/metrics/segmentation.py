"""Metrics of action segmentation: F1 by overlap, and edit score."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, runs
from lstr.metrics.actions import overlaps
from lstr.metrics.intervals import Draws, interval
from lstr.metrics.per_frame import Videos, counted, predicted_classes

OVERLAPS = (0.1, 0.25, 0.5)


def measure_segmentation(
    scores: Videos, targets: Videos, classes: Sequence[str], draws: Draws | None = None
) -> dict[str, Any]:
    """Compute the F1 of the segments of all videos by IoU, and the mean edit score of the videos.

    Predicted segments are the runs of chunks with the same predicted class, without background. Labelled segments are
    the runs of each active class, so overlapping actions are all included. Ambiguous chunks are background on both
    sides. A predicted segment is right if the labelled segment of its class with the highest IoU reaches the limit and
    is not matched yet. The edit score is 1 - D / (length of the longer sequence); D is the Levenshtein distance between
    the two sequences of classes. The edit score of a single class compares only the numbers of its segments. Videos
    without segments on both sides are excluded from the edit score.

    Args:
        scores: Scores (L, C) of each video.
        targets: Multi-hot targets (L, C) of each video.
        classes: Names of the C classes.
        draws: Resamples (R, videos) of `intervals.draw` for confidence intervals.

    Returns:
        {"overlaps", "F1": [...], "edit", "interval": {"F1": [[low, high], ...], "edit"}, "per_class": {label: {"F1",
        "edit", "interval", "labels", "detections"}}} with values from 0 to 1, NaN if undefined.
    """
    actions = [i for i, name in enumerate(classes) if name not in (BACKGROUND, AMBIGUOUS)]
    counts = np.zeros((len(scores), len(actions), 2 + len(OVERLAPS)))  # labelled, predicted, right by limit
    edits = np.full((len(scores), 1 + len(actions)), np.nan)
    for v, (rows, video) in enumerate(zip(scores, targets, strict=True)):
        on = np.asarray(video) > 0
        keep = counted(on, classes)[:, None]
        sides = (predicted_classes(rows, classes)[:, None] == np.arange(len(classes))) & keep, on & keep
        # first chunk, end (exclusive) and column of each segment, in order of time
        predicted, labelled = (sorted((*run, c) for c in actions for run in runs(side[:, c])) for side in sides)
        for c, column in enumerate(actions):
            ours, theirs = ([run for run in found if run[2] == column] for found in (predicted, labelled))
            counts[v, c, :2] = len(theirs), len(ours)
            if ours and theirs:
                ious = overlaps(*(np.array(found, dtype=np.float64)[:, :2] for found in (ours, theirs)))
                best, most = ious.argmax(axis=1), ious.max(axis=1)
                counts[v, c, 2:] = [len(np.unique(best[most >= least])) for least in OVERLAPS]
            longest = max(len(ours), len(theirs))
            edits[v, 1 + c] = min(len(ours), len(theirs)) / longest if longest else np.nan
        edits[v, 0] = edit_score([run[2] for run in predicted], [run[2] for run in labelled])
    per_class = {
        classes[column]: {
            **_entry(counts[:, c], edits[:, 1 + c], draws),
            "labels": int(counts[:, c, 0].sum()),
            "detections": int(counts[:, c, 1].sum()),
        }
        for c, column in enumerate(actions)
    }
    return {"overlaps": list(OVERLAPS), **_entry(counts.sum(axis=1), edits[:, 0], draws), "per_class": per_class}


def edit_score(predicted: Sequence[int], labelled: Sequence[int]) -> float:
    """Return the similarity of two sequences of classes, from 0 to 1; NaN if both are empty."""
    if not predicted and not labelled:
        return float("nan")
    theirs, steps = np.array(labelled, dtype=np.int64), np.arange(len(labelled) + 1)
    row = steps.copy()  # edit distances from the predictions so far to each prefix of the labels
    for n, one in enumerate(predicted, start=1):
        changed = np.minimum(row[1:] + 1, row[:-1] + (theirs != one))
        # an insertion costs 1 per step to the right, so a cumulative minimum replaces the inner loop
        row = np.minimum.accumulate(np.concatenate([[n], changed]) - steps) + steps
    return 1 - float(row[-1]) / max(len(predicted), len(labelled))


def _entry(counts: NDArray[np.float64], edits: NDArray[np.float64], draws: Draws | None) -> dict[str, Any]:
    """Return the F1 by limit and edit score, from counts (V, 2 + K) and scores (V,) of the videos, with intervals."""
    once = np.ones((1, len(counts)))
    f1, edit = (values[0] for values in _resampled(counts, edits, once))
    entry: dict[str, Any] = {"F1": f1.tolist(), "edit": float(edit), "interval": None}
    if draws is not None and len(draws):
        drawn, scores = _resampled(counts, edits, draws.astype(np.float64))
        entry["interval"] = {"F1": [interval(column) for column in drawn.T], "edit": interval(scores)}
    return entry


def _resampled(
    counts: NDArray[np.float64], edits: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the F1 (R, K) and edit score (R,) of each weighting (R, V) of the videos."""
    totals = weights @ counts
    segments = totals[:, :1] + totals[:, 1:2]
    f1 = np.divide(2 * totals[:, 2:], segments, out=np.full_like(totals[:, 2:], np.nan), where=segments > 0)
    known = ~np.isnan(edits)
    number = weights @ known
    edit = np.divide(weights @ np.where(known, edits, 0), number, out=np.full_like(number, np.nan), where=number > 0)
    return f1, edit

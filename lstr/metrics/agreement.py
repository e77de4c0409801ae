"""How far two people who label the same videos agree, or a model and a person: chunk by chunk, and event by event."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, VideoLabels, end_chunk, targets
from lstr.labels.segment import Segment
from lstr.metrics.actions import (
    SLACK,
    VideoEvents,
    covered,
    is_ambiguous,
    labelled_spans,
    largest_pairs,
    overlaps,
    spans_of,
)
from lstr.metrics.event_errors import belong_together

IOUS = (0.25, 0.5, 0.75)
"""Intersection over union from which two events are taken for one"""
Entry = dict[str, Any]
Counts = NDArray[np.int64]


def kappa(counts: Counts) -> dict[str, float | None]:
    """Cohen's kappa of a table of counts (K, K), one observer's categories by the other's.

    `observed`: the share of the diagonal. `expected`: what two would share who give as many of each category, but in
    places of chance. `kappa`: (observed - expected) / (1 - expected); None where both have one category alone, so that
    nothing could differ. All None without any count.
    """
    total = counts.sum()
    if not total:
        return {"observed": None, "expected": None, "kappa": None}
    observed = float(np.trace(counts) / total)
    products = counts.sum(axis=0) * counts.sum(axis=1)
    expected = float(products.sum() / total**2)
    # in whole numbers, for 1 - expected may be noise
    value = None if products.sum() == total**2 else (observed - expected) / (1 - expected)
    return {"observed": observed, "expected": expected, "kappa": value}


def frames_of(segments: Sequence[Segment], actions: Sequence[str], seconds: float) -> NDArray[np.bool_]:
    """Which action is on in which chunk (L, C), by the rule of `label_set.targets`; L chunks hold all the seconds."""
    wanted = tuple(s for s in segments if s.label in actions)
    video = VideoLabels("", seconds, wanted)
    return targets(video, tuple(actions), end_chunk(seconds)) > 0


def frame_agreement(videos: Sequence[VideoEvents], classes: Sequence[str]) -> Entry:
    """Cohen's kappa over all chunks of all videos: {"chunks", "together": {...}, "per_class": {label: {...}}}.

    Of a class: on or off, with how many chunks it is on in the labels (`truth`), in the others (`detections`) and in
    `both`. Together: which actions are on at once, so that a chunk agrees where all of them do; none is a category too.
    Chunks that either calls ambiguous are left out.
    """
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    pairs = [_frames(video, actions) for video in videos]
    nothing = np.zeros((0, len(actions)), bool)
    one, other = (np.concatenate([nothing, *(pair[side] for pair in pairs)]) for side in (0, 1))
    per_class = {}
    for column, label in enumerate(actions):
        counts = _cross(one[:, column].astype(np.int64), other[:, column].astype(np.int64), 2)
        on = {"truth": counts[1].sum(), "detections": counts[:, 1].sum(), "both": counts[1, 1]}
        per_class[label] = {**{name: int(value) for name, value in on.items()}, **kappa(counts)}
    rows, which = np.unique(np.concatenate([one, other]), axis=0, return_inverse=True)
    which = which.reshape(-1)
    together = kappa(_cross(which[: len(one)], which[len(one) :], len(rows)))
    return {"chunks": len(one), "together": together, "per_class": per_class}


def event_agreement(videos: Sequence[VideoEvents], classes: Sequence[str]) -> Entry:
    """How well events of one observer and of the other are the same: {"together": {...}, "per_class": {label: {...}}}.

    Each has how many events there are (`truth`, `detections`); `matched`: at each of IOUS the number of `pairs`, the
    most there can be of one label and one detection that overlap so well, and precision, recall and F1 (None without
    anything to divide by); `mean_iou` of the `overlapping` pairs, those with the highest sum of overlaps; and
    `seconds`: of the labels, of the detections and of both at once, and their `iou`. Seconds count once however many
    events of a class are on. Events that `without_ambiguous` leaves out are in none.
    """
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    videos = [without_ambiguous(video) for video in videos]
    found = {label: [_events(video, label) for video in videos] for label in actions}
    per_class = {label: _summed(of_class) for label, of_class in found.items()}
    return {"together": _summed([one for of_class in found.values() for one in of_class]), "per_class": per_class}


def without_ambiguous(video: VideoEvents) -> VideoEvents:
    """The events of both observers without those that the other one cannot have, for it is ambiguous there.

    That is so where at least half of an event is, unless the other has one of its action that overlaps it.
    """
    sides = (video.truth, video.detections)
    truth, detections = (_judged(own, others) for own, others in (sides, sides[::-1]))
    return VideoEvents(truth, detections, video.seconds)


def _judged(own: Sequence[Segment], others: Sequence[Segment]) -> list[Segment]:
    """One observer's events that can be judged by the other's, and all that is no action."""
    ambiguous = spans_of(others, AMBIGUOUS)
    spans = np.array([(s.start, s.end) for s in own], dtype=np.float64).reshape(-1, 2)
    excused = is_ambiguous(spans, ambiguous)
    return [
        segment
        for segment, span, is_excused in zip(own, spans, excused, strict=True)
        if not is_excused
        or segment.label in (BACKGROUND, AMBIGUOUS)
        or belong_together(span[None], spans_of(others, segment.label)).any()
    ]


def _frames(video: VideoEvents, actions: Sequence[str]) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Both observers' chunks (L, C) that neither calls ambiguous."""
    sides = [frames_of(side, (*actions, AMBIGUOUS), video.seconds) for side in (video.truth, video.detections)]
    keep = ~(sides[0][:, -1] | sides[1][:, -1])
    return sides[0][keep, :-1], sides[1][keep, :-1]


def _cross(one: Counts, other: Counts, n_categories: int) -> Counts:
    """How often each category (row) met each (column), (K, K)."""
    return np.bincount(one * n_categories + other, minlength=n_categories**2).reshape(n_categories, n_categories)


def _events(video: VideoEvents, label: str) -> Mapping[str, float]:
    """Counts and sums of a class in a video."""
    truth, detections = (labelled_spans(side, label, video.seconds) for side in (video.truth, video.detections))
    shared = overlaps(truth, detections)
    best = np.stack(linear_sum_assignment(-shared), axis=1)
    ious = shared[best[:, 0], best[:, 1]]
    return {
        "truth": len(truth),
        "detections": len(detections),
        **{f"iou {least}": len(largest_pairs(truth, detections, shared >= least - SLACK)) for least in IOUS},
        "overlapping": np.count_nonzero(ious > 0),
        "iou": ious.sum(),
        "truth_s": covered(truth),
        "detections_s": covered(detections),
        "both_s": covered(truth, detections),
    }


def _summed(parts: Sequence[Mapping[str, float]]) -> Entry:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0) + value
    n_truth, n_others, n_pairs = (int(total.get(name, 0)) for name in ("truth", "detections", "overlapping"))
    matched = {}
    for least in IOUS:
        pairs = int(total.get(f"iou {least}", 0))
        matched[str(least)] = {
            "pairs": pairs,
            "precision": pairs / n_others if n_others else None,
            "recall": pairs / n_truth if n_truth else None,
            "f1": 2 * pairs / (n_truth + n_others) if n_truth + n_others else None,
        }
    one, other, both = (float(total.get(name, 0)) for name in ("truth_s", "detections_s", "both_s"))
    either = one + other - both
    return {
        "truth": n_truth,
        "detections": n_others,
        "matched": matched,
        "overlapping": n_pairs,
        "mean_iou": total["iou"] / n_pairs if n_pairs else None,
        "seconds": {"truth": one, "detections": other, "both": both, "iou": both / either if either else None},
    }

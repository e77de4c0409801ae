"""Actions as instances that are told when they end (On-TAL): mean AP by how much they overlap, nothing withdrawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.metrics.actions import SLACK, VideoEvents, is_ambiguous, labelled_spans, overlaps, spans_of
from lstr.metrics.ranked import Ranked, joined, match_by_score, mean_of, summary

IOUS = (0.3, 0.4, 0.5, 0.6, 0.7)


def measure_instances(
    videos: Sequence[VideoEvents],
    classes: Sequence[str],
    draws: NDArray[np.int64] | None = None,
    ious: Sequence[float] = IOUS,
) -> dict[str, Any]:
    """AP of the detections as instances by IoU: {"ious", "mAP", "mean", "interval", "per_class"} of `ranked.summary`.

    ActivityNet's rules, which the papers of online localisation take: from the highest score down (equal ones of a
    video in their order) a detection is right when the label of its class and video with the highest IoU that is still
    free has at least that IoU; precision is interpolated at every recall. Two things differ: detections of equal score
    count together, and one without a label that is labelled ambiguous in at least half is left out. A detection's score
    is that with which it was told; 1 without one. `draws` (R, videos) of `bootstrap` give the intervals.

    A class without a label is in no mean; NaN where none is left.
    """
    return {"ious": list(ious), **summary(_of_classes(videos, classes, ious), draws, interpolated=True)}


def resampled_instances(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The mean over IoUs of the mAP in each of `draws` (R, videos), (R,); NaN where there is nothing to be found."""
    labelled = [one for one in _of_classes(videos, classes, IOUS).values() if one.truths.sum()]
    if not labelled:
        return np.full(len(draws), np.nan)
    return np.asarray(mean_of([one.average_precisions(draws, interpolated=True) for one in labelled]).mean(axis=1))


def _of_classes(videos: Sequence[VideoEvents], classes: Sequence[str], ious: Sequence[float]) -> dict[str, Ranked]:
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    return {label: _ranked(videos, label, ious) for label in actions}


def _ranked(videos: Sequence[VideoEvents], label: str, ious: Sequence[float]) -> Ranked:
    """The detections of a class, each judged in its video."""
    judged, truths = [], []
    for video in videos:
        truth, detections = labelled_spans(video.truth, label, video.seconds), spans_of(video.detections, label)
        scores = np.array([1.0 if s.score is None else s.score for s in video.detections if s.label == label])
        limits = [least - SLACK for least in ious]
        right = match_by_score(overlaps(truth, detections).T, scores, limits) >= 0
        excused = is_ambiguous(detections, spans_of(video.truth, AMBIGUOUS))
        judged.append((scores, right, ~right & ~excused[:, None]))
        truths.append(len(truth))
    return joined(judged, truths, len(ious))

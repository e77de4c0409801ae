"""Actions as instances that are told when they end (On-TAL): mean AP by how much they overlap, nothing withdrawn."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.metrics.actions import SLACK, Spans, VideoEvents, is_ambiguous, labelled_spans, overlaps, spans_of
from lstr.metrics.ranked import Ranked, joined, match_by_score, mean_of, summary

IOUS = (0.3, 0.4, 0.5, 0.6, 0.7)


def measure_instances(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: NDArray[np.int64] | None = None
) -> dict[str, Any]:
    """AP of the detections as instances by IoU: {"ious", "mAP", "mean", "interval", "per_class"} of `ranked.summary`,
    and "late" of all and of each class: p50 and p95 of the seconds from a label's end until the detection that is right
    for it at an IoU of 0.3 was told, None where none is known.

    ActivityNet's rules, which the code of OAT-OSN takes for online localisation: from the highest score down (equal
    ones of a video in their order) a detection is right when the label of its class and video with the highest IoU that
    is still free has at least that IoU; precision is interpolated at every recall. Two things differ: detections of
    equal score count together, and one without a label that is labelled ambiguous in at least half is left out. A
    detection's score is that with which it was told; 1 without one. `draws` (R, videos) of `intervals.draw` give the
    intervals.

    A class without a label is in no mean; NaN where none is left.
    """
    found = summary(_of_classes(videos, classes), draws, interpolated=True)
    late = {label: _seconds_late(videos, label) for label in found["per_class"]}
    for label, entry in found["per_class"].items():
        entry["late"] = _percentiles(late[label])
    return {"ious": list(IOUS), **found, "late": _percentiles([seconds for some in late.values() for seconds in some])}


def resampled_instances(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: NDArray[np.int64]
) -> NDArray[np.float64]:
    """The mean over IoUs of the mAP in each of `draws` (R, videos), (R,); NaN where there is nothing to be found."""
    labelled = [one for one in _of_classes(videos, classes).values() if one.truths.sum()]
    if not labelled:
        return np.full(len(draws), np.nan)
    return np.asarray(mean_of([one.average_precisions(draws, interpolated=True) for one in labelled]).mean(axis=1))


def _of_classes(videos: Sequence[VideoEvents], classes: Sequence[str]) -> dict[str, Ranked]:
    return {label: _ranked(videos, label) for label in classes if label not in (BACKGROUND, AMBIGUOUS)}


def _ranked(videos: Sequence[VideoEvents], label: str) -> Ranked:
    """Return the detections of a class, each judged in its video."""
    judged, truths = [], []
    for video in videos:
        truth, detections, scores = _of_video(video, label)
        right = match_by_score(overlaps(truth, detections).T, scores, [least - SLACK for least in IOUS]) >= 0
        excused = is_ambiguous(detections, spans_of(video.truth, AMBIGUOUS))
        judged.append((scores, right, ~right & ~excused[:, None]))
        truths.append(len(truth))
    return joined(judged, truths, len(IOUS))


def _of_video(video: VideoEvents, label: str) -> tuple[Spans, Spans, NDArray[np.float64]]:
    """Return the labels, detections and their scores of a class."""
    scores = [1.0 if s.score is None else s.score for s in video.detections if s.label == label]
    truth = labelled_spans(video.truth, label, video.seconds)
    return truth, spans_of(video.detections, label), np.array(scores, dtype=np.float64)


def _seconds_late(videos: Sequence[VideoEvents], label: str) -> list[float]:
    """Seconds from a label's end until the detection that is right for it was told, of those that have one."""
    found: list[float] = []
    for video in videos:
        if video.told is None:
            continue
        truth, detections, scores = _of_video(video, label)
        told = [time for s, time in zip(video.detections, video.told, strict=True) if s.label == label]
        places = match_by_score(overlaps(truth, detections).T, scores, [IOUS[0] - SLACK])[:, 0]
        found += [float(told[d] - truth[t, 1]) for d, t in enumerate(places) if t >= 0]
    return found


def _percentiles(seconds: Sequence[float]) -> dict[str, float | None]:
    p50, p95 = np.percentile(seconds, [50, 95]).tolist() if len(seconds) else (None, None)
    return {"p50": p50, "p95": p95}

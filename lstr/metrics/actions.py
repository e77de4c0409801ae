"""Metrics of events: detected and missed actions, false alarms and delays."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import AMBIGUOUS, actions_of
from lstr.labels.segment import Segment
from lstr.metrics.intervals import Draws, interval, interval_text, percentiles, rate_interval, rate_text

IOUS = (0.3, 0.5)
ONSETS = (0.5, 1.0, 2.0, 5.0)  # tolerances in seconds for the start of a detection, or for both its start and end
TOLERANT = ("onset", "edges")  # rules with a tolerance in seconds: for the start only, or for both edges
# A label is detected if a detection overlaps it with this IoU, or starts within this many seconds of it
FOUND_IOU, FOUND_ONSET = 0.3, 1.0
MOSTLY = 0.5  # A detection is not a false alarm if at least this share of it is labelled ambiguous
SLACK = 1e-9  # tolerance of rounding errors: 2.2 s - 1.2 s must count as within 1 s

# (N, 2) starts and ends in seconds
Spans = NDArray[np.float64]
Entry = dict[str, Any]


@dataclass(frozen=True)
class VideoEvents:
    """The labels and the detections of a video."""

    truth: Sequence[Segment]
    """The labelled segments; they are cut at the end of the video, and skipped if they start after it"""
    detections: Sequence[Segment]
    seconds: float  # length of the video
    announced: Sequence[float] | None = None
    """Time at which the start of each detection was reported, in seconds of the video; None if unknown"""
    ended: Sequence[float] | None = None
    """Time at which the end of each detection was reported, in seconds of the video; None if unknown"""


def measure_events(videos: Sequence[VideoEvents], classes: Sequence[str], draws: Draws | None = None) -> Entry:
    """Compute how many labelled actions were detected, how fast, and the number of false alarms.

    A detection without a label is skipped if at least half of it is labelled Ambiguous.

    Args:
        videos: Labels and detections of each video.
        classes: The classes to count; Background and Ambiguous are ignored.
        draws: Resamples (R, videos) of `intervals.draw` for confidence intervals; None for no intervals of F1.

    Returns:
        A JSON object {"hours", "videos", "together": {...}, "per_class": {label: {...}}}. `together` and each class
        have labels, found, missed, detections, false_alarms, false_alarms_per_hour and false_seconds; precision, recall
        and F1 by IoU (`iou`), start (`onset`) and both edges (`edges`); `delay`, p50 and p95 of the seconds from a
        label's start to the report of its detection; and `interval`, of the false alarms per hour
        (`intervals.rate_interval`), and with `draws` of precision, recall and F1 at IoU 0.3 and of F1 by tolerance.
        Undefined values are None, for example the recall of a class without labels.
    """
    actions = actions_of(classes)
    counts = np.zeros((len(videos), len(actions), len(_COLUMNS)))
    delays: dict[str, list[float]] = {label: [] for label in actions}
    for v, video in enumerate(videos):
        for c, label in enumerate(actions):
            counts[v, c], late = _count(video, label)
            delays[label] += late
    hours = sum(video.seconds for video in videos) / 3600
    every = [late for label in actions for late in delays[label]]
    return {
        "hours": hours,
        "videos": len(videos),
        "together": _entry(counts.sum(axis=1), hours, every, draws),
        "per_class": {label: _entry(counts[:, c], hours, delays[label], draws) for c, label in enumerate(actions)},
    }


def resampled_f1(videos: Sequence[VideoEvents], classes: Sequence[str], draws: Draws) -> NDArray[np.float64]:
    """Return the F1 (R,) at an IoU of 0.3 over all classes for each of `draws` (R, videos); NaN without any event."""
    actions = actions_of(classes)
    counts = [np.sum([np.zeros(len(_COLUMNS)), *(_count(v, label)[0] for label in actions)], axis=0) for v in videos]
    return _rates(draws @ np.array(counts), f"iou {FOUND_IOU}")["f1"]


def find(truth: Spans, detections: Spans) -> NDArray[np.int64]:
    """Match labels and detections of one class and video; return pairs (P, 2) of row numbers.

    A label fits a detection that overlaps it with an IoU of 0.3, or that starts within 1 s of its start. Each is in at
    most one pair. Of all largest sets of pairs, the one with the smallest distances between starts is returned.
    """
    fits = _fits(truth, detections)
    return largest_pairs(truth, detections, fits[f"iou {FOUND_IOU}"] | fits[f"onset {FOUND_ONSET}"])


def largest_pairs(truth: Spans, detections: Spans, fits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the largest set of fitting pairs (P, 2); among several, the one with the closest starts."""
    if not fits.any():
        return np.zeros((0, 2), dtype=np.int64)
    from scipy.optimize import linear_sum_assignment

    apart = np.where(fits, np.abs(truth[:, None, 0] - detections[None, :, 0]), 0)
    worth = 1 + apart.max() * min(fits.shape)  # value of a pair, above the largest possible sum of distances
    pairs = np.stack(linear_sum_assignment(np.where(fits, apart - worth, 0)), axis=1)
    return pairs[fits[pairs[:, 0], pairs[:, 1]]]


def shared_seconds(truth: Spans, detections: Spans) -> NDArray[np.float64]:
    """Return the length (N, M) that labels (N, 2) share with detections (M, 2); negative for a gap between them."""
    (starts, ends), (other_starts, other_ends) = truth.T[..., None], detections.T
    return np.asarray(np.minimum(ends, other_ends) - np.maximum(starts, other_starts))


def overlaps(truth: Spans, detections: Spans) -> NDArray[np.float64]:
    """Return the intersection over union (N, M) of labels (N, 2) and detections (M, 2); 0 if both have no length."""
    shared = np.maximum(shared_seconds(truth, detections), 0)
    lengths = (truth[:, 1] - truth[:, 0])[:, None] + (detections[:, 1] - detections[:, 0])[None]
    return np.divide(shared, lengths - shared, out=np.zeros_like(shared), where=lengths > shared)


def spans_of(segments: Sequence[Segment], label: str) -> Spans:
    """Return the starts and ends (N, 2) of the segments of a class."""
    return np.array([(s.start, s.end) for s in segments if s.label == label], dtype=np.float64).reshape(-1, 2)


def labelled_spans(segments: Sequence[Segment], label: str, seconds: float) -> Spans:
    """Return the spans of labels, cut at the end of the video; labels that start after it are dropped."""
    spans = spans_of(segments, label)
    spans = spans[spans[:, 0] < seconds]
    spans[:, 1] = np.minimum(spans[:, 1], seconds)
    return spans


def are_inside(spans: Spans, moments: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which moments (K,) are in any of the spans, including their ends."""
    spans = spans[spans[:, 0] <= spans[:, 1]]
    begun = np.searchsorted(np.sort(spans[:, 0]), moments, side="right")
    return np.asarray(begun > np.searchsorted(np.sort(spans[:, 1]), moments, side="left"))


def covered(spans: Spans, by: Spans | None = None) -> float:
    """Return the seconds that are in any of the spans, and if `by` is set also in any of its spans."""
    edges = np.unique(np.concatenate([spans, spans[:0] if by is None else by]))
    middles, lengths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    wanted = are_inside(spans, middles) if by is None else are_inside(spans, middles) & are_inside(by, middles)
    return float(lengths[wanted].sum())


def is_ambiguous(detections: Spans, ambiguous: Spans) -> NDArray[np.bool_]:
    """Return which detections (M,) are at least half ambiguous, and therefore not false alarms.

    A detection without length is ambiguous if it is inside an ambiguous span.
    """
    if not len(ambiguous):
        return np.zeros(len(detections), dtype=bool)
    shares = [
        covered(span[None], ambiguous) >= MOSTLY * (span[1] - span[0]) - SLACK
        if span[1] > span[0]
        else are_inside(ambiguous, span[:1])[0]
        for span in detections
    ]
    return np.array(shares, dtype=bool)


_TOLERANCES = [f"{name} {within}" for name in TOLERANT for within in ONSETS]
_FITS = [f"iou {least}" for least in IOUS] + _TOLERANCES
_OF_FITS = [column for fit in _FITS for column in (fit, f"{fit} false")]
# The counts of each video and class: pairs by each rule, and detections without a pair
_COLUMNS = ("labels", "false_seconds", "found", "false_alarms", *_OF_FITS)
_PLACE = {name: place for place, name in enumerate(_COLUMNS)}


def _fits(truth: Spans, detections: Spans) -> dict[str, NDArray[np.bool_]]:
    """Return which label fits which detection (N, M), for each rule of `_FITS`."""
    shared, apart = overlaps(truth, detections), np.abs(truth[:, None, 0] - detections[None, :, 0])
    both = np.maximum(apart, np.abs(truth[:, None, 1] - detections[None, :, 1]))
    within = {
        f"{name} {seconds}": off <= seconds + SLACK
        for name, off in zip(TOLERANT, (apart, both), strict=True)
        for seconds in ONSETS
    }
    return {f"iou {least}": shared >= least - SLACK for least in IOUS} | within


def _count(video: VideoEvents, label: str) -> tuple[NDArray[np.float64], list[float]]:
    """Return a class's counts in a video (len(_COLUMNS),), and the delay of each detected label."""
    truth, detections = labelled_spans(video.truth, label, video.seconds), spans_of(video.detections, label)
    counts = np.zeros(len(_COLUMNS))
    if not len(truth) and not len(detections):
        return counts, []
    ambiguous = spans_of(video.truth, AMBIGUOUS)
    counts[:2] = len(truth), covered(detections) - covered(detections, np.concatenate([truth, ambiguous]))
    excused = is_ambiguous(detections, ambiguous)
    found = find(truth, detections)
    fitting = {name: largest_pairs(truth, detections, fits) for name, fits in _fits(truth, detections).items()}
    for column, pairs in {"found": found, **fitting}.items():
        place = _PLACE[column]
        false = np.delete(np.arange(len(detections)), pairs[:, 1])
        counts[place : place + 2] = len(pairs), np.count_nonzero(~excused[false])
    if video.announced is None:
        return counts, []
    of_label = [time for s, time in zip(video.detections, video.announced, strict=True) if s.label == label]
    return counts, [float(of_label[d] - truth[t, 0]) for t, d in found]


def _entry(of_videos: NDArray[np.float64], hours: float, late: Sequence[float], draws: Draws | None) -> Entry:
    """Return the metrics of one class, or of all classes, from counts by video (V, len(_COLUMNS))."""
    counts = of_videos.sum(axis=0)
    labels, found, false = (int(counts[_PLACE[name]]) for name in ("labels", "found", "false_alarms"))
    entry: Entry = {
        "labels": labels,
        "found": found,
        "missed": labels - found,
        "detections": found + false,
        "false_alarms": false,
        "false_alarms_per_hour": false / hours if hours else None,
        "false_seconds": float(counts[_PLACE["false_seconds"]]),
        "iou": {},
        "onset": {},
        "edges": {},
    }
    for fit in _FITS:
        kind, limit = fit.split()
        figures = _rates(counts[None], fit)
        entry[kind][limit] = {name: None if np.isnan(value[0]) else float(value[0]) for name, value in figures.items()}
    edges: dict[str, list[float] | None] = {}
    if draws is not None and len(draws):
        resampled = draws.astype(np.float64) @ of_videos
        values = _rates(resampled, f"iou {FOUND_IOU}")
        values |= {f"f1_{fit.replace(' ', '_')}": _rates(resampled, fit)["f1"] for fit in _TOLERANCES}
        edges = {name: None if np.isnan(value).all() else interval(value) for name, value in values.items()}
    edges["false_alarms_per_hour"] = rate_interval(false, hours)
    return {**entry, "delay": percentiles(late), "interval": edges}


def _rates(counts: NDArray[np.float64], fit: str) -> dict[str, NDArray[np.float64]]:
    """Return precision, recall and F1 (R,) for one rule from counts (R, len(_COLUMNS)); NaN for a division by 0."""
    labels, pairs, false = (counts[:, _PLACE[name]] for name in ("labels", fit, f"{fit} false"))
    ratios = {"precision": (pairs, pairs + false), "recall": (pairs, labels), "f1": (2 * pairs, pairs + false + labels)}
    return {
        name: np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole > 0)
        for name, (part, whole) in ratios.items()
    }


def sentence(events: Entry) -> str:
    """Summarise the result of `measure_events` in one sentence."""
    together, hours = events["together"], events["hours"]
    n_labels, n_false = together["labels"], together["false_alarms"]
    actions, alarms = ("action" if n_labels == 1 else "actions"), ("alarm" if n_false == 1 else "alarms")
    parts = [f"found {together['found']} of {n_labels} {actions}" if n_labels else "no action is labelled"]
    edges = rate_interval(n_false, hours)
    if edges is None:
        parts.append("no false alarm")
    elif not n_false:
        parts.append(f"no false alarm in {length_text(hours)} ({interval_text(edges)} per hour)")
    elif hours >= 1:
        parts.append(f"{rate_text(n_false / hours)} false alarms per hour ({interval_text(edges)})")
    else:  # also the count, because one alarm in one minute is 60 per hour
        rate = f"{n_false / hours:.0f} per hour; {interval_text(edges)}"
        parts.append(f"{n_false} false {alarms} in {length_text(hours)} ({rate})")
    delay = together["delay"]["p50"]
    if delay is not None:
        # half of the last digit, for example 0.25 s (one chunk), is rounded up
        parts.append(f"{abs(delay) + SLACK:.1f} s {'late' if delay >= 0 else 'early'} (median)")
    text = ", ".join(parts)
    labelled = {label: one for label, one in events["per_class"].items() if one["labels"]}
    shares = {label: one["found"] / one["labels"] for label, one in labelled.items()}
    if len(set(shares.values())) > 1:
        best = max(shares, key=lambda label: (shares[label], labelled[label]["labels"]))
        worst = min(shares, key=lambda label: (shares[label], -labelled[label]["labels"]))
        counts = {label: f"{label} ({one['found']} of {one['labels']})" for label, one in labelled.items()}
        text += f"; best: {counts[best]}, worst: {counts[worst]}"
    return text


def length_text(hours: float) -> str:
    """Format a length of video: 2.5 hours, 30 minutes, 36 s."""
    if hours >= 1:
        return f"{hours:.1f} hours"
    return f"{60 * hours:.0f} minutes" if hours >= 0.05 else f"{3600 * hours:.0f} s"

"""Actions found and missed, false alarms and delays: what detections are worth to whoever waits for them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.segment import Segment
from lstr.metrics.intervals import interval, interval_text, rate_interval, rate_text

IOUS = (0.3, 0.5)
# Seconds that the start of a detection may be off, or its start and its end
ONSETS = (0.5, 1.0, 2.0, 5.0)
# What may be off by some seconds: the start alone, or both edges
TOLERANT = ("onset", "edges")
# A label is found by a detection that overlaps it this much, or starts within this many seconds of it
FOUND_IOU, FOUND_ONSET = 0.3, 1.0
# Share of a detection that must be labelled ambiguous for it to be no false alarm
MOSTLY = 0.5
# So that 2.2 s - 1.2 s is within 1 s, and 0.3 of a length is 0.3 of it
SLACK = 1e-9

# (N, 2) starts and ends in seconds
Spans = NDArray[np.float64]
Entry = dict[str, Any]


@dataclass(frozen=True)
class VideoEvents:
    """What is labelled in a video and what was detected in it."""

    truth: Sequence[Segment]
    """The labelled segments; those that start after the video's end are left out, and the others end with it"""
    detections: Sequence[Segment]
    seconds: float
    """Length of the video"""
    announced: Sequence[float] | None = None
    """When each detection was announced as started, in seconds of the video; None where that is not known"""
    told: Sequence[float] | None = None
    """When each detection was told whole, as it ended"""


def measure_events(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: NDArray[np.int64] | None = None
) -> Entry:
    """Return how many labelled actions were found, how fast, and how many false alarms came with them, in JSON's types.

    {"hours", "videos", "together": {...}, "per_class": {label: {...}}}, each with labels, found, missed, detections,
    false_alarms, false_alarms_per_hour, false_seconds, `iou`, `onset` and `edges` (precision, recall and F1 by how well
    a detection must fit: its overlap, its start, or both its edges), `delay` (p50 and p95 of the seconds from a label's
    start to the announcement of the detection that found it) and `interval`: of the false alarms an hour by their count
    alone (`intervals.rate_interval`), and of precision, recall and F1 (IoU 0.3) and F1 within each tolerance by `draws`
    (R, videos) of `intervals.draw`, if there are any. `together` counts the actions of all classes. What cannot be
    computed, as the recall of a class without labels, is None.

    Only `classes` count, Background and Ambiguous never do. A detection without a label is no false alarm where at
    least half of it is labelled Ambiguous: it is left out.
    """
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    counts = np.zeros((len(videos), len(actions), len(_COLUMNS)))
    delays: dict[str, list[float]] = {label: [] for label in actions}
    for v, video in enumerate(videos):
        for c, label in enumerate(actions):
            counts[v, c], late = _count(video, label)
            delays[label] += late
    hours = sum(video.seconds for video in videos) / 3600
    weights = None if draws is None or not len(draws) else draws.astype(np.float64)

    def entry(of_videos: NDArray[np.float64], late: Sequence[float]) -> Entry:
        result = _entry(of_videos.sum(axis=0), hours, late)
        if weights is not None:
            result["interval"] = _intervals(weights @ of_videos) | result["interval"]
        return result

    return {
        "hours": hours,
        "videos": len(videos),
        "together": entry(counts.sum(axis=1), [late for label in actions for late in delays[label]]),
        "per_class": {label: entry(counts[:, c], delays[label]) for c, label in enumerate(actions)},
    }


def resampled_f1(
    videos: Sequence[VideoEvents], classes: Sequence[str], draws: NDArray[np.int64]
) -> NDArray[np.float64]:
    """F1 at an IoU of 0.3 of the actions of all classes in each of `draws` (R, videos); NaN where there is nothing."""
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    counts = [np.sum([np.zeros(len(_COLUMNS)), *(_count(v, label)[0] for label in actions)], axis=0) for v in videos]
    return _rates(draws @ np.array(counts), f"iou {FOUND_IOU}")["f1"]


def find(truth: Spans, detections: Spans) -> NDArray[np.int64]:
    """Which label is found by which detection of its class and video: pairs (P, 2) of rows; spans (N, 2), (M, 2).

    A label fits a detection that overlaps it with an IoU of 0.3, or that starts within 1 s of its start. Each is in at
    most one pair, and there are as many pairs as there can be, those whose starts are nearest.
    """
    fits = _fits(truth, detections)
    return largest_pairs(truth, detections, fits[f"iou {FOUND_IOU}"] | fits[f"onset {FOUND_ONSET}"])


def largest_pairs(truth: Spans, detections: Spans, fits: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the largest set of pairs (P, 2) that fit, and of the largest the one whose starts are nearest together."""
    if not fits.any():
        return np.zeros((0, 2), dtype=np.int64)
    from scipy.optimize import linear_sum_assignment

    apart = np.where(fits, _apart(truth, detections), 0)
    worth = 1 + apart.max() * min(fits.shape)  # of a pair: more than all distances can add up to
    pairs = np.stack(linear_sum_assignment(np.where(fits, apart - worth, 0)), axis=1)
    return pairs[fits[pairs[:, 0], pairs[:, 1]]]


def overlaps(truth: Spans, detections: Spans) -> NDArray[np.float64]:
    """Return the intersection over union (N, M) of labels (N, 2) and detections (M, 2); 0 if both have no length."""
    shared = np.minimum(truth[:, None, 1], detections[None, :, 1]) - np.maximum(
        truth[:, None, 0], detections[None, :, 0]
    )
    shared = np.maximum(shared, 0)
    lengths = (truth[:, 1] - truth[:, 0])[:, None] + (detections[:, 1] - detections[:, 0])[None]
    return np.divide(shared, lengths - shared, out=np.zeros_like(shared), where=lengths > shared)


def spans_of(segments: Sequence[Segment], label: str) -> Spans:
    """Return the starts and ends (N, 2) of the segments of a class."""
    return np.array([(s.start, s.end) for s in segments if s.label == label], dtype=np.float64).reshape(-1, 2)


def labelled_spans(segments: Sequence[Segment], label: str, seconds: float) -> Spans:
    """Return the spans of labels in a video of that length: cut at its end, without those that start there or later."""
    spans = spans_of(segments, label)
    spans = spans[spans[:, 0] < seconds]
    spans[:, 1] = np.minimum(spans[:, 1], seconds)
    return spans


def are_inside(spans: Spans, moments: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return which moments (K,) lie in any of the spans, their ends too."""
    spans = spans[spans[:, 0] <= spans[:, 1]]
    begun = np.searchsorted(np.sort(spans[:, 0]), moments, side="right")
    return np.asarray(begun > np.searchsorted(np.sort(spans[:, 1]), moments, side="left"))


def covered(spans: Spans, by: Spans | None = None) -> float:
    """Return the seconds that lie in any of the spans, and in any of `by` if that is set."""
    edges = np.unique(np.concatenate([spans, spans[:0] if by is None else by]))
    middles, lengths = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    wanted = are_inside(spans, middles) if by is None else are_inside(spans, middles) & are_inside(by, middles)
    return float(lengths[wanted].sum())


def is_ambiguous(detections: Spans, ambiguous: Spans) -> NDArray[np.bool_]:
    """Return which detections (M,) are labelled ambiguous in at least half, so that they are no false alarms.

    One of no length is where it lies in an ambiguous stretch.
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
# What is counted in each video and class: pairs by each rule, and detections that it gives none
_COLUMNS = ("labels", "false_seconds", "found", "false_alarms", *_OF_FITS)
_PLACE = {name: place for place, name in enumerate(_COLUMNS)}


def _apart(truth: Spans, detections: Spans) -> NDArray[np.float64]:
    """Return the seconds (N, M) between the starts."""
    return np.abs(truth[:, None, 0] - detections[None, :, 0])


def _fits(truth: Spans, detections: Spans) -> dict[str, NDArray[np.bool_]]:
    """Return which label fits which detection (N, M), by each rule of `_FITS`."""
    shared, apart = overlaps(truth, detections), _apart(truth, detections)
    both = np.maximum(apart, np.abs(truth[:, None, 1] - detections[None, :, 1]))
    within = {
        f"{name} {seconds}": off <= seconds + SLACK
        for name, off in zip(TOLERANT, (apart, both), strict=True)
        for seconds in ONSETS
    }
    return {f"iou {least}": shared >= least - SLACK for least in IOUS} | within


def _count(video: VideoEvents, label: str) -> tuple[NDArray[np.float64], list[float]]:
    """A class's counts in a video (len(_COLUMNS),), and the delay of each label that was found."""
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


def _entry(counts: NDArray[np.float64], hours: float, late: Sequence[float]) -> Entry:
    """Return the figures of one class, or of all, from its counts (len(_COLUMNS),)."""
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
    p50, p95 = np.percentile(late, [50, 95]).tolist() if len(late) else (None, None)
    edges = {"false_alarms_per_hour": rate_interval(false, hours)}
    return {**entry, "delay": {"p50": p50, "p95": p95}, "interval": edges}


def _rates(counts: NDArray[np.float64], fit: str) -> dict[str, NDArray[np.float64]]:
    """Precision, recall and F1 (R,) by one rule from counts (R, len(_COLUMNS)), NaN where there is nothing to divide
    by."""
    labels, pairs, false = (counts[:, _PLACE[name]] for name in ("labels", fit, f"{fit} false"))
    return {
        "precision": _ratio(pairs, pairs + false),
        "recall": _ratio(pairs, labels),
        "f1": _ratio(2 * pairs, pairs + false + labels),
    }


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.divide(part, whole, out=np.full_like(whole, np.nan), where=whole > 0)


def _intervals(counts: NDArray[np.float64]) -> dict[str, list[float] | None]:
    """Intervals from resampled counts (R, len(_COLUMNS)): of precision, recall and F1 at an IoU of 0.3, and of F1 by
    each tolerance, as `f1_onset_0.5`; None for a figure that no resample has."""
    values = _rates(counts, f"iou {FOUND_IOU}")
    values |= {f"f1_{fit.replace(' ', '_')}": _rates(counts, fit)["f1"] for fit in _TOLERANCES}
    return {name: None if np.isnan(found).all() else interval(found) for name, found in values.items()}


def sentence(events: Entry) -> str:
    """Return what `measure_events` found, in one sentence for people."""
    together = events["together"]
    if together["labels"]:
        parts = [f"caught {together['found']} of {_counted(together['labels'], 'action')}"]
    else:
        parts = ["no action is labelled"]
    parts.append(_alarms(together["false_alarms"], events["hours"]))
    delay = together["delay"]["p50"]
    if delay is not None:
        # half of a tenth, as of one chunk, is rounded up
        parts.append(f"{abs(delay) + SLACK:.1f} s {'late' if delay >= 0 else 'early'} (median)")
    return ", ".join(parts) + _extremes(events["per_class"])


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _alarms(number: int, hours: float) -> str:
    """False alarms an hour with their interval; of less than an hour their number too, for one in a minute is 60."""
    edges = rate_interval(number, hours)
    if edges is None:
        return "no false alarm"
    within = interval_text(edges)
    if not number:
        return f"no false alarm in {length_text(hours)} ({within} an hour)"
    rate = number / hours
    if hours >= 1:
        return f"{rate_text(rate)} false alarms an hour ({within})"
    return f"{_counted(number, 'false alarm')} in {length_text(hours)} ({rate:.0f} an hour; {within})"


def length_text(hours: float) -> str:
    """A length of video for people: 2.5 hours, 30 minutes, 36 s."""
    if hours >= 1:
        return f"{hours:.1f} hours"
    return f"{60 * hours:.0f} minutes" if hours >= 0.05 else f"{3600 * hours:.0f} s"


def _extremes(per_class: dict[str, Entry]) -> str:
    """Return the classes of which most and least was found, where that differs."""
    shares = {label: (one["found"] / one["labels"], one["labels"]) for label, one in per_class.items() if one["labels"]}
    if not shares:
        return ""
    best = max(shares, key=lambda label: shares[label])
    worst = min(shares, key=lambda label: (shares[label][0], -shares[label][1]))
    if shares[best][0] == shares[worst][0]:
        return ""
    counts = {label: f"{label} ({per_class[label]['found']} of {per_class[label]['labels']})" for label in shares}
    return f"; best: {counts[best]}, worst: {counts[worst]}"

"""Kinds of errors of events: fragmentation, merge, wrong edge or action, insertion (Ward, 2011); kappa of observers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, VideoLabels, targets
from lstr.metrics.actions import SLACK, Spans, VideoEvents, find, is_ambiguous, labelled_spans, spans_of

# Seconds that an edge may be off: two chunks; labels that a person makes by hand are not more exact
EDGE = 0.5
OF_LABELS = ("correct", "edges", "fragmented", "merged", "fragmented_merged", "wrong_action", "deleted")
OF_DETECTIONS = ("correct", "edges", "fragment", "merging", "fragment_merging", "wrong_action", "inserted")
# Places in OF_LABELS and in OF_DETECTIONS
CORRECT, EDGES, IN_PIECES, AS_ONE, BOTH, WRONG_ACTION, ALONE = range(len(OF_LABELS))

Kinds = NDArray[np.int64]
Entry = dict[str, Any]


@dataclass(frozen=True)
class JudgedEvents:
    """The kinds of a video's labels and detections of one action."""

    # (N, 2) the labels, cut at the video's end
    truth: Spans
    # (M, 2) the detections, those left out as well
    detections: Spans
    # (N,) places in OF_LABELS
    labels: Kinds
    # (N,) whether a detection finds the label (`actions.find`)
    found: NDArray[np.bool_]
    # (M,) places in OF_DETECTIONS; -1 of a detection that is left out, because it is labelled ambiguous
    detected: Kinds
    # (M,) whether the detection is a false alarm
    false: NDArray[np.bool_]
    # (P, 2) seconds by which start and end of a detection are later than its label's, of those that are one to one
    edges: Spans
    # (P, 2) the places of label and detection of each
    pairs: NDArray[np.int64]


def judge_events(video: VideoEvents, classes: Sequence[str]) -> dict[str, JudgedEvents]:
    """Return the kinds of labels and detections of each action of a video.

    A label and a detection of its action belong together where they overlap, or where `actions.find` pairs them. One
    label with several detections is in pieces, one detection with several labels takes them as one. A label or
    detection without any of its own action is one of a wrong action where it overlaps another action's: a label, where
    that is a detection without a label of its own; a detection, any label.
    """
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    ambiguous = spans_of(video.truth, AMBIGUOUS)
    of_action = {label: _of_action(video, label, ambiguous) for label in actions}
    nothing = np.zeros((0, 2))
    labelled = {label: one.truth for label, one in of_action.items()}
    unexplained = {label: one.detections[one.detected == ALONE] for label, one in of_action.items()}
    for label, one in of_action.items():
        others = np.concatenate([nothing, *(spans for name, spans in unexplained.items() if name != label)])
        one.labels[(one.labels == ALONE) & belong_together(one.truth, others).any(axis=1)] = WRONG_ACTION
        others = np.concatenate([nothing, *(spans for name, spans in labelled.items() if name != label)])
        one.detected[(one.detected == ALONE) & belong_together(one.detections, others).any(axis=1)] = WRONG_ACTION
    return of_action


def measure_errors(videos: Sequence[VideoEvents], classes: Sequence[str]) -> Entry:
    """Return how many labels and detections are of each kind, in JSON's types: {"together": {...}, "per_class": {...}}.

    Each has `labels`, a number for each of OF_LABELS, which add up to the labels; `missed`, the same of those that are
    not found; `detections` and `false_alarms`, a number for each of OF_DETECTIONS; and `start` and `end` with how many
    edges are `early` and `late` by more than EDGE seconds, and the `median` (s, below 0 early, None without any),
    of labels and detections that are one to one. See `judge_events`. The sums are those of `actions.measure_events`.
    """
    judged = [judge_events(video, classes) for video in videos]
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    return {
        "together": _entry([one for video in judged for one in video.values()]),
        "per_class": {label: _entry([video[label] for video in judged]) for label in actions},
    }


def belong_together(truth: Spans, detections: Spans) -> NDArray[np.bool_]:
    """Return which labels (N, 2) overlap which detections (M, 2): (N, M).

    Touching counts only if one of the two has no length.
    """
    shared = np.minimum(truth[:, None, 1], detections[None, :, 1]) - np.maximum(
        truth[:, None, 0], detections[None, :, 0]
    )
    instant = (truth[:, 1] <= truth[:, 0])[:, None] | (detections[:, 1] <= detections[:, 0])[None]
    return np.asarray((shared > SLACK) | (instant & (shared >= -SLACK)))


def _of_action(video: VideoEvents, label: str, ambiguous: Spans) -> JudgedEvents:
    """Judge one action as if there were no other."""
    truth, detections = labelled_spans(video.truth, label, video.seconds), spans_of(video.detections, label)
    pairs = find(truth, detections)
    found, paired = np.zeros(len(truth), bool), np.zeros(len(detections), bool)
    found[pairs[:, 0]], paired[pairs[:, 1]] = True, True
    left_out = is_ambiguous(detections, ambiguous) & ~paired
    links = belong_together(truth, detections)
    links[pairs[:, 0], pairs[:, 1]] = True
    links[:, left_out] = False
    of_label, of_detection = links.sum(axis=1), links.sum(axis=0)
    rows, columns = np.nonzero(links & (of_label == 1)[:, None] & (of_detection == 1)[None])
    edges = detections[columns] - truth[rows]
    labels = _kinds(of_label == 0, of_label > 1, (links & (of_detection > 1)[None]).any(axis=1))
    detected = _kinds(of_detection == 0, (links & (of_label > 1)[:, None]).any(axis=0), of_detection > 1)
    off = (np.abs(edges) > EDGE + SLACK).any(axis=1)
    labels[rows[off]], detected[columns[off]] = EDGES, EDGES
    detected[left_out] = -1
    return JudgedEvents(
        truth, detections, labels, found, detected, ~paired & ~left_out, edges, np.stack([rows, columns], 1)
    )


def _kinds(alone: NDArray[np.bool_], in_pieces: NDArray[np.bool_], as_one: NDArray[np.bool_]) -> Kinds:
    """Return the kinds (N,) of labels or detections, edges and other actions aside."""
    return np.select([alone, in_pieces & as_one, in_pieces, as_one], [ALONE, BOTH, IN_PIECES, AS_ONE], CORRECT)


def _entry(judged: Sequence[JudgedEvents]) -> Entry:
    """Count the kinds of labels and detections, and the edges that are early and late."""
    kinds = {
        "labels": (OF_LABELS, [one.labels for one in judged]),
        "missed": (OF_LABELS, [one.labels[~one.found] for one in judged]),
        "detections": (OF_DETECTIONS, [one.detected for one in judged]),
        "false_alarms": (OF_DETECTIONS, [one.detected[one.false] for one in judged]),
    }
    entry: Entry = {}
    for what, (names, parts) in kinds.items():
        places = np.concatenate([np.zeros(0, np.int64), *parts])
        entry[what] = {name: int(np.count_nonzero(places == place)) for place, name in enumerate(names)}
    edges = np.concatenate([np.zeros((0, 2)), *(one.edges for one in judged)])
    for what, seconds in zip(("start", "end"), edges.T, strict=True):
        entry[what] = {
            "early": int(np.count_nonzero(seconds < -EDGE - SLACK)),
            "late": int(np.count_nonzero(seconds > EDGE + SLACK)),
            "median": float(np.median(seconds)) if len(seconds) else None,
        }
    return entry


def measure_kappa(videos: Sequence[VideoEvents], classes: Sequence[str]) -> dict[str, Any]:
    """Compute Cohen's kappa over all chunks of all videos: {"chunks", "together", "per_class": {label: kappa}}.

    Of a class each chunk is active or not. Together, the answer of an observer is the set of actions that are active
    in a chunk, which may be empty. Chunks that either side labels ambiguous are skipped. A kappa is None where both
    sides give one same answer throughout, and without any chunk.
    """
    actions = tuple(label for label in classes if label not in (BACKGROUND, AMBIGUOUS))
    classes = (*actions, AMBIGUOUS)
    # which actions are active in which chunk (L, C) on each side
    answers = [[np.zeros((0, len(actions)), bool)], [np.zeros((0, len(actions)), bool)]]
    for video in videos:
        active = []
        for segments in (video.truth, video.detections):
            known = VideoLabels("", video.seconds, tuple(s for s in segments if s.label in classes))
            active.append(targets(known, classes, CLOCK.end(video.seconds)) > 0)
        keep = ~(active[0][:, -1] | active[1][:, -1])
        for side in (0, 1):
            answers[side].append(active[side][keep, :-1])
    one, other = map(np.concatenate, answers)
    per_class = {label: _kappa(one[:, column], other[:, column]) for column, label in enumerate(actions)}
    _, sets = np.unique(np.concatenate([one, other]), axis=0, return_inverse=True)
    together = _kappa(*np.split(sets.reshape(-1), 2))
    return {"chunks": len(one), "together": together, "per_class": per_class}


def without_ambiguous(video: VideoEvents) -> VideoEvents:
    """Drop the events that the other side cannot have, because at least half of each is ambiguous there.

    An event stays where the other side has one of its action that overlaps it.
    """
    sides = (video.truth, video.detections)
    kept = []
    for own, others in (sides, sides[::-1]):
        spans = np.array([(s.start, s.end) for s in own], dtype=np.float64).reshape(-1, 2)
        excused = is_ambiguous(spans, spans_of(others, AMBIGUOUS))
        kept.append(
            [
                segment
                for segment, span, is_excused in zip(own, spans, excused, strict=True)
                if not is_excused
                or segment.label in (BACKGROUND, AMBIGUOUS)
                or belong_together(span[None], spans_of(others, segment.label)).any()
            ]
        )
    return VideoEvents(kept[0], kept[1], video.seconds)


def _kappa(one: NDArray[Any], other: NDArray[Any]) -> float | None:
    """Return Cohen's kappa of the answers (L,) of two observers."""
    if not len(one):
        return None
    observed = float(np.mean(one == other))
    expected = sum(float(np.mean(one == answer) * np.mean(other == answer)) for answer in np.unique(one))
    return None if (one[0] == one).all() and (one[0] == other).all() else (observed - expected) / (1 - expected)

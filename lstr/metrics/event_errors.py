"""Error types of events: fragmentation, merge, wrong edge or action, insertion (Ward, 2011); kappa of observers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, VideoLabels, actions_of, targets
from lstr.metrics.actions import SLACK, Spans, VideoEvents, find, is_ambiguous, labelled_spans, shared_seconds, spans_of

# Tolerance of an edge in seconds: two chunks; manual labels are not more exact
EDGE = 0.5
OF_LABELS = ("correct", "edges", "fragmented", "merged", "fragmented_merged", "wrong_action", "deleted")
OF_DETECTIONS = ("correct", "edges", "fragment", "merging", "fragment_merging", "wrong_action", "inserted")
# Indices in OF_LABELS and in OF_DETECTIONS
CORRECT, EDGES, IN_PIECES, AS_ONE, BOTH, WRONG_ACTION, ALONE = range(len(OF_LABELS))

Kinds = NDArray[np.int64]
Entry = dict[str, Any]


@dataclass(frozen=True)
class JudgedEvents:
    """The error types of a video's labels and detections of one action."""

    truth: Spans  # (N, 2) the labels, cut at the video's end
    detections: Spans  # (M, 2) the detections, including skipped ones
    labels: Kinds  # (N,) indices in OF_LABELS
    found: NDArray[np.bool_]  # (N,) whether the label is detected (`actions.find`)
    # (M,) indices in OF_DETECTIONS; -1 for a detection that is skipped because it is labelled ambiguous
    detected: Kinds
    false: NDArray[np.bool_]  # (M,) whether the detection is a false alarm
    # (P, 2) seconds by which start and end of a detection are later than its label's, for one-to-one pairs
    edges: Spans
    pairs: NDArray[np.int64]  # (P, 2) indices of label and detection of each such pair


def judge_events(video: VideoEvents, classes: Sequence[str]) -> dict[str, JudgedEvents]:
    """Return the error types of labels and detections of a video, by action.

    A label and a detection of the same action belong together if they overlap, or if `actions.find` pairs them. A label
    with several detections is fragmented; a detection with several labels merges them. A label without a detection has
    the wrong action if it overlaps a detection of another action that has no label. A detection without a label has the
    wrong action if it overlaps any label of another action.
    """
    of_action: dict[str, JudgedEvents] = {}
    for label in actions_of(classes):  # regardless of other actions
        truth, detections = labelled_spans(video.truth, label, video.seconds), spans_of(video.detections, label)
        pairs = find(truth, detections)
        found, paired = np.zeros(len(truth), bool), np.zeros(len(detections), bool)
        found[pairs[:, 0]], paired[pairs[:, 1]] = True, True
        skipped = is_ambiguous(detections, spans_of(video.truth, AMBIGUOUS)) & ~paired
        links = belong_together(truth, detections)
        links[pairs[:, 0], pairs[:, 1]] = True
        links[:, skipped] = False
        of_label, of_detection = links.sum(axis=1), links.sum(axis=0)
        rows, columns = np.nonzero(links & (of_label == 1)[:, None] & (of_detection == 1)[None])
        edges = detections[columns] - truth[rows]
        labels = _kinds(of_label == 0, of_label > 1, (links & (of_detection > 1)[None]).any(axis=1))
        detected = _kinds(of_detection == 0, (links & (of_label > 1)[:, None]).any(axis=0), of_detection > 1)
        off = (np.abs(edges) > EDGE + SLACK).any(axis=1)
        labels[rows[off]], detected[columns[off]] = EDGES, EDGES
        detected[skipped] = -1
        one_to_one, false = np.stack([rows, columns], 1), ~paired & ~skipped
        of_action[label] = JudgedEvents(truth, detections, labels, found, detected, false, edges, one_to_one)
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
    """Count the labels and detections of each error type (see `judge_events`).

    Returns:
        A JSON object {"together": {...}, "per_class": {...}}, each with `labels`, a number for each of OF_LABELS;
        `missed`, the same for labels that were not detected; `detections` and `false_alarms`, a number for each of
        OF_DETECTIONS; and `start` and `end`, for one-to-one pairs the number of edges that are `early` and `late` by
        more than EDGE seconds, and the `median` (s, negative is early, None without pairs). The sums are equal to
        `actions.measure_events`.
    """
    judged = [judge_events(video, classes) for video in videos]
    actions = actions_of(classes)
    return {
        "together": _entry([one for video in judged for one in video.values()]),
        "per_class": {label: _entry([video[label] for video in judged]) for label in actions},
    }


def belong_together(truth: Spans, detections: Spans) -> NDArray[np.bool_]:
    """Return which labels (N, 2) overlap which detections (M, 2), as (N, M).

    Touching counts only if one of the two has no length.
    """
    shared = shared_seconds(truth, detections)
    instant = (truth[:, 1] <= truth[:, 0])[:, None] | (detections[:, 1] <= detections[:, 0])[None]
    return np.asarray((shared > SLACK) | (instant & (shared >= -SLACK)))


def _kinds(alone: NDArray[np.bool_], in_pieces: NDArray[np.bool_], as_one: NDArray[np.bool_]) -> Kinds:
    """Return the error types (N,) of labels or detections, without regard to edges and other actions."""
    return np.select([alone, in_pieces & as_one, in_pieces, as_one], [ALONE, BOTH, IN_PIECES, AS_ONE], CORRECT)


def _entry(judged: Sequence[JudgedEvents]) -> Entry:
    """Count the error types of labels and detections, and the early and late edges."""
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

    For a class, an observer's answer is whether it is active in a chunk; for `together` it is the set of active
    actions, which may be empty. Chunks that either side labels ambiguous are skipped. A kappa is None if both sides
    always give the same single answer, and without any chunk.
    """
    actions = actions_of(classes)
    classes = (*actions, AMBIGUOUS)
    # active actions by chunk (L, C) on each side
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
    """Drop the events that are at least half ambiguous on the other side, which therefore cannot match them.

    An event is kept if it overlaps an event of the same action on the other side.
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
    """Compute Cohen's kappa of the answers (L,) of two observers."""
    if not len(one):
        return None
    observed = float(np.mean(one == other))
    expected = sum(float(np.mean(one == answer) * np.mean(other == answer)) for answer in np.unique(one))
    return None if (one[0] == one).all() and (one[0] == other).all() else (observed - expected) / (1 - expected)

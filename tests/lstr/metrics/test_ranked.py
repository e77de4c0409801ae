"""Ranked instances, starts and delays: against second implementations, and by hand."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.labels.label_set import segments_of
from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents
from lstr.metrics.per_frame import confusion, detection_delay
from lstr.metrics.ranked import IOUS, measure_instances, start_precision
from tests.support.drawn import CLASSES, cut, drawn_segments, plain_iou, scores_of, targets_of

LETTERS = ("Background", "A", "B", "Ambiguous")


def measure(*videos):
    return measure_instances([VideoEvents(*video, seconds=20.0) for video in videos], CLASSES)


def plain_average_precision(videos, label: str, least: float) -> float:
    """The second implementation: one list of detections over all videos, a lock on each label."""
    labels = [(v, t) for v, (truth, _) in enumerate(videos) for t, s in enumerate(truth) if s.label == label]
    detections = [(v, s) for v, (_, detected) in enumerate(videos) for s in detected if s.label == label]
    detections.sort(key=lambda entry: -entry[1].score)
    locked, correct = set(), []
    for v, detection in detections:
        ious = {key: plain_iou(videos[v][0][key[1]], detection) for key in labels if key[0] == v and key not in locked}
        best = max(ious, key=lambda key: (ious[key], -key[1]), default=None)
        correct.append(best is not None and ious[best] >= least)
        if correct[-1]:
            locked.add(best)
    scores = [s.score for _, s in detections]
    counts = [sum(score >= level for score in scores) for level in sorted(set(scores), reverse=True)]
    recall = [sum(correct[:n]) / len(labels) for n in counts]
    precision = [sum(correct[:n]) / n for n in counts]
    return sum((here - before) * max(precision[k:]) for k, (before, here) in enumerate(pairwise([0, *recall])))


labelled = drawn_segments("hug", "point", least=0.25)
detected = st.builds(lambda s, score: Segment(s.start, s.end, s.label, score / 5), labelled, st.integers(0, 5))
video = st.tuples(st.lists(labelled, max_size=5), st.lists(detected, max_size=7))


@settings(max_examples=60)
@given(st.lists(video, min_size=1, max_size=4))
def test_instances_equal_those_of_the_second_implementation(videos):
    result = measure(*videos)
    present = [label for label in ("hug", "point") if any(s.label == label for truth, _ in videos for s in truth)]
    assert list(result["per_class"]) == present
    of_class = {label: [plain_average_precision(videos, label, least) for least in IOUS] for label in present}
    for label, values in of_class.items():
        assert result["per_class"][label]["AP"] == pytest.approx(values)
        assert result["per_class"][label]["mean"] == pytest.approx(np.mean(values))
    expected = np.mean(list(of_class.values()), axis=0) if present else [math.nan] * len(IOUS)
    assert result["mAP"] == pytest.approx(list(expected), nan_ok=True)


def test_delays_of_instances():
    truth = cut((1, 3), (5, 7), (9, 11))
    detections = [Segment(1, 3.5, "hug", 0.9), Segment(5, 6, "hug", 0.6), Segment(15, 16, "hug", 0.9)]
    late = {"p50": 0.25, "p95": pytest.approx(0.25 + 0.45 * 1.5)}
    result = measure_instances([VideoEvents(truth, detections, 20.0, ended=[4.0, 6.5, 16.5])], CLASSES)
    assert result["late"] == result["per_class"]["hug"]["late"] == late
    assert measure((truth, detections))["late"] == {"p50": None, "p95": None}


def test_a_mostly_ambiguous_instance_is_skipped_unless_it_finds_a_label():
    truth = [Segment(0, 2, "hug"), Segment(10, 14, "Ambiguous")]
    detections = [Segment(0, 2, "hug", 0.5), Segment(10, 14, "hug", 0.9), Segment(13, 16, "hug", 0.9)]
    assert measure((truth, detections[:2]))["mean"] == 1.0
    assert measure((truth, detections))["mean"] == 0.5  # a third of the last is ambiguous


def test_no_video_no_score_and_labels_after_the_end():
    assert math.isnan(measure_instances([], CLASSES)["mean"])
    assert measure((cut((0, 2)), cut((0, 2))))["mean"] == 1.0
    entry = measure((cut((8, 30), (25, 26)), [Segment(8, 20, "hug", 0.9)]))["per_class"]["hug"]
    assert (entry["labels"], entry["detections"], entry["mean"]) == (1, 1, 1.0)


def plain_start_precision(scores, targets, segments, label: str, offset: float) -> float:
    """The second implementation: all starts in one list; each removes the nearest labelled start if near enough."""
    column, starts = LETTERS.index(label), []
    for v, (rows, on) in enumerate(zip(scores, targets, strict=True)):
        top = [int(np.argmax(row[:3])) for row in rows]
        for k, (before, here) in enumerate(pairwise([None, *top])):
            if here == column != before and not on[k, 3]:
                starts.append((float(rows[k][column]), v, k / 4))
    labels = [[action.start for action in video if action.label == label] for video in segments]
    total, correct = sum(map(len, labels)), []
    starts.sort(key=lambda start: -start[0])
    for _, v, time in starts:
        nearest = min(labels[v], key=lambda start: (abs(start - time), start), default=math.inf)
        correct.append(abs(nearest - time) <= offset)
        if correct[-1]:
            labels[v].remove(nearest)
    area, before = 0.0, 0
    for score in sorted({score for score, *_ in starts}, reverse=True):
        n = sum(start[0] >= score for start in starts)  # equal scores count together
        area += (sum(correct[:n]) - before) * sum(correct[:n]) / n
        before = sum(correct[:n])
    return area / total


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans())
def test_starts_equal_those_of_the_second_implementation(seed, n_videos, coarse):
    random = np.random.default_rng(seed)
    scores = [random.dirichlet(np.ones(4), int(random.integers(0, 40))) for _ in range(n_videos)]
    scores = [np.round(rows, 1) if coarse else rows for rows in scores]  # with equal scores
    targets = [targets_of("".join(random.choice(list("...AAB?"), len(rows)))) for rows in scores]
    segments = [segments_of(on, LETTERS) for on in targets]
    result = start_precision(scores, targets, segments, LETTERS, (1, 3))
    for label, entry in result["per_class"].items():
        expected = [plain_start_precision(scores, targets, segments, label, offset) for offset in (1, 3)]
        assert entry["AP"] == pytest.approx(expected)
    assert result["per_class"] or np.isnan(result["mAP"][0])


def test_delays_of_detection_by_hand():
    on = targets_of("..AAAA..BB..")
    segments = [Segment(0.6, 1.5, "A"), Segment(2.0, 2.5, "B"), Segment(9.0, 9.5, "A")]
    result = detection_delay([scores_of("....AA......")], [on], [segments], LETTERS)
    assert result["seconds"] == pytest.approx([1.25 - 0.6])  # chunk 4 ends at 1.25 s
    assert (result["actions"], result["detected"]) == (2, 1)  # the action at 9 s is after the end
    assert result["per_class"]["B"]["detected"] == 0 and np.isnan(result["per_class"]["B"]["median"])
    undecided = detection_delay([np.full((4, 4), 0.25)], [targets_of("AAAA")], [segments[:1]], LETTERS)
    assert undecided["detected"] == 0, "equal scores decide nothing"
    assert detection_delay([scores_of("AB")], [targets_of("..")], [[]], LETTERS)["actions"] == 0


def test_another_active_action_with_the_highest_score_is_not_an_error():
    on, rows = targets_of("AAAA"), scores_of("AAAA")
    on[:, 2] = 1
    rows[2:, 2] = 0.3  # B has the second score after A, which is active too
    result = detection_delay([rows], [on], [[Segment(0.0, 1.0, "A"), Segment(0.0, 1.0, "B")]], LETTERS)
    assert result["seconds"] == [0.25, 0.75]
    assert confusion([rows], [on], LETTERS).sum() == 0


def test_confusion_counts_wrong_chunks():
    counts = confusion([scores_of("A.BB"), scores_of("B?")], [targets_of("AA.B"), targets_of("A?")], LETTERS)
    assert counts.sum() == 3
    assert (counts[1, 0], counts[0, 2], counts[1, 2]) == (1, 1, 1)

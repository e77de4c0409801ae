"""Instances as they end, starts and delays: beside second implementations, and what is special."""

import math

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


def measure(*videos, **more):
    return measure_instances([VideoEvents(*video, seconds=20.0) for video in videos], CLASSES, **more)


# The second implementation: one list of detections over all videos, a lock on each label, precision and recall by hand.


def plain_average_precision(videos, label: str, least: float) -> float:
    labels = {(v, t) for v, (truth, _) in enumerate(videos) for t, one in enumerate(truth) if one.label == label}
    told = [(one.score, v, one) for v, (_, said) in enumerate(videos) for one in said if one.label == label]
    told.sort(key=lambda entry: -entry[0])
    locked, outcome = set(), []
    for score, v, one in told:
        of_video = [t for w, t in labels if w == v]
        by_overlap = sorted(of_video, key=lambda t: (-plain_iou(videos[v][0][t], one), t))
        right = False
        for t in by_overlap:
            if plain_iou(videos[v][0][t], one) < least:
                break
            if (v, t) not in locked:
                locked.add((v, t))
                right = True
                break
        outcome.append((score, right))
    recall, precision = [], []
    for score in sorted({score for score, _ in outcome}, reverse=True):
        above = [right for other, right in outcome if other >= score]
        recall.append(sum(above) / len(labels))
        precision.append(sum(above) / len(above))
    area, before = 0.0, 0.0
    for at, here in enumerate(recall):
        area += (here - before) * max(precision[at:])
        before = here
    return area


labelled = drawn_segments("hug", "point", least=0.25)
said = st.builds(lambda one, score: Segment(one.start, one.end, one.label, score / 5), labelled, st.integers(0, 5))
video = st.tuples(st.lists(labelled, max_size=5), st.lists(said, max_size=7))


@settings(max_examples=60)
@given(st.lists(video, min_size=1, max_size=4))
def test_every_figure_is_that_of_the_second_implementation(videos):
    found = measure(*videos)
    present = [label for label in ("hug", "point") if any(s.label == label for truth, _ in videos for s in truth)]
    assert list(found["per_class"]) == present
    of_class = {label: [plain_average_precision(videos, label, least) for least in IOUS] for label in present}
    for label, values in of_class.items():
        assert found["per_class"][label]["AP"] == pytest.approx(values)
        assert found["per_class"][label]["mean"] == pytest.approx(np.mean(values))
    expected = np.mean(list(of_class.values()), axis=0) if present else [math.nan] * len(IOUS)
    assert found["mAP"] == pytest.approx(list(expected), nan_ok=True)


def test_how_late_instances_are_told():
    truth = cut((1, 3), (5, 7), (9, 11))
    told = [Segment(1, 3.5, "hug", 0.9), Segment(5, 6, "hug", 0.6), Segment(15, 16, "hug", 0.9)]
    found = measure_instances([VideoEvents(truth, told, 20.0, told=[4.0, 6.5, 16.5])], CLASSES)
    assert found["late"] == found["per_class"]["hug"]["late"] == {"p50": 0.25, "p95": pytest.approx(0.25 + 0.45 * 1.5)}
    assert measure((truth, told))["late"] == {"p50": None, "p95": None}


def test_what_is_mostly_ambiguous_is_left_out_unless_it_finds_a_label():
    truth = [Segment(0, 2, "hug"), Segment(10, 14, "Ambiguous")]
    told = [Segment(0, 2, "hug", 0.5), Segment(10, 14, "hug", 0.9), Segment(13, 16, "hug", 0.9)]
    assert measure((truth, told[:2]))["mean"] == 1.0
    assert measure((truth, told))["mean"] == 0.5  # the last is ambiguous in a third of it


def test_no_score_no_video_and_labels_behind_the_end():
    assert math.isnan(measure_instances([], CLASSES)["mean"])
    assert measure((cut((0, 2)), cut((0, 2))))["mean"] == 1.0  # told without a score
    entry = measure((cut((8, 30), (25, 26)), [Segment(8, 20, "hug", 0.9)]))["per_class"]["hug"]
    assert (entry["labels"], entry["said"], entry["mean"]) == (1, 1, 1.0)


LETTER_CLASSES = ("Background", "A", "B", "Ambiguous")


# The second implementation: every start in one list, each labelled start crossed out by the first that is near enough.


def plain_start_precision(scores, targets, segments, label: str, offset: float) -> float:
    column, said = LETTER_CLASSES.index(label), []
    for v, (rows, on) in enumerate(zip(scores, targets, strict=True)):
        before = None
        for k, row in enumerate(rows):
            top = max((c for c in range(len(LETTER_CLASSES) - 1)), key=lambda c: (row[c], -c))
            if top == column and top != before and not on[k, 3]:
                said.append((float(row[column]), v, k / 4))
            before = top
    labelled = [[action.start for action in video if action.label == label] for video in segments]
    total = sum(map(len, labelled))
    right = []
    for _, v, time in sorted(said, key=lambda one: -one[0]):
        near = sorted((abs(start - time), start) for start in labelled[v])
        right.append(bool(near) and near[0][0] <= offset)
        if right[-1]:
            labelled[v].remove(near[0][1])
    ranks, area, before = sorted((score for score, *_ in said), reverse=True), 0.0, 0
    for score in sorted(set(ranks), reverse=True):
        n = sum(rank >= score for rank in ranks)  # equal scores count together
        area += (sum(right[:n]) - before) * sum(right[:n]) / n
        before = sum(right[:n])
    return area / total


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans())
def test_starts_are_those_of_the_second_implementation(seed, n_videos, coarse):
    random = np.random.default_rng(seed)
    scores = [random.dirichlet(np.ones(4), int(random.integers(0, 40))) for _ in range(n_videos)]
    scores = [np.round(rows, 1) if coarse else rows for rows in scores]  # with equal scores
    targets = [targets_of("".join(random.choice(list("...AAB?"), len(rows)))) for rows in scores]
    segments = [segments_of(on, LETTER_CLASSES) for on in targets]
    found = start_precision(scores, targets, segments, LETTER_CLASSES, (1, 3))
    for label, entry in found["per_class"].items():
        expected = [plain_start_precision(scores, targets, segments, label, offset) for offset in (1, 3)]
        assert entry["AP"] == pytest.approx(expected)
    assert found["per_class"] or np.isnan(found["mAP"][0])


def test_delay_by_hand():
    on = "..AAAA..BB.."
    segments = [Segment(0.6, 1.5, "A"), Segment(2.0, 2.5, "B"), Segment(9.0, 9.5, "A")]
    result = detection_delay([scores_of("....AA......")], [targets_of(on)], [segments], LETTER_CLASSES)
    assert result["seconds"] == pytest.approx([1.25 - 0.6])  # chunk 4 ends at 1.25 s
    assert (result["actions"], result["detected"]) == (2, 1)  # the one at 9 s is after the end
    assert result["per_class"]["B"]["detected"] == 0 and np.isnan(result["per_class"]["B"]["median"])
    undecided = detection_delay([np.full((4, 4), 0.25)], [targets_of("AAAA")], [segments[:1]], LETTER_CLASSES)
    assert undecided["detected"] == 0, "equal scores decide nothing"
    assert detection_delay([scores_of("AB")], [targets_of("..")], [[]], LETTER_CLASSES)["actions"] == 0


def test_an_action_under_way_at_the_same_time_is_no_mistake():
    on = targets_of("AAAA")
    on[:, 2] = 1
    rows = scores_of("AAAA")
    rows[2:, 2] = 0.3  # B is second to A, which is on too
    result = detection_delay([rows], [on], [[Segment(0.0, 1.0, "A"), Segment(0.0, 1.0, "B")]], LETTER_CLASSES)
    assert result["seconds"] == [0.25, 0.75]
    assert confusion([rows], [on], LETTER_CLASSES).sum() == 0


def test_confusion_counts_wrong_chunks():
    counts = confusion([scores_of("A.BB"), scores_of("B?")], [targets_of("AA.B"), targets_of("A?")], LETTER_CLASSES)
    assert counts.sum() == 3
    assert (counts[1, 0], counts[0, 2], counts[1, 2]) == (1, 1, 1)

"""Starts, delays and confusion of decisions whose answer is known, or that a second implementation gives."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.labels.label_set import segments_of
from lstr.labels.segment import Segment
from lstr.metrics.per_frame import confusion, detection_delay
from lstr.metrics.ranked import start_precision
from tests.support.drawn import scores_of, targets_of

CLASSES = ("Background", "A", "B", "Ambiguous")


# The second implementation: every start in one list, each labelled start crossed out by the first that is near enough.


def plain_start_precision(scores, targets, segments, label: str, offset: float) -> float:
    column, said = CLASSES.index(label), []
    for v, (rows, on) in enumerate(zip(scores, targets, strict=True)):
        before = None
        for k, row in enumerate(rows):
            top = max((c for c in range(len(CLASSES) - 1)), key=lambda c: (row[c], -c))
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
    segments = [segments_of(on, CLASSES) for on in targets]
    found = start_precision(scores, targets, segments, CLASSES, (1, 3))
    for label, entry in found["per_class"].items():
        expected = [plain_start_precision(scores, targets, segments, label, offset) for offset in (1, 3)]
        assert entry["AP"] == pytest.approx(expected)
    assert found["per_class"] or np.isnan(found["mAP"][0])


def test_a_labelled_start_is_found_once():
    on, said = targets_of("....AAAAAAAA"), scores_of("....A.A.A.A.")
    action = [[Segment(1.0, 3.0, "A")]]
    of_a = start_precision([said], [on], action, CLASSES, (10,))["per_class"]["A"]
    assert (of_a["AP"], of_a["mean"], of_a["starts"], of_a["said"]) == ([0.25], 0.25, 1, 4)  # equal ones count together
    early = scores_of("A...AAAAAAAA")
    early[0, 1] = 0.99  # the surest, and near enough to take the only start
    assert start_precision([early], [on], action, CLASSES, (0.5, 1))["mAP"] == [0.5, 1.0]


def test_delay_by_hand():
    on = "..AAAA..BB.."
    segments = [Segment(0.6, 1.5, "A"), Segment(2.0, 2.5, "B"), Segment(9.0, 9.5, "A")]
    result = detection_delay([scores_of("....AA......")], [targets_of(on)], [segments], CLASSES)
    assert result["seconds"] == pytest.approx([1.25 - 0.6])  # chunk 4 ends at 1.25 s
    assert (result["actions"], result["detected"]) == (2, 1)  # the one at 9 s is after the end
    assert result["per_class"]["B"]["detected"] == 0 and np.isnan(result["per_class"]["B"]["median"])
    undecided = detection_delay([np.full((4, 4), 0.25)], [targets_of("AAAA")], [segments[:1]], CLASSES)
    assert undecided["detected"] == 0, "equal scores decide nothing"
    assert detection_delay([scores_of("AB")], [targets_of("..")], [[]], CLASSES)["actions"] == 0


def test_an_action_under_way_at_the_same_time_is_no_mistake():
    on = targets_of("AAAA")
    on[:, 2] = 1
    rows = scores_of("AAAA")
    rows[2:, 2] = 0.3  # B is second to A, which is on too
    result = detection_delay([rows], [on], [[Segment(0.0, 1.0, "A"), Segment(0.0, 1.0, "B")]], CLASSES)
    assert result["seconds"] == [0.25, 0.75]
    assert confusion([rows], [on], CLASSES).sum() == 0


def test_confusion_counts_wrong_chunks():
    counts = confusion([scores_of("A.BB"), scores_of("B?")], [targets_of("AA.B"), targets_of("A?")], CLASSES)
    assert counts.sum() == 3
    assert (counts[1, 0], counts[0, 2], counts[1, 2]) == (1, 1, 1)

"""Cohen's kappa beside scikit-learn's, and overlaps of events beside plain loops."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents
from lstr.metrics.agreement import IOUS, event_agreement, frame_agreement, frames_of, kappa, without_ambiguous

CLASSES = ("Background", "hug", "point", "Ambiguous")


def cut(*spans, label="hug"):
    return [Segment(start, end, label) for start, end in spans]


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ([[20, 5], [10, 15]], (0.7, 0.5, 0.4)),  # the example of the article of kappa in Wikipedia
        ([[7, 0], [0, 0]], (1.0, 1.0, None)),  # nothing could differ
        ([[0, 7], [0, 0]], (0.0, 0.0, 0.0)),
        ([[4, 3], [0, 0]], (4 / 7, 4 / 7, 0.0)),  # one of them never changes
        ([[3, 0], [0, 4]], (1.0, 25 / 49, 1.0)),
        ([[0, 0], [0, 0]], (None, None, None)),
    ],
)
def test_kappa_made_by_hand(counts, expected):
    assert tuple(kappa(np.array(counts)).values()) == pytest.approx(expected)


quarters = st.integers(0, 24).map(lambda k: k / 4)
segment = st.tuples(quarters, quarters, st.sampled_from(["hug", "point", "Ambiguous"])).map(
    lambda drawn: Segment(min(drawn[:2]), max(drawn[:2]), drawn[2])
)
sides = st.tuples(st.lists(segment, max_size=4), st.lists(segment, max_size=4))


def plain_frames(segments, seconds):
    """The actions of each quarter second, as text; ? where it is ambiguous."""
    frames = []
    for k in range(round(4 * seconds)):
        on = {s.label for s in segments if s.start < (k + 1) / 4 and s.end > k / 4}
        frames.append("?" if "Ambiguous" in on else " ".join(sorted(on)))
    return frames


@given(st.lists(sides, min_size=1, max_size=3))
def test_kappa_is_that_of_scikit_learn(drawn):
    videos = [VideoEvents(*one, seconds=7.0) for one in drawn]
    found = frame_agreement(videos, CLASSES)
    pairs = [
        (a, b)
        for truth, others in drawn
        for a, b in zip(plain_frames(truth, 7.0), plain_frames(others, 7.0), strict=True)
        if "?" not in (a, b)
    ]
    assert found["chunks"] == len(pairs)
    if not pairs:
        assert found["together"]["kappa"] is None
        return
    one, other = zip(*pairs, strict=True)
    _equals(found["together"], one, other)
    for label in ("hug", "point"):
        on = [[label in frame.split() for frame in side] for side in (one, other)]
        _equals(found["per_class"][label], *on)
        assert found["per_class"][label]["truth"] == sum(on[0])
        assert found["per_class"][label]["both"] == sum(map(all, zip(*on, strict=True)))


def _equals(found, one, other):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nothing to divide by, which is None here
        expected = cohen_kappa_score(list(one), list(other))
    assert found["observed"] == pytest.approx(np.mean([a == b for a, b in zip(one, other, strict=True)]))
    assert found["kappa"] is None if np.isnan(expected) else found["kappa"] == pytest.approx(expected)


def test_chunks_hold_all_seconds():
    on = frames_of(cut((0.1, 0.3)), ("hug",), 1.1)
    assert on[:, 0].tolist() == [True, True, False, False, False]


@given(st.lists(sides, max_size=3))
def test_overlaps_are_those_of_plain_loops(drawn):
    """Of two events a side at most the best pairs are found by trying."""
    drawn = [tuple([s for s in side if s.label != "Ambiguous"][:2] for side in one) for one in drawn]
    found = event_agreement([VideoEvents(*one, seconds=30.0) for one in drawn], CLASSES)["together"]
    sums, pairs, overlapping, seconds = 0.0, dict.fromkeys(IOUS, 0), 0, [0.0, 0.0]
    for truth, others in drawn:
        for label in ("hug", "point"):
            ours, theirs = ([s for s in side if s.label == label] for side in (truth, others))
            ways = [[*zip(ours, theirs, strict=False)], [*zip(ours, theirs[::-1], strict=False)]]
            ways += [[*zip(ours[::-1], theirs, strict=False)]]
            ious = [[_iou(a, b) for a, b in way] for way in ways]
            best = max(ious, key=sum)
            sums, overlapping = sums + sum(best), overlapping + sum(value > 0 for value in best)
            for least in IOUS:
                pairs[least] += max(sum(value >= least - 1e-9 for value in way) for way in ious)
            cells = [{k for s in side for k in range(round(4 * s.start), round(4 * s.end))} for side in (ours, theirs)]
            seconds = [seconds[0] + len(cells[0] & cells[1]) / 4, seconds[1] + len(cells[0] | cells[1]) / 4]
    assert {least: found["matched"][str(least)]["pairs"] for least in IOUS} == pairs
    assert found["overlapping"] == overlapping
    assert found["mean_iou"] == (pytest.approx(sums / overlapping) if overlapping else None)
    assert found["seconds"]["both"] == pytest.approx(seconds[0])
    assert found["seconds"]["iou"] == (pytest.approx(seconds[0] / seconds[1]) if seconds[1] else None)


def test_what_is_ambiguous_to_the_other_is_left_out_of_both():
    unsure = cut((10, 20), label="Ambiguous")
    one, other = [*cut((2, 4), (30, 30)), *unsure], cut((2, 4), (9, 12), (9, 10.5), (15, 15), (30, 30))
    video = VideoEvents(one, other, 40.0)
    assert list(without_ambiguous(video).detections) == cut((2, 4), (9, 10.5), (30, 30))
    found = event_agreement([VideoEvents(one, cut((2, 4), (9, 12)), 40.0)], CLASSES)["per_class"]["hug"]
    assert (found["truth"], found["detections"], found["seconds"]["iou"]) == (2, 1, 1.0)
    near = VideoEvents([*cut((2, 4)), *cut((4, 8), label="Ambiguous")], cut((2, 7)), 10.0)
    assert without_ambiguous(near) == near, "the other has an event of the action there"


@given(st.lists(sides, max_size=3))
def test_it_does_not_matter_who_is_first(drawn):
    found, swapped = (
        event_agreement([VideoEvents(*one[::step], seconds=30.0) for one in drawn], CLASSES)["together"]
        for step in (1, -1)
    )
    assert (found["truth"], found["detections"]) == (swapped["detections"], swapped["truth"])
    assert [one["f1"] for one in found["matched"].values()] == [one["f1"] for one in swapped["matched"].values()]


def _iou(a, b):
    shared = max(0.0, min(a.end, b.end) - max(a.start, b.start))
    union = (a.end - a.start) + (b.end - b.start) - shared
    return shared / union if union else 0.0


def test_what_has_nothing_to_divide_by_is_none():
    found = event_agreement([VideoEvents([], [], 5.0)], CLASSES)["together"]
    assert found["matched"]["0.5"] == {"pairs": 0, "precision": None, "recall": None, "f1": None}
    assert found["mean_iou"] is None and found["seconds"]["iou"] is None
    assert frame_agreement([], CLASSES)["together"] == {"observed": None, "expected": None, "kappa": None}

"""Cohen's kappa compared with scikit-learn's, and events that the other side cannot have."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents
from lstr.metrics.event_errors import measure_kappa, without_ambiguous

CLASSES = ("Background", "hug", "point", "Ambiguous")


def cut(*spans, label="hug"):
    return [Segment(start, end, label) for start, end in spans]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ([(0, 6.25)], [(0, 5), (6.25, 8.75)], 0.4),  # 50 chunks: the example of the article of kappa in Wikipedia
        ([(0, 12.5)], [(0, 12.5)], None),  # both say one thing throughout
        ([(0, 12.5)], [], 0.0),
        ([(0, 12.5)], [(0, 6)], 0.0),  # one of them never changes
        ([(0, 6)], [(0, 6)], 1.0),
    ],
)
def test_kappa_made_by_hand(one, other, expected):
    found = measure_kappa([VideoEvents(cut(*one), cut(*other), 12.5)], ("hug",))
    assert found["chunks"] == 50
    assert found["together"] == found["per_class"]["hug"]
    assert found["together"] is expected is None or found["together"] == pytest.approx(expected)


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
    found = measure_kappa([VideoEvents(*one, seconds=7.0) for one in drawn], CLASSES)
    pairs = [
        (a, b)
        for truth, others in drawn
        for a, b in zip(plain_frames(truth, 7.0), plain_frames(others, 7.0), strict=True)
        if "?" not in (a, b)
    ]
    assert found["chunks"] == len(pairs)
    if not pairs:
        assert found["together"] is None
        return
    one, other = zip(*pairs, strict=True)
    assert same_kappa(found["together"], one, other)
    for label in ("hug", "point"):
        assert same_kappa(found["per_class"][label], *([label in f.split() for f in side] for side in (one, other)))


def same_kappa(found, one, other) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nothing to divide by, which is None here
        expected = cohen_kappa_score(list(one), list(other))
    return found is None if np.isnan(expected) else found == pytest.approx(expected)


def test_no_video_has_no_kappa():
    assert measure_kappa([], ("hug",)) == {"chunks": 0, "together": None, "per_class": {"hug": None}}


def test_events_that_are_ambiguous_to_the_other_side_are_dropped():
    unsure = cut((10, 20), label="Ambiguous")
    one, other = [*cut((2, 4), (30, 30)), *unsure], cut((2, 4), (9, 12), (9, 10.5), (15, 15), (30, 30))
    kept = without_ambiguous(VideoEvents(one, other, 40.0))
    assert (kept.truth, kept.detections) == (one, cut((2, 4), (9, 10.5), (30, 30)))
    kept = without_ambiguous(VideoEvents(other, one, 40.0))
    assert (kept.truth, kept.detections) == (cut((2, 4), (9, 10.5), (30, 30)), one)
    near = VideoEvents([*cut((2, 4)), *cut((4, 8), label="Ambiguous")], cut((2, 7)), 10.0)
    assert without_ambiguous(near) == near, "the other has an event of the action there"

"""Cohen's kappa compared with scikit-learn's, and events that the other side cannot have."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from lstr.metrics.actions import VideoEvents
from lstr.metrics.event_errors import measure_kappa, without_ambiguous
from tests.support.drawn import CLASSES, cut, drawn_segments

sides = st.tuples(*[st.lists(drawn_segments("hug", "point", "Ambiguous"), max_size=4)] * 2)


def plain_frames(segments, seconds):
    """The actions of each quarter second, as text; ? where it is ambiguous."""
    frames = []
    for k in range(round(4 * seconds)):
        on = {s.label for s in segments if s.start < (k + 1) / 4 and s.end > k / 4}
        frames.append("?" if "Ambiguous" in on else " ".join(sorted(on)))
    return frames


@given(st.lists(sides, max_size=3))
def test_kappa_is_that_of_scikit_learn(drawn):
    found = measure_kappa([VideoEvents(*one, seconds=7.0) for one in drawn], CLASSES)
    frames = [(plain_frames(truth, 7.0), plain_frames(others, 7.0)) for truth, others in drawn]
    pairs = [pair for sides in frames for pair in zip(*sides, strict=True) if "?" not in pair]
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


def test_events_that_are_ambiguous_to_the_other_side_are_dropped():
    unsure = cut((10, 20), label="Ambiguous")
    one, other = [*cut((2, 4), (30, 30)), *unsure], cut((2, 4), (9, 12), (9, 10.5), (15, 15), (30, 30))
    kept = without_ambiguous(VideoEvents(one, other, 40.0))
    assert (kept.truth, kept.detections) == (one, cut((2, 4), (9, 10.5), (30, 30)))
    kept = without_ambiguous(VideoEvents(other, one, 40.0))
    assert (kept.truth, kept.detections) == (cut((2, 4), (9, 10.5), (30, 30)), one)
    near = VideoEvents([*cut((2, 4)), *cut((4, 8), label="Ambiguous")], cut((2, 7)), 10.0)
    assert without_ambiguous(near) == near, "the other has an event of the action there"

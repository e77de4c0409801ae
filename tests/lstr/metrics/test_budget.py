"""Time budgets and transitions, made by hand, and beside plain loops."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.labels.segment import Segment
from lstr.metrics.budget import of_states, time_budget, transitions, unobserved


def test_a_budget_made_by_hand():
    spans = [np.array([[1.0, 3.0], [10.0, 14.0]]), np.zeros((0, 2)), np.array([[5.0, 6.0]])]
    assert time_budget(spans, [20.0, 30.0, 10.0]) == {
        "observed": 60.0,
        "count": 3,
        "seconds": 7.0,
        "mean": pytest.approx(7 / 3),
        "median": 2.0,
        "share": pytest.approx(7 / 60),
        "latency": 3.0,
        "per_minute": 3.0,
        "videos": 2,
    }
    nothing = time_budget([], [])
    assert nothing["count"] == 0 and nothing["mean"] is nothing["share"] is nothing["latency"] is None


def test_a_bin_has_events_that_begin_in_it_and_the_seconds_that_lie_in_it():
    spans, seconds = [np.array([[8.0, 12.0], [13.0, 13.5]])], [25.0]
    first, second, last = (time_budget(spans, seconds, start, start + 10) for start in (0, 10, 20))
    assert (first["count"], first["seconds"], first["mean"], first["latency"]) == (1, 2.0, 4.0, 8.0)
    assert (second["count"], second["seconds"], second["latency"], second["share"]) == (1, 2.5, 3.0, 0.25)
    assert (last["count"], last["observed"], last["share"]) == (0, 5.0, 0.0)


def test_events_at_once_share_their_time_once():
    """As two animals that sleep: each sleeps, and the share is of the time in which any does."""
    found = time_budget([np.array([[0.0, 6.0], [4.0, 8.0]])], [10.0])
    assert (found["seconds"], found["share"]) == (10.0, 0.8)


def test_time_that_nobody_labelled_was_not_watched():
    """By hand: ambiguous from 2 to 6 and from 8 on, but for an action from 5 to 9."""
    video = [Segment(2, 6, "Ambiguous"), Segment(5, 9, "a"), Segment(8, 20, "Ambiguous"), Segment(3, 3, "a")]
    assert unobserved(video, 12.0).tolist() == [[2, 3], [3, 5], [9, 12]]
    assert unobserved(video[:1], 1.0).tolist() == unobserved([], 5.0).tolist() == []
    spans, gaps = [np.array([[5.0, 9.0]])], [unobserved([*video[:3]], 12.0)]
    found = time_budget(spans, [12.0], gaps=gaps)
    assert (found["observed"], found["share"], found["latency"]) == (6.0, pytest.approx(4 / 6), 2.0)
    first, last = (time_budget(spans, [12.0], start, start + 4, gaps) for start in (0, 8))
    assert (first["observed"], first["count"], last["observed"], last["share"]) == (2.0, 0, 1.0, 1.0)
    nothing = time_budget(spans, [12.0], 9.0, 12.0, gaps)
    assert nothing["observed"] == 0.0 and nothing["share"] is nothing["per_minute"] is None


def test_nothing_follows_across_time_that_nobody_labelled():
    video = [Segment(0, 1, "a"), Segment(5, 6, "b"), Segment(8, 9, "a")]
    for gaps, counts in (
        ([[2.0, 4.0]], [[0, 0, 0], [0, 0, 1], [1, 0, 0]]),
        ([[1.0, 1.25], [4.0, 4.0], [8.5, 20.0]], [[0, 0, 1], [0, 0, 1], [1, 1, 0]]),
        ([[0.0, 0.5], [6.1, 8.0]], [[0, 0, 1], [0, 0, 0], [0, 1, 0]]),
    ):
        assert transitions([video], "ab", pauses=True, gaps=[np.array(gaps)]).tolist() == counts
    plain = transitions([video], "ab", gaps=[np.array([[2.0, 4.0]])])
    assert plain.tolist() == [[0, 0], [1, 0]]


times = st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda drawn: (drawn[0] / 2, sum(drawn) / 2))


@given(st.lists(st.lists(times, max_size=5), max_size=3), st.integers(1, 7))
def test_bins_add_up(drawn, width):
    spans, seconds = [np.array(one, dtype=float).reshape(-1, 2) for one in drawn], [21.0] * len(drawn)
    whole = time_budget(spans, seconds)
    bins = [time_budget(spans, seconds, start, start + width) for start in range(0, 21, width)]
    for name in ("observed", "count", "seconds"):
        assert sum(one[name] for one in bins) == pytest.approx(whole[name])
    on = [{k for start, end in one for k in range(round(2 * start), round(2 * end))} for one in drawn]
    assert (whole["share"] or 0) * whole["observed"] == pytest.approx(sum(map(len, on)) / 2)


def test_what_follows_what():
    video = [Segment(0, 2, "a"), Segment(2.1, 3, "b"), Segment(6, 7, "a"), Segment(6.5, 9, "b"), Segment(9, 10, "x")]
    plain = transitions([video, video[:2]], ("a", "b"))
    assert plain.tolist() == [[0, 3], [1, 0]]
    with_pauses = transitions([video, video[:2]], ("a", "b"), pauses=True)
    assert with_pauses.tolist() == [[0, 3, 0], [0, 0, 1], [1, 0, 0]]
    assert of_states(("a", "b", "pause"), with_pauses)["probabilities"] == [[0, 1, 0], [0, 0, 1], [1, 0, 0]]
    assert of_states("a", transitions([video[:1]], ("a",))) == {
        "states": ["a"],
        "counts": [[0]],
        "probabilities": [[None]],
    }


def test_a_pause_follows_what_ended_last():
    """`a` is on while `b` comes and goes: the pause begins where `a` ends."""
    video = [Segment(0, 10, "a"), Segment(2, 3, "b"), Segment(12, 13, "b")]
    assert transitions([video], ("a", "b"), pauses=True).tolist() == [[0, 1, 1], [0, 0, 0], [0, 1, 0]]
    assert transitions([video[:2]], ("a", "b"), pauses=True)[:, 2].sum() == 0
    near = [Segment(0, 1, "a"), Segment(1.25, 2, "b")]
    assert transitions([near], ("a", "b"), pauses=True).tolist() == [[0, 1, 0], [0, 0, 0], [0, 0, 0]]

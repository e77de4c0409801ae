"""Scores to events."""

import itertools
import operator
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.checkpoint import load
from lstr.errors import ConfigError
from lstr.timeline import DEFAULT, Thresholds, Timeline, segments_in, thresholds_of

CLASSES = ("Background", "kick", "punch")
CHUNK = 0.25


def play(scores, thresholds=DEFAULT) -> tuple[list, Timeline]:
    timeline = Timeline(CLASSES, thresholds)
    events = []
    for k, row in enumerate(scores):
        events += timeline.push((k + 1) * CHUNK, np.asarray(row))
    events += timeline.finish(len(scores) * CHUNK)
    return events, timeline


def kicks(scores, **rules):
    """Events of one class as (event, time, start, end)."""
    events, _ = play([[1 - s, s, 0] for s in scores], Thresholds(**rules))
    return [(e.event, e.time, e.start, e.end) for e in events]


def test_delays_of_minimum_lengths_and_merged_gaps():
    assert kicks([0, 0.9, 0.9, 0, 0.9, 0.9, 0.9, 0.9, 0], min_length=0.75) == [
        ("started", 1.75, 1.0, None), ("ended", 2.25, 1.0, 2.0)
    ]  # fmt: skip
    assert kicks([0.9, 0, 0, 0.9, 0, 0, 0], merge_gap=0.5) == [("started", 0.25, 0, None), ("ended", 1.75, 0, 1.0)]
    rules = Thresholds(min_length=0.75, merge_gap=0.5)
    assert rules.delays() == {"started": 0.5, "ended": 0.5}
    events, _ = play([[0, s, 0] for s in (0.6, 0.36, 0.36, 0.1)], Thresholds(min_length=0.75))
    scores = [event.score for event in events]
    assert scores == [0.6, pytest.approx(0.44)], (
        "that of a start is the one that reached `on`, though the mean is lower"
    )


def test_what_is_on_when_the_source_ends_is_an_action_however_short():
    rules = {"min_length": 1.0, "merge_gap": 0.25}
    assert kicks([0, 0, 0.96], **rules) == [("started", 0.75, 0.5, None), ("ended", 0.75, 0.5, 0.75)]
    assert kicks([0, 0.96, 0.1], **rules) == [], "it was off at the end"
    timeline = Timeline(CLASSES, Thresholds(min_length=1.0))
    timeline.push(0.25, np.array([1, 0, 0]), ahead(0.9))
    timeline.push(0.5, np.array([0, 0.9, 0]), ahead(0.9))
    assert [event.event for event in timeline.finish(0.5)] == ["started", "ended"], "what was expected has come"


def test_with_highest_only_one_action_is_on():
    scores = [[0, 0.6, 0.2], [0, 0.7, 0.8], [0, 0.7, 0.8], [0.9, 0.6, 0.6], [0, 0.7, 0.1]]
    events, _ = play(scores, Thresholds(highest=True))
    assert [(s.label, s.start, s.end) for s in segments_in(events)] == [
        ("kick", 0, 0.25), ("punch", 0.25, 1.0), ("kick", 0.75, 1.25)
    ], "equal scores both count, and background has no part"  # fmt: skip
    joined, _ = play(scores, Thresholds(merge_gap=0.5, highest=True))
    kick = next(s for s in segments_in(joined) if s.label == "kick")
    assert (kick.start, kick.end) == (0, 1.25)
    assert kick.score == pytest.approx(np.mean([0.6, 0.7, 0.7, 0.6, 0.7])), "the score is the action's own"
    lower, _ = play([[0, 0.9, 0.6]], {"kick": Thresholds(highest=True), "punch": Thresholds()})
    assert [s.label for s in segments_in(lower)] == ["kick", "punch"], "each class has its own rule"
    assert "highest" not in DEFAULT.stored() and "highest" not in DEFAULT.to_dict(), "earlier versions refuse it"
    coming = Timeline(CLASSES, Thresholds(highest=True)).push(0.25, np.zeros(3), ahead(0.7, 0.8) + [0, 0, 0.6])
    assert [event.label for event in coming] == ["kick"], "nor is another one expected"


def test_each_class_has_its_own_thresholds():
    rules = {"kick": Thresholds(0.9, 0.8), "punch": Thresholds(0.2, 0.1)}
    events, timeline = play([[0, 0.7, 0.3]] * 2, rules)
    assert [(e.event, e.label) for e in events] == [("started", "punch"), ("ended", "punch")]
    described = timeline.describe()
    assert described.keys() == {"kick", "punch"} and described["kick"]["on"] == 0.9
    assert play([[0, 0.7, 0.3]] * 2, {"punch": Thresholds(0.2, 0.1)})[0][0].label == "kick", "the default for the rest"


def test_chunks_that_a_live_source_lost_end_an_action():
    timeline = Timeline(CLASSES, Thresholds(merge_gap=0.25))
    kick = np.array([0, 0.9, 0])
    timeline.push(0.25, kick)
    events = timeline.push(10.0, kick)
    assert [(e.event, e.start, e.end) for e in events] == [("ended", 0, 0.25), ("started", 9.75, None)]


def test_what_has_ended_is_not_kept():
    """Of a camera that runs for days; and a list that one thread empties is not filled by another."""

    def size_after(n_actions: int) -> int:
        timeline = Timeline(CLASSES)
        for k in range(2 * n_actions):
            timeline.push((k + 1) * CHUNK, np.array([0, 0.9 * (k % 2), 0]), ahead(0.1, 0.6 * (k % 2)))
        return len(pickle.dumps(timeline))

    assert size_after(1000) < size_after(10) + 50, "but for a larger number"


def ahead(*kick):
    return np.array([[1 - s, s, 0] for s in kick])


@given(
    st.lists(st.tuples(*[st.sampled_from([0.1, 0.4, 0.6])] * 4), max_size=40),
    st.integers(1, 3),
    st.integers(0, 2),
)
def test_what_is_expected_starts_or_lapses(rows, min_chunks, gap_chunks):
    timeline = Timeline(("Background", "kick"), Thresholds(min_length=min_chunks / 4, merge_gap=gap_chunks / 4))
    said = []
    for k, (now, *later) in enumerate(rows):
        said += timeline.push((k + 1) / 4, np.array([0.0, now]), ahead(*later))
    said += timeline.finish(len(rows) / 4)
    open_since = None
    for event in said:
        if event.event == "expected":
            assert open_since is None
            open_since = event
        elif event.event == "lapsed":
            assert (event.start, event.score) == (open_since.start, open_since.score) and event.time >= open_since.time
            open_since = None
        elif event.event == "started":
            open_since = None
    assert open_since is None


@pytest.mark.parametrize(
    "rules", [{"on": 0.3, "off": 0.5}, {"off": -0.1}, {"min_length": -1}, {"merge_gap": np.nan}, {"backdate": -1}]
)
def test_thresholds_that_contradict_themselves(rules):
    with pytest.raises(ConfigError) as caught:
        Thresholds(**rules)
    assert caught.value.hint and caught.value.exit_code == 2


def test_a_checkpoints_thresholds_and_those_given(small_set):
    loaded = load(small_set.checkpoint)
    assert thresholds_of(loaded) == Thresholds()
    assert thresholds_of(loaded, {"on": 0.2, "off": None}) == Thresholds(0.2, 0.2)
    assert thresholds_of(loaded, {"off": 0.8}) == Thresholds(0.8, 0.8)
    calibrated = replace(loaded, extra={"thresholds": {"wave": {"on": 0.7, "off": 0.6}}})
    own = thresholds_of(calibrated, {"merge_gap": 0.5})
    assert own["wave"] == Thresholds(0.7, 0.6, merge_gap=0.5) and own["jump"] == Thresholds(merge_gap=0.5)
    alone = replace(loaded, extra={"thresholds": {"wave": Thresholds(highest=True).stored()}})
    assert thresholds_of(alone)["wave"].highest is True and not thresholds_of(alone)["jump"].highest
    assert thresholds_of(alone, {"highest": False})["wave"] == Thresholds()


levels = st.sampled_from([0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0])
rows = st.lists(st.lists(levels, min_size=3, max_size=3), min_size=1, max_size=40)
rules = st.builds(
    lambda pair, length, gap, backdate: Thresholds(max(pair), min(pair), length, gap, backdate=backdate),
    st.tuples(levels, levels),
    st.sampled_from([0, 0.25, 0.4, 0.5, 1.0, 2.0]),
    st.sampled_from([0, 0.2, 0.25, 0.5, 1.0]),
    st.sampled_from([0, 0.25, 0.8, 2.0]),
)


def offline(curve, rules: Thresholds) -> list[tuple[float, float]]:
    """The definition, from the whole curve: runs by hysteresis, near ones merged, then short ones dropped, and starts
    backdated, but not before the end of the segment before.

    What is on at the end is kept however short.
    """
    on, runs = False, []
    for k, score in enumerate(curve):
        was, on = on, score >= (rules.off if on else rules.on)
        if on and was:
            runs[-1][1] = k + 1
        elif on:
            runs.append([k, k + 1])
    merged = []
    for first, end in runs:
        if merged and (first - merged[-1][1]) * CHUNK <= rules.merge_gap:
            merged[-1][1] = end
        else:
            merged.append([first, end])
    kept = [(a, b) for a, b in merged if (b - a) * CHUNK >= rules.min_length or b == len(curve)]
    backdate, ends = int(rules.backdate / CHUNK), [0, *(b for _, b in kept)]
    return [(max(a - backdate, end) * CHUNK, b * CHUNK) for (a, b), end in zip(kept, ends, strict=False)]


@given(rows, rules)
def test_the_segments_are_those_of_the_whole_curve(scores, rules):
    timeline = Timeline(CLASSES, rules)
    for _ in range(2):
        events = [e for k, row in enumerate(scores) for e in timeline.push((k + 1) * CHUNK, np.asarray(row))]
        events += timeline.finish(len(scores) * CHUNK)
        assert events == play(scores, rules)[0]
    for c, label in enumerate(CLASSES[1:], 1):
        segments = sorted((s.start, s.end) for s in segments_in(events) if s.label == label)
        assert segments == offline([row[c] for row in scores], rules)


@given(rows, rules)
def test_what_never_happens_together_does_not_by_backdating(scores, rules):
    """With `highest` starts that are moved end at what was told of other actions before."""
    moved = [e for e in play(scores, replace(rules, highest=True))[0] if e.event == "started"]
    plain = [e for e in play(scores, replace(rules, highest=True, backdate=0))[0] if e.event == "started"]
    ended = [e for e in play(scores, replace(rules, highest=True))[0] if e.event == "ended"]
    for event, own in zip(moved, plain, strict=True):
        assert (event.time, event.label, event.score) == (own.time, own.label, own.score)
        assert own.start - rules.backdate <= event.start <= own.start
        if event.start < own.start:
            before = [e.end for e in ended if e.end <= own.start and e.time < own.time]
            assert event.start >= max(before, default=0.0)


def test_a_start_is_backdated_into_no_chunks_that_were_lost():
    timeline = Timeline(CLASSES, Thresholds(backdate=1.0))
    timeline.push(0.25, np.array([1, 0, 0]))
    (started,) = timeline.push(2.0, np.array([0, 1, 0]))
    assert started.start == 1.75, "what was before it nobody has seen"
    (first,) = Timeline(CLASSES, Thresholds(backdate=1.0)).push(10.0, np.array([0, 1, 0]))
    assert first.start == 9.75


@given(rows, rules)
def test_events_are_in_order_and_never_overlap_within_a_class(scores, rules):
    events, _ = play(scores, rules)
    assert [e.time for e in events] == sorted(e.time for e in events)
    for label in CLASSES:
        own = [e for e in events if e.label == label]
        assert [e.event for e in own] == ["started", "ended"] * (len(own) // 2)
        for started, ended in zip(own[::2], own[1::2], strict=True):
            assert started.start == ended.start < ended.end <= ended.time and started.start < started.time
            assert started.time <= ended.time
        apart = operator.le if rules.backdate else operator.lt
        assert all(apart(a.end, b.start) for a, b in itertools.pairwise(own[1::2]))
    assert len(events) == 2 * len(segments_in(events))


@given(rows, rows, rules)
def test_nothing_said_changes_when_the_future_does(past, future, rules):
    def said(scores):
        timeline = Timeline(CLASSES, rules)
        return [timeline.push((k + 1) * CHUNK, np.asarray(row)) for k, row in enumerate(scores)]

    assert said(past + future)[: len(past)] == said(past)


def test_what_was_on_at_the_end_says_so():
    """Not what had ended, nor what had fallen below its threshold and may only have paused."""
    rules = Thresholds(merge_gap=1)
    for curve, told in (([0, 0.9, 0.9], [True]), ([0.9, 0, 0, 0, 0, 0, 0], [False]), ([0.9, 0], [False])):
        events, _ = play([[1 - s, s, 0] for s in curve], rules)
        ended = [event for event in events if event.event == "ended"]
        assert [event.still_on for event in ended] == told
        assert [event.to_dict().get("still_on", False) for event in ended] == told

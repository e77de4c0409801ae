"""Events and segments from scores."""

import itertools
import operator
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr import checkpoint
from lstr.errors import ConfigError
from lstr.timeline import DEFAULT, Thresholds, Timeline, segments_in, thresholds_of
from tests.support.tiny_models import tiny

CLASSES = ("Background", "kick", "punch")
CHUNK = 0.25


def play(scores, thresholds=DEFAULT, timeline=None):
    """The events of one source, from scores (L, C), in a new timeline or the given one."""
    timeline = timeline or Timeline(CLASSES, thresholds)
    events = [e for k, row in enumerate(scores) for e in timeline.push((k + 1) * CHUNK, np.asarray(row))]
    return events + timeline.finish(len(scores) * CHUNK)


def of_kick(*scores):
    return np.array([[1 - s, s, 0] for s in scores])


def kicks(scores, **rules):
    """Events of one class as (event, time, start, end)."""
    return [(e.event, e.time, e.start, e.end) for e in play(of_kick(*scores), Thresholds(**rules))]


def test_delays_of_minimum_lengths_and_merged_gaps():
    assert kicks([0, 0.9, 0.9, 0, 0.9, 0.9, 0.9, 0.9, 0], min_length=0.75) == [
        ("started", 1.75, 1.0, None), ("ended", 2.25, 1.0, 2.0)
    ]  # fmt: skip
    assert kicks([0.9, 0, 0, 0.9, 0, 0, 0], merge_gap=0.5) == [("started", 0.25, 0, None), ("ended", 1.75, 0, 1.0)]
    assert Thresholds(min_length=0.75, merge_gap=0.5).delays() == {"started": 0.5, "ended": 0.5}
    started, ended = play(of_kick(0.6, 0.36, 0.36, 0.1), Thresholds(min_length=0.75))
    assert (started.score, ended.score) == (0.6, pytest.approx(0.44)), "that reached the start threshold; the mean"


def test_an_expected_action_that_starts_at_the_end_does_not_lapse():
    timeline = Timeline(CLASSES, Thresholds(min_length=1.0))
    timeline.push(0.25, np.array([1, 0, 0]), of_kick(0.9))
    timeline.push(0.5, np.array([0, 0.9, 0]), of_kick(0.9))
    assert [event.event for event in timeline.finish(0.5)] == ["started", "ended"]


def test_with_highest_a_single_action_is_active():
    scores = [[0, 0.6, 0.2], [0, 0.7, 0.8], [0, 0.7, 0.8], [0.9, 0.6, 0.6], [0, 0.7, 0.1]]
    assert [(s.label, s.start, s.end) for s in segments_in(play(scores, Thresholds(highest=True)))] == [
        ("kick", 0, 0.25), ("punch", 0.25, 1.0), ("kick", 0.75, 1.25)
    ], "equal scores both count, and the background does not"  # fmt: skip
    joined = play(scores, Thresholds(merge_gap=0.5, highest=True))
    kick = next(s for s in segments_in(joined) if s.label == "kick")
    assert (kick.start, kick.end) == (0, 1.25)
    assert kick.score == pytest.approx(np.mean([0.6, 0.7, 0.7, 0.6, 0.7])), "the mean of the action's scores"
    by_class = {"kick": Thresholds(highest=True), "punch": Thresholds()}
    assert [s.label for s in segments_in(play([[0, 0.9, 0.6]], by_class))] == ["kick", "punch"]
    assert "highest" not in DEFAULT.stored() and "highest" not in DEFAULT.to_dict(), "earlier versions refuse it"
    coming = Timeline(CLASSES, Thresholds(highest=True)).push(0.25, np.zeros(3), of_kick(0.7, 0.8) + [0, 0, 0.6])
    assert [event.label for event in coming] == ["kick"], "only the highest is expected"


def test_each_class_has_its_own_thresholds():
    rules = {"kick": Thresholds(0.9, 0.8), "punch": Thresholds(0.2, 0.1)}
    scores = [[0, 0.7, 0.3]] * 2
    assert [(e.event, e.label) for e in play(scores, rules)] == [("started", "punch"), ("ended", "punch")]
    described = Timeline(CLASSES, rules).describe()
    assert described.keys() == {"kick", "punch"} and described["kick"]["on"] == 0.9
    assert play(scores, {"punch": Thresholds(0.2, 0.1)})[0].label == "kick", "a class without rules has the defaults"


def test_lost_chunks_of_a_live_source_end_an_action_and_are_not_its_start():
    timeline, (kick,) = Timeline(CLASSES, Thresholds(merge_gap=0.25, backdate=1.0)), of_kick(0.9)
    assert [event.start for event in timeline.push(10.0, kick)] == [9.75]
    events = timeline.push(20.0, kick)
    assert [(e.event, e.start, e.end) for e in events] == [("ended", 9.75, 10), ("started", 19.75, None)]


def test_memory_does_not_grow_with_the_number_of_actions():
    def size_after(n_actions: int) -> int:
        timeline = Timeline(CLASSES)
        for k in range(2 * n_actions):
            timeline.push((k + 1) * CHUNK, np.array([0, 0.9 * (k % 2), 0]), of_kick(0.1, 0.6 * (k % 2)))
        return len(pickle.dumps(timeline))

    assert size_after(1000) < size_after(10) + 50, "the number of the chunk may be longer"


@given(st.lists(st.tuples(*[st.sampled_from([0.1, 0.4, 0.6])] * 4), max_size=40), st.integers(1, 3), st.integers(0, 2))
def test_an_expected_action_starts_or_lapses(rows, min_chunks, gap_chunks):
    timeline = Timeline(("Background", "kick"), Thresholds(min_length=min_chunks / 4, merge_gap=gap_chunks / 4))
    events = []
    for k, (now, *later) in enumerate(rows):
        events += timeline.push((k + 1) / 4, np.array([0.0, now]), of_kick(*later))
    expected = None
    for event in events + timeline.finish(len(rows) / 4):
        if event.event == "expected":
            assert expected is None
            expected = event
        elif event.event == "lapsed":
            assert (event.start, event.score) == (expected.start, expected.score) and event.time >= expected.time
            expected = None
        elif event.event == "started":
            expected = None
    assert expected is None


@pytest.mark.parametrize(
    "rules", [{"on": 0.3, "off": 0.5}, {"off": -0.1}, {"min_length": -1}, {"merge_gap": np.nan}, {"backdate": -1}]
)
def test_invalid_thresholds_are_refused(rules):
    with pytest.raises(ConfigError):
        Thresholds(**rules)
    with pytest.raises(ConfigError, match="sing"):
        Timeline(CLASSES, {"kick": DEFAULT, "sing": DEFAULT})


def test_thresholds_of_a_checkpoint_and_their_overrides(tmp_path):
    checkpoint.save(tmp_path / "a.pt", tiny(kind="rnn", n_classes=3), CLASSES, None, {})
    loaded = checkpoint.load(tmp_path / "a.pt")
    assert thresholds_of(loaded) == Thresholds()
    assert thresholds_of(loaded, {"on": 0.2, "off": None}) == Thresholds(0.2, 0.2)
    assert thresholds_of(loaded, {"off": 0.8}) == Thresholds(0.8, 0.8)
    calibrated = replace(loaded, extra={"thresholds": {"kick": {"on": 0.7, "off": 0.6}}})
    rules = thresholds_of(calibrated, {"merge_gap": 0.5})
    assert rules["kick"] == Thresholds(0.7, 0.6, merge_gap=0.5) and rules["punch"] == Thresholds(merge_gap=0.5)
    highest = replace(loaded, extra={"thresholds": {"kick": Thresholds(highest=True).stored()}})
    assert thresholds_of(highest)["kick"].highest is True and not thresholds_of(highest)["punch"].highest
    assert thresholds_of(highest, {"highest": False})["kick"] == Thresholds()


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
    """The definition: runs by hysteresis, merged across gaps, without short ones except at the end, then backdated."""
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
    long = [(a, b) for a, b in merged if (b - a) * CHUNK >= rules.min_length or b == len(curve)]
    backdate, ends = int(rules.backdate / CHUNK), [0, *(b for _, b in long)]
    return [(max(a - backdate, end) * CHUNK, b * CHUNK) for (a, b), end in zip(long, ends, strict=False)]


@given(rows, rules)
def test_segments_equal_the_definition_on_the_whole_curve(scores, rules):
    timeline = Timeline(CLASSES, rules)
    events = play(scores, timeline=timeline)
    assert events == play(scores, timeline=timeline), "a finished timeline can be used again"
    for c, label in enumerate(CLASSES[1:], 1):
        segments = sorted((s.start, s.end) for s in segments_in(events) if s.label == label)
        assert segments == offline([row[c] for row in scores], rules)


@given(rows, rules)
def test_events_of_a_class_are_in_order_and_never_overlap(scores, rules):
    events = play(scores, rules)
    assert [e.time for e in events] == sorted(e.time for e in events)
    for label in CLASSES:
        of_class = [e for e in events if e.label == label]
        assert [e.event for e in of_class] == ["started", "ended"] * (len(of_class) // 2)
        for started, ended in zip(of_class[::2], of_class[1::2], strict=True):
            assert started.start == ended.start < ended.end <= ended.time and started.start < started.time <= ended.time
        in_order = operator.le if rules.backdate else operator.lt
        assert all(in_order(a.end, b.start) for a, b in itertools.pairwise(of_class[1::2]))
    assert len(events) == 2 * len(segments_in(events))


@pytest.mark.parametrize(
    "curve, still_active", [([0, 0.9, 0.9], True), ([0.9, 0, 0, 0, 0, 0, 0], False), ([0.9, 0], False)]
)
def test_only_an_action_above_its_end_threshold_is_still_active_at_the_end(curve, still_active):
    _, ended = play(of_kick(*curve), Thresholds(merge_gap=1))
    assert ended.still_active is ended.to_dict().get("still_active", False) is still_active

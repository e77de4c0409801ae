"""Scores to events."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipelines.timeline import Thresholds, Timeline

CLASSES = ("Background", "kick", "punch")


def play(scores) -> tuple[list, Timeline]:
    timeline = Timeline(CLASSES)
    events = []
    for k, row in enumerate(scores):
        events += timeline.push((k + 1) * 0.25, np.asarray(row))
    events += timeline.finish(len(scores) * 0.25)
    return events, timeline


def test_hysteresis():
    kick = [0.1, 0.6, 0.4, 0.45, 0.2, 0.4, 0.1]
    events, timeline = play([[1 - s, s, 0] for s in kick])
    assert [(e.event, e.time, e.start, e.end) for e in events] == [
        ("started", 0.5, 0.25, None),
        ("ended", 1.25, 0.25, 1.0),
    ]
    assert timeline.segments == [
        {"label": "kick", "start": 0.25, "end": 1.0, "score": pytest.approx(np.mean([0.6, 0.4, 0.45]), abs=1e-4)}
    ]


def test_two_at_once_and_the_end_flushes():
    events, timeline = play([[0, 0.9, 0.9]] * 2)
    assert [(e.event, e.label) for e in events] == [
        ("started", "kick"), ("started", "punch"), ("ended", "kick"), ("ended", "punch")
    ]  # fmt: skip
    assert {s["end"] for s in timeline.segments} == {0.5}


def test_background_is_no_event():
    assert play([[1.0, 0, 0]] * 5)[0] == []


rows = st.lists(st.lists(st.floats(0, 1, width=32), min_size=3, max_size=3), min_size=1, max_size=40)


@given(rows, rows)
def test_properties(past, future):
    events, timeline = play(past)
    for label in CLASSES:
        segments = [s for s in timeline.segments if s["label"] == label]
        assert all(s["start"] < s["end"] for s in segments)
        assert all(a["end"] <= b["start"] for a, b in zip(segments, segments[1:], strict=False))
    started = [e for e in events if e.event == "started"]
    assert len(started) * 2 == len(events) and len(started) == len(timeline.segments)
    # nothing said changes when the future does
    end = len(past) * 0.25
    longer = [e for e in play(past + future)[0] if e.time <= end]
    assert longer == [e for e in events if e in longer]
    assert all(e.score >= Thresholds().on for e in started)

"""Our own JSON: timelines and event lines, there and back."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.errors import LabelsError
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.timelines import from_jsonl, from_timeline, to_events, to_timeline
from tests.support.annotated import AWKWARD, CLASSES, scored, videos


def test_a_timeline_there_and_back():
    timeline = json.loads(json.dumps(to_timeline("a b", AWKWARD, CLASSES)))
    assert timeline["chunks"] == 14801 and timeline["classes"][0] == "Background"
    video, classes = from_timeline(timeline)
    assert video == AWKWARD and classes == ("Background", *CLASSES)


@given(videos(1000, score=st.sampled_from([None, 0.5]), least=0))
def test_event_lines_lose_nothing_they_can_hold(video):
    events = to_events(video)
    assert [event["time"] for event in events] == sorted(event["time"] for event in events)
    assert scored(from_jsonl("".join(f"{json.dumps(event)}\n" for event in events))) == scored(video)


def test_lines_of_a_run_that_was_killed():
    """The action that was on lasts until the last whole line; half a line is left out."""
    text = (
        '{"chunk": 0, "time": 0.25, "label": "jump", "score": 0.9, "top": [], "latency_ms": 1}\n'
        '{"event": "started", "label": "jump", "time": 0.25, "start": 0.0, "score": 0.9}\n'
        '{"event": "expected", "label": "wave", "time": 0.25, "start": 0.5, "score": 0.6}\n'
        '{"chunk": 1, "time": 0.5, "label": "jump", "score": 0.9, "top": [], "latency_ms": 1}\n{"chunk": 2, "ti'
    )
    assert from_jsonl(text).segments == (Segment(0, 0.5, "jump", 0.9),)
    with pytest.raises(LabelsError, match="Line 1 is not a line"):
        from_jsonl("{}\n" + text)


def test_a_broken_timeline():
    with pytest.raises(LabelsError) as caught:
        from_timeline({"format": "lstr-timeline/1"})
    assert caught.value.hint

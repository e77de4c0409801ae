"""Our own JSON: timelines and event lines, there and back."""

import pytest

from lstr.errors import LabelsError
from lstr.labels.segment import Segment
from tests.support.annotated import parse


def test_lines_of_a_run_that_was_killed():
    """The action that was on lasts until the last whole line; half a line is left out."""
    text = (
        '{"chunk": 0, "time": 0.25, "label": "jump", "score": 0.9, "top": [], "latency_ms": 1}\n'
        '{"event": "started", "label": "jump", "time": 0.25, "start": 0.0, "score": 0.9}\n'
        '{"event": "expected", "label": "wave", "time": 0.25, "start": 0.5, "score": 0.6}\n'
        '{"chunk": 1, "time": 0.5, "label": "jump", "score": 0.9, "top": [], "latency_ms": 1}\n{"chunk": 2, "ti'
    )
    assert parse("jsonl", text).first[1].segments == (Segment(0, 0.5, "jump", 0.9),)
    with pytest.raises(LabelsError, match="Line 1 is not a line"):
        parse("jsonl", "{}\n" + text)


def test_a_broken_timeline():
    with pytest.raises(LabelsError) as caught:
        parse("json", {"format": "lstr-timeline/1"})
    assert caught.value.hint

"""Sentences about events: what they name, not their words."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lstr.pipelines.watching.event import describe_rate, format_seconds
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.notifications import describe


@pytest.mark.parametrize("source", ["hall", "the yard", "cam2", "a\x1b[2Jb\nc"])
@pytest.mark.parametrize("ended", [None, "action", "source"])
def test_a_sentence_names_action_source_time_and_length(event_of, source, ended):
    event = event_of(source=source, false_alarms=1 / 24 / 9, still_on=ended == "source")
    start = event.start.replace(hour=14, minute=3, second=12)
    seen = start + timedelta(seconds=8)
    event = replace(event, start=start, seen=seen, end=seen if ended else None)
    for phase in ("new", "end"):
        said = describe(Notice(1, event, "phone", phase), start + timedelta(days=1))
        assert "falling" in said and source[0] in said and f"{start:%Y-%m-%d} 14:03:" in said and "8 s" in said
        assert said.isprintable() and ("9 days" in said or phase == "end")


def test_lengths_and_rates():
    lengths = {59.6: "1 min", 125: "2 min 5 s", 3661: "1 h 1 min", 183600: "2 days 3 h"}
    assert {seconds: format_seconds(seconds) for seconds in lengths} == lengths and "1 s" in format_seconds(0.2)
    for rate, shown in {1.5: "2", 0.5: "12", 1 / 24: "a day", 1 / 24 / 92: "3 months", 1e-9: "year"}.items():
        assert shown in describe_rate(rate)
    assert describe_rate(0) and not describe_rate(float("nan"))

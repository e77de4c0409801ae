"""Sentences about events: the values in them, not their wording."""

from dataclasses import replace
from datetime import timedelta

import pytest

from lstr.pipelines.watching.event import describe_rate, format_seconds
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.notifications import describe
from tests.support.watching import START, event_of


@pytest.mark.parametrize("source", ["hall", "the yard", "cam2", "a\x1b[2Jb\nc"])
@pytest.mark.parametrize("end", [None, "action", "source"])
def test_sentences(source, end):
    event = event_of(source, seen=START + timedelta(seconds=8), false_alarms=1 / 24 / 9, still_on=end == "source")
    event = replace(event, end=event.seen if end else None)
    for phase in ("new", "end"):
        sentence = describe(Notice(1, event, "phone", phase), START + timedelta(days=1))
        assert all(part in sentence for part in ("fall", source[0], "2026-05-31 14:03:", "8 s"))
        assert sentence.isprintable() and ("9 days" in sentence or phase == "end")


def test_lengths_and_rates():
    lengths = {59.6: "1 min", 125: "2 min 5 s", 3661: "1 h 1 min", 183600: "2 days 3 h"}
    assert {seconds: format_seconds(seconds) for seconds in lengths} == lengths and "1 s" in format_seconds(0.2)
    for rate, text in {1.5: "2", 0.5: "12", 1 / 24: "a day", 1 / 24 / 92: "3 months", 1e-9: "year"}.items():
        assert text in describe_rate(rate)
    assert describe_rate(0) and not describe_rate(float("nan"))

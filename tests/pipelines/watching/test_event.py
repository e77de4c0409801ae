"""Sentences about events."""

from datetime import datetime, timedelta

from lstr.pipelines.watching.event import WatchedEvent, describe_rate, format_seconds
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.notifications import describe

START = datetime(2026, 11, 26, 14, 3, 12).astimezone()


def event(seconds: float = 4, **values) -> WatchedEvent:
    seen = START + timedelta(seconds=seconds)
    known = {"id": "1", "source": "hall", "action": "falling", "start": START, "decided": START, "seen": seen}
    return WatchedEvent(**known | {"score": 0.8, "top_score": 0.91} | values)


def sentence(phase: str, event: WatchedEvent, now: datetime = START) -> str:
    return describe(Notice(1, event, "phone", phase), now)


def test_what_is_on():
    assert sentence("new", event()) == "falling in the hall, 14:03:12, for 4 s so far, score .91"
    tomorrow = START + timedelta(days=1)
    assert sentence("new", event(), tomorrow) == "falling in the hall, 2026-11-26 14:03:12, for 4 s so far, score .91"
    assert sentence("new", event(false_alarms=1 / 24 / 9)) == (
        "falling in the hall, 14:03:12, for 4 s so far, score .91; about one false alarm in 9 days at this threshold"
    )


def test_what_ended():
    over = event(8, end=START + timedelta(seconds=8))
    assert sentence("end", over) == "falling in the hall ended at 14:03:20 after 8 s"
    assert sentence("new", over) == "falling in the hall, 14:03:12, for 8 s, until 14:03:20, score .91"
    cut = event(8, end=START + timedelta(seconds=8), still_on=True)
    assert sentence("end", cut) == "falling in the hall was last seen at 14:03:20 after 8 s, when the source ended"


def test_where_it_was():
    places = {
        "hall": "in the hall",
        "living room": "in the living room",
        "the yard": "in the yard",
        "cam2": "on cam2",
        "a\x1b[2Jb\nc": "on a\ufffd[2Jb c",
    }
    for source, place in places.items():
        assert sentence("new", event(source=source)).startswith(f"falling {place}, 14:03:12")


def test_lengths():
    lengths = {0.2: "less than 1 s", 59.6: "1 min", 125: "2 min 5 s", 3661: "1 h 1 min", 183600: "2 days 3 h"}
    assert {seconds: format_seconds(seconds) for seconds in lengths} == lengths


def test_rates():
    rates = {
        0: "no false alarm was measured",
        1.5: "about 2 false alarms an hour",
        1.2: "about one false alarm an hour",
        0.5: "about 12 false alarms a day",
        1 / 24: "about one false alarm a day",
        1 / 24 / 9: "about one false alarm in 9 days",
        1 / 24 / 92: "about one false alarm in 3 months",
        1e-9: "less than one false alarm a year",
        float("nan"): "",
    }
    assert [describe_rate(rate) for rate in rates] == [*rates.values()]

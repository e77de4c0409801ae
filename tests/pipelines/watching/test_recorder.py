"""Decisions of a source become events of the history, whatever the disk does."""

from contextlib import contextmanager
from datetime import datetime, timedelta

import numpy as np
import pytest

from lstr.pipelines.detection.decision import Decision, End, Opened, Status
from lstr.pipelines.watching import recorder as module
from lstr.pipelines.watching.recorder import Recorder, RecorderSink
from lstr.timeline import Event

NOW = datetime(2026, 11, 26, 14, 3, 12).astimezone()


def decision(chunk: int, score: float, *events: Event) -> Decision:
    at = NOW + timedelta(seconds=chunk / 4)
    scores = np.array([1 - score, score], np.float32)
    return Decision(chunk, chunk / 4, "falling", score, [], 1.0, [*events], scores, at=at, source="hall")


def moment(kind: str, chunk: int, **more) -> Event:
    at = NOW + timedelta(seconds=chunk / 4)
    return Event(kind, "falling", chunk / 4, chunk / 4, 0.6, at=at, start_at=at - timedelta(seconds=1), **more)


@pytest.fixture
def log():
    """Stored phases, and sentences of the log."""
    return []


@pytest.fixture
def recorder(history, log):
    return Recorder(history, lambda event, now: ("phone",), lambda event, phase: log.append(phase), log.append)


def sink_of(recorder) -> RecorderSink:
    made = RecorderSink(recorder, "fall.lstr", {"falling": 0.1})
    made.open(Opened("hall", Status("hall"), ("other", "falling")))
    return made


def test_an_event_from_its_start_to_its_end(recorder, history, log):
    sink = sink_of(recorder)
    sink.take(decision(0, 0.1))
    assert not history.events()
    sink.take(decision(1, 0.6, moment("started", 1)))
    (known,) = history.events()
    assert (known.source, known.action, known.score, known.model) == ("hall", "falling", 0.6, "fall.lstr")
    assert known.false_alarms == 0.1 and known.start == NOW - timedelta(seconds=0.75) and known.end is None
    assert [notice.event.id for notice in history.pending("phone")] == [known.id]
    sink.take(decision(2, 0.9))
    end = NOW + timedelta(seconds=0.75)
    sink.take(decision(3, 0.2, moment("ended", 3, end=0.75, end_at=end)))
    (known,) = history.events()
    assert known.end == end and not known.still_on and known.top_score == pytest.approx(0.9)
    assert log == ["new", "update", "end"], "its top score rose"


def test_that_it_is_still_active_is_stored_from_time_to_time(recorder, history, monkeypatch):
    sink = sink_of(recorder)
    sink.take(decision(1, 0.6, moment("started", 1)))
    sink.take(decision(2, 0.62))
    assert history.events()[0].top_score == 0.6, "it rose by little"
    sink.take(decision(2, 0.82))
    monkeypatch.setattr(module, "RENEW_S", -1.0)
    sink.take(decision(3, 0.7))
    (known,) = history.events()
    assert known.top_score == pytest.approx(0.82) and known.seen == NOW + timedelta(seconds=0.75)
    sink.close(End())
    (known,) = history.events()
    assert known.still_on and known.end == NOW + timedelta(seconds=0.75), "the end of the source ends the event"


@contextmanager
def full(history):
    """Every write fails, as on a full disk."""
    history._connection.execute("PRAGMA query_only=ON")
    yield
    history._connection.execute("PRAGMA query_only=OFF")


def test_changes_wait_for_room_on_the_disk_after_the_end_of_their_source(recorder, history, log):
    """An event stayed active until the service was started again."""
    first, second = sink_of(recorder), sink_of(recorder)
    first.take(decision(1, 0.6, moment("started", 1)))
    with full(history):
        first.close(End())
        second.take(decision(3, 0.7, moment("started", 3)))
        assert log[0] == "new" and len(log) == 2 and "stored and announced later" in log[1]
    recorder.flush()
    later, earlier = history.events()
    assert earlier.end and earlier.still_on and later.end is None
    assert log[2:] == ["end", "new", "The history can be written again."]

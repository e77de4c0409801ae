"""Decisions of a source become events of the history, whatever the disk does."""

from contextlib import contextmanager
from datetime import datetime, timedelta

import numpy as np
import pytest

from lstr.pipelines.detection.decision import Decision, Opened, Status
from lstr.pipelines.detection.sinks import End
from lstr.pipelines.watching import storing
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.storing import Storage, Storing
from lstr.timeline import Event

NOW = datetime(2026, 11, 26, 14, 3, 12).astimezone()


def decision(chunk: int, score: float, *events: Event) -> Decision:
    at = NOW + timedelta(seconds=chunk / 4)
    scores = np.array([1 - score, score], np.float32)
    return Decision(chunk, chunk / 4, "falling", score, [], 1.0, [*events], scores, at=at, source="hall")


def moment(kind: str, chunk: int, **more) -> Event:
    at = NOW + timedelta(seconds=chunk / 4)
    return Event(kind, "falling", chunk / 4, chunk / 4, 0.6, at=at, start_at=at - timedelta(seconds=1), **more)


class Told(list):
    """What the storage reports, and whom it would tell."""

    def storage(self, history: History) -> Storage:
        return Storage(history, lambda event, now: ("phone",), lambda event, phase: self.append(phase), self.append)


@pytest.fixture
def history(tmp_path):
    made = History(tmp_path / "history.sqlite")
    yield made
    made.close()


@pytest.fixture
def told():
    return Told()


@pytest.fixture
def sink(history, told):
    made = Storing(told.storage(history), "fall.lstr", {"falling": 0.1})
    made.open(Opened("hall", Status("hall"), ("other", "falling")))
    return made


def test_an_event_from_its_start_to_its_end(sink, history, told):
    sink.take(decision(0, 0.1))
    assert not history.events()
    sink.take(decision(1, 0.6, moment("started", 1)))
    (known,) = history.events()
    assert (known.source, known.action, known.score, known.model) == ("hall", "falling", 0.6, "fall.lstr")
    assert known.false_alarms == 0.1 and known.start == NOW - timedelta(seconds=0.75) and known.end is None
    assert [notice.event.id for notice in history.due("phone", datetime.now().astimezone())] == [known.id]
    sink.take(decision(2, 0.9))
    end = NOW + timedelta(seconds=0.75)
    sink.take(decision(3, 0.2, moment("ended", 3, end=0.75, end_at=end)))
    (known,) = history.events()
    assert known.end == end and not known.still_on and known.top_score == pytest.approx(0.9)
    assert told == ["new", "update", "end"], "its highest score rose"


def test_that_it_is_still_on_is_noted_now_and_then(sink, history, monkeypatch):
    sink.take(decision(1, 0.6, moment("started", 1)))
    sink.take(decision(2, 0.62))
    assert history.events()[0].top_score == 0.6, "it rose by little"
    sink.take(decision(2, 0.8))
    assert history.events()[0].top_score == pytest.approx(0.8)
    sink.take(decision(2, 0.82))
    monkeypatch.setattr(storing, "RENEWED_SECONDS", -1.0)
    sink.take(decision(3, 0.7))
    (known,) = history.events()
    assert known.top_score == pytest.approx(0.82) and known.seen == NOW + timedelta(seconds=0.75)


def test_the_end_of_a_source_ends_what_is_on(sink, history):
    sink.take(decision(1, 0.6, moment("started", 1)))
    sink.take(decision(2, 0.6))
    sink.close(End())
    (known,) = history.events()
    assert known.still_on and known.end == NOW + timedelta(seconds=0.5)


@contextmanager
def full(history):
    """Every write fails, as on a full disk."""
    history._connection.execute("PRAGMA query_only=ON")
    yield
    history._connection.execute("PRAGMA query_only=OFF")


def test_what_a_source_that_has_ended_could_not_store_is_stored_all_the_same(history, told):
    """Its event stayed on until the service began again, and the next one of it said that all is well."""
    storage, opened = told.storage(history), Opened("hall", Status("hall"), ("other", "falling"))
    first, second, third = (Storing(storage) for _ in range(3))
    for one in (first, second, third):
        one.open(opened)
    first.take(decision(1, 0.6, moment("started", 1)))
    with full(history):
        first.close(End())
        storage.write_what_waits()
        second.take(decision(2, 0.1))
        assert told[0] == "new" and len(told) == 2 and "what is not stored is not told" in told[1]
        second.take(decision(3, 0.7, moment("started", 3)))
    storage.write_what_waits()
    later, earlier = history.events()
    assert earlier.end and earlier.still_on and later.end is None
    assert told[2:] == ["end", "new", "The history of hall is written again."]
    second.close(End())
    third.take(decision(4, 0.1))
    storage.write_what_waits()
    assert told[5:] == ["end"] and history.events()[0].end

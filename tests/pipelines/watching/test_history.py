"""The history of a watching service: what is stored together, and what is wanted of it."""

import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from lstr.errors import HistoryError
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import VERSION, History
from tests.support.watching import count_pending

NOW = datetime.now().astimezone().replace(microsecond=0)  # events older than a day are not announced


def event(seconds: float = 0.0, source: str = "hall", action: str = "falling", score: float = 0.9) -> WatchedEvent:
    start = NOW + timedelta(seconds=seconds)
    return WatchedEvent(new_id(start), source, action, start, start, score, score, start, model="fall.lstr")


def test_notices_come_with_the_event_and_once(history):
    known = event()
    history.begin(known, ["phone", "house"], NOW)
    (first,) = history.pending("phone")
    assert (
        first.event == known == history.find(known.id)
        and first.phase == "new"
        and count_pending(history) == {"phone": 1, "house": 1}
    )
    history.mark_delivered(first, NOW)
    history.update(replace(known, end=NOW), NOW)
    assert [notice.phase for notice in history.pending("phone")] == ["end"]
    (both,) = history.pending("house")
    assert both.phase == "new" and both.event.end == NOW, "the start first, which has the end too"
    assert history.count_announced("phone", NOW, NOW) == 1
    later = NOW + timedelta(seconds=1)
    assert history.count_announced("phone", later, later) == history.count_announced("nobody", NOW, later) == 0


def test_an_end_is_not_announced_without_its_start(history):
    known = event()
    history.begin(known, [], NOW)
    history.update(replace(known, end=NOW), NOW)
    assert not count_pending(history)


def test_old_events_are_deleted_with_their_notices(history):
    old, on, new = event(0), event(1), event(100)
    for one in (old, on, new):
        history.begin(one, ["phone"], NOW)
    history.update(replace(old, end=old.start), NOW)
    history.update(replace(new, end=new.start), NOW)
    assert [one.id for one in history.delete_old(datetime.now().timestamp() - NOW.timestamp() - 50)] == [old.id]
    assert {one.id for one in history.events()} == {on.id, new.id}
    assert {notice.event.id for notice in history.pending("phone")} == {on.id, new.id}


def test_a_file_that_is_not_a_history(tmp_path, history):
    (tmp_path / "text").write_text("no database" * 200)
    history.close()
    later = sqlite3.connect(history.path)
    later.execute(f"PRAGMA user_version={VERSION + 1}")
    later.close()
    for path in (tmp_path / "text", history.path):
        with pytest.raises(HistoryError, match=path.name):
            History(path)
    with pytest.raises(HistoryError):
        History(tmp_path / "nowhere", readonly=True)


def test_it_is_read_while_it_is_written(history):
    history.begin(event(), [], NOW)
    reader = History(history.path, readonly=True)
    assert len(reader.events()) == 1
    history.begin(event(1), [], NOW)
    assert len(reader.events()) == 2
    with pytest.raises(HistoryError):
        reader.begin(event(2), [], NOW)
    reader.close()

"""The history of a watching service: what is stored together, and what is wanted of it."""

import sqlite3
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from lstr.errors import HistoryError
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import VERSION, History

NOW = datetime.now().astimezone().replace(microsecond=0)  # events older than a day are not announced


def event(seconds: float = 0.0, source: str = "hall", action: str = "falling", score: float = 0.9) -> WatchedEvent:
    start = NOW + timedelta(seconds=seconds)
    return WatchedEvent(new_id(start), source, action, start, start, score, score, start, model="fall.lstr")


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

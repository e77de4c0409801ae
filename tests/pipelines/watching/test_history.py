"""The history of a watching service."""

import sqlite3
from dataclasses import replace

import pytest

from lstr.errors import HistoryError
from lstr.pipelines.watching.history import VERSION, History
from tests.support.watching import recent_event


def test_old_events_are_deleted_with_their_notices(history):
    old, active, new = (recent_event(ago) for ago in (200, 150, 4))
    for event in (old, active, new):
        history.begin(event, ["phone"], event.seen)
    for event in (old, new):
        history.update(replace(event, end=event.start), event.seen)
    assert not history.delete_old(999_999 * 86_400.0)  # before year 1
    assert [event.id for event in history.delete_old(100)] == [old.id]
    assert {event.id for event in history.events()} == {active.id, new.id}
    assert {notice.event.id for notice in history.pending("phone")} == {active.id, new.id}


def test_invalid_history_files(tmp_path, history):
    (tmp_path / "text").write_text("no database" * 200)
    history.close()
    connection = sqlite3.connect(history.path)
    connection.execute(f"PRAGMA user_version={VERSION + 1}")
    connection.close()
    for path in (tmp_path / "text", history.path):
        with pytest.raises(HistoryError, match=path.name):
            History(path)
    with pytest.raises(HistoryError):
        History(tmp_path / "missing", readonly=True)

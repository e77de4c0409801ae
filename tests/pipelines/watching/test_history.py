"""The history of a watching service: what is stored together, and what is wanted of it."""

import sqlite3
import stat
from datetime import datetime, timedelta

import pytest

from lstr.errors import HistoryError
from lstr.pipelines.watching.delivery import JITTER, LONGEST
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import VERSION, History

NOW = datetime.now().astimezone().replace(microsecond=0)  # nobody is told of what is older than a day


def event(seconds: float = 0.0, source: str = "hall", action: str = "falling", score: float = 0.9) -> WatchedEvent:
    start = NOW + timedelta(seconds=seconds)
    return WatchedEvent(new_id(start), source, action, start, start, score, score, start, model="fall.lstr")


@pytest.fixture
def history(tmp_path):
    made = History(tmp_path / "history.sqlite")
    yield made
    made.close()


def test_an_event_is_as_it_was_stored(history):
    known = event()
    history.begin(known, [], NOW)
    assert history.find(known.id) == known
    assert history.find("nothing") is None


def test_its_course_is_kept(history):
    known, later = event(), NOW + timedelta(seconds=4)
    history.begin(known, [], NOW)
    history.renew(known.id, later, 0.95)
    history.renew(known.id, later, 0.4)  # what was highest stays
    found = history.find(known.id)
    assert found.top_score == 0.95 and found.seen == later and found.end is None and found.seconds == 4
    history.end(known.id, later + timedelta(seconds=1), False, later)
    history.end(known.id, later + timedelta(seconds=9), True, later)  # it ends once
    found = history.find(known.id)
    assert found.end == found.seen == later + timedelta(seconds=1) and not found.still_on


def test_notices_come_with_the_event_and_once(history):
    known = event()
    history.begin(known, ["phone", "house"], NOW)
    (first,) = history.due("phone", NOW)
    assert first.event == known and first.phase == "new" and history.waiting() == {"phone": 1, "house": 1}
    history.put_off(first, NOW + timedelta(seconds=8), "no answer")
    assert not history.due("phone", NOW) and history.next_due("phone") == NOW + timedelta(seconds=8)
    (again,) = history.due("phone", NOW + timedelta(seconds=8))
    assert again.id == first.id and again.tries == 1
    history.deliver(again, NOW)
    history.end(known.id, NOW, False, NOW)
    assert [notice.phase for notice in history.due("phone", NOW)] == ["end"]
    (both,) = history.due("house", NOW)
    assert both.phase == "new" and both.event.end == NOW, "the beginning first, which tells the end too"
    assert history.told("phone", NOW, NOW) == 1
    later = NOW + timedelta(seconds=1)
    assert history.told("phone", later, later) == history.told("nobody", NOW, later) == 0


def test_what_was_stored_while_the_clock_was_ahead_is_due_at_once(history):
    """It waited until that date, and what could not be delivered before it with it."""
    ahead, longest = event(365 * 86400), timedelta(seconds=LONGEST * (1 + JITTER))
    history.begin(ahead, ["phone"], ahead.start)
    (notice,) = history.due("phone", NOW)
    assert notice.event == ahead
    history.put_off(notice, NOW + longest, "no answer")
    assert not history.due("phone", NOW) and history.due("phone", NOW + longest), "the longest pause is none"


def test_nobody_is_told_of_the_end_of_what_nobody_was_told_of(history):
    known = event()
    history.begin(known, [], NOW)
    history.end(known.id, NOW, False, NOW)
    assert not history.waiting()


def test_what_is_old_is_forgotten_with_its_notices(history):
    old, on, new = event(0), event(1), event(100)
    for one in (old, on, new):
        history.begin(one, ["phone"], NOW)
    history.end(old.id, old.start, False, NOW)
    history.end(new.id, new.start, False, NOW)
    assert [one.id for one in history.forget(datetime.now().timestamp() - NOW.timestamp() - 50)] == [old.id]
    assert {one.id for one in history.events()} == {on.id, new.id}
    assert {notice.event.id for notice in history.due("phone", NOW)} == {on.id, new.id}


def test_its_owner_alone_reads_it(history):
    """Addresses that were added on the page may hold passwords; what SQLite writes beside it is as it is."""
    history.begin(event(), [], NOW)
    found = [*history.path.parent.glob("history.sqlite*")]
    assert len(found) > 1 and all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in found)


def test_what_is_no_history(tmp_path, history):
    (tmp_path / "text").write_text("no database" * 200)
    with pytest.raises(HistoryError, match="cannot be used"):
        History(tmp_path / "text")
    with pytest.raises(HistoryError, match="cannot be used"):
        History(tmp_path / "nowhere", readonly=True)
    history.close()
    later = sqlite3.connect(history.path)
    later.execute(f"PRAGMA user_version={VERSION + 1}")
    later.close()
    with pytest.raises(HistoryError, match=f"version {VERSION + 1}"):
        History(history.path)


def test_it_is_read_while_it_is_written(history):
    history.begin(event(), [], NOW)
    reader = History(history.path, readonly=True)
    assert len(reader.events()) == 1
    history.begin(event(1), [], NOW)
    assert len(reader.events()) == 2
    with pytest.raises(HistoryError):
        reader.begin(event(2), [], NOW)
    reader.close()

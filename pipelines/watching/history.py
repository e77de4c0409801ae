"""What was seen, and what is to be told of it, in one SQLite file: an event and its notices are stored together.

A notice is a line to one channel about one event: that it is `new`, or has come to its `end`. It is stored in the
transaction that stores the event, so that nothing is told that is not stored, and stays until it is delivered, so that
what was stored is told though the process was killed.
"""

import json
import sqlite3
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from datetime import datetime, timedelta
from pathlib import Path
from time import time
from typing import Any

from lstr.errors import HistoryError
from lstr.pipelines.watching.event import WatchedEvent

# SQLite's name of a history without a file, for what is only looked at
IN_MEMORY = Path(":memory:")
# The version of the tables, kept as SQLite's user_version.
VERSION = 1
# No notice is put off for as long: one that is due later was stored while the clock was ahead, and is due at once.
MOST_AHEAD = timedelta(minutes=15)
TIMES = ("start", "decided", "seen", "end")
TABLES = """
CREATE TABLE events (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, action TEXT NOT NULL, start REAL NOT NULL, decided REAL NOT NULL,
    score REAL NOT NULL, top_score REAL NOT NULL, seen REAL NOT NULL, end REAL, still_on INTEGER NOT NULL,
    model TEXT NOT NULL, false_alarms REAL, clip TEXT NOT NULL, picture TEXT NOT NULL, verdict TEXT NOT NULL
);
CREATE INDEX events_by_start ON events (start);
CREATE TABLE notices (
    id INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    channel TEXT NOT NULL, phase TEXT NOT NULL, due REAL NOT NULL, tries INTEGER NOT NULL DEFAULT 0,
    delivered REAL, reason TEXT NOT NULL DEFAULT '', UNIQUE (event, channel, phase)
);
CREATE INDEX notices_due ON notices (channel, due) WHERE delivered IS NULL;
CREATE TABLE kept (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""


DELIVERABLE = """delivered IS NULL AND (phase = 'new' OR NOT EXISTS (
    SELECT 1 FROM notices AS first WHERE first.event = notices.event AND first.channel = notices.channel
    AND first.phase = 'new' AND first.delivered IS NULL))"""
ON_FOR = "end IS NULL AND id IN (SELECT event FROM notices WHERE phase = 'new' AND delivered > 0 AND channel = ?)"


@dataclass(frozen=True)
class Notice:
    """A line to one channel about one event."""

    id: int
    event: WatchedEvent
    channel: str
    phase: str
    """`new` or `end`."""
    tries: int
    """How often it could not be delivered."""


@dataclass(frozen=True)
class Wanted:
    """Which events are wanted; None leaves nothing out."""

    since: datetime | None = None
    until: datetime | None = None
    source: str | None = None
    action: str | None = None
    min_score: float | None = None
    """The least that their highest score is."""
    before: str | None = None
    """The id of an event: only older ones, in the order of `History.events`."""
    on_for: str | None = None
    """A channel: only events that are on, and of whose beginning it was told."""
    limit: int | None = None


class History:
    """The events of one folder; may be used from any thread. Raises HistoryError for a file that is none."""

    def __init__(self, path: Path, readonly: bool = False):
        self.path = path
        self._lock = threading.Lock()
        try:
            if readonly:
                self._connection = sqlite3.connect(
                    f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
                )
            else:
                if path != IN_MEMORY:
                    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                    path.touch(mode=0o600)  # addresses that were added on the page may hold passwords
                self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
                self._connection.execute("PRAGMA journal_mode=WAL")
            # an event that a channel has is on the disk, though the power fails
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute("PRAGMA foreign_keys=ON")
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and not readonly:
                self._create()
                version = VERSION
        except (sqlite3.Error, OSError) as error:
            raise HistoryError(
                f"{path} cannot be used as a history ({error}).", "name another folder as `data`."
            ) from error
        if version != VERSION:
            self._connection.close()
            raise HistoryError(
                f"{path} is a history of version {version}, and this lstr reads version {VERSION}.",
                "update lstr, or name another folder as `data`.",
            )

    def _create(self) -> None:
        with self._changing() as connection:
            for statement in TABLES.split(";"):
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version={VERSION}")

    @contextmanager
    def _changing(self) -> Iterator[sqlite3.Connection]:
        """One transaction. Raises HistoryError, as of a full disk; nothing of it is then kept."""
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                try:
                    yield self._connection
                    self._connection.execute("COMMIT")
                except BaseException:
                    if self._connection.in_transaction:
                        self._connection.execute("ROLLBACK")
                    raise
            except sqlite3.Error as error:
                raise HistoryError(
                    f"{self.path} cannot be written ({error}).", "see whether the disk is full."
                ) from error

    def _read(self, query: str, values: Collection[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._connection.execute(query, tuple(values)).fetchall()
            except sqlite3.Error as error:
                raise HistoryError(f"{self.path} cannot be read ({error}).", "see whether it is a history.") from error

    def begin(self, event: WatchedEvent, channels: Collection[str], now: datetime) -> None:
        """Store an event that is new, and that each of the channels is to be told of it."""
        with self._changing() as connection:
            values = _row(event)
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO events ({', '.join(values)}) VALUES ({marks})", [*values.values()])
            _add_notices(connection, event.id, channels, "new", now)

    def renew(self, event_id: str, seen: datetime, top_score: float) -> None:
        """Note that an event is still on."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE events SET seen = ?, top_score = max(top_score, ?) WHERE id = ? AND end IS NULL",
                (seen.timestamp(), top_score, event_id),
            )

    def end(self, event_id: str, end: datetime, still_on: bool, now: datetime) -> None:
        """Store that an event is over; the channels that were to be told of its beginning are told of it."""
        with self._changing() as connection:
            changed = connection.execute(
                "UPDATE events SET end = ?, seen = ?, still_on = ? WHERE id = ? AND end IS NULL",
                (end.timestamp(), end.timestamp(), still_on, event_id),
            ).rowcount
            if changed:
                told = connection.execute("SELECT channel FROM notices WHERE event = ? AND phase = 'new'", (event_id,))
                _add_notices(connection, event_id, [channel for (channel,) in told.fetchall()], "end", now)

    def end_all(self, now: datetime) -> int:
        """Store of each event that is on that its source ended when it was last seen, as after a kill; how many."""
        open_ones = self._read("SELECT id, seen FROM events WHERE end IS NULL")
        for event_id, seen in open_ones:
            self.end(event_id, datetime.fromtimestamp(seen).astimezone(), True, now)
        return len(open_ones)

    def attach(self, event_id: str, clip: str | None = None, picture: str | None = None) -> None:
        """Name the film or the picture of an event; an empty name takes it away."""
        with self._changing() as connection:
            for name, value in (("clip", clip), ("picture", picture)):
                if value is not None:
                    connection.execute(f"UPDATE events SET {name} = ? WHERE id = ?", (value, event_id))

    def filmed(self) -> list[tuple[str, str, str]]:
        """Id, film and picture of each event that names one."""
        rows = self._read("SELECT id, clip, picture FROM events WHERE clip != '' OR picture != ''")
        return [(event_id, clip, picture) for event_id, clip, picture in rows]

    def judge(self, event_id: str, verdict: str) -> bool:
        """Keep what a person says of an event: `right`, `wrong`, or nothing; whether there is such an event."""
        assert verdict in ("right", "wrong", "")
        with self._changing() as connection:
            return connection.execute("UPDATE events SET verdict = ? WHERE id = ?", (verdict, event_id)).rowcount > 0

    def find(self, event_id: str) -> WatchedEvent | None:
        """The event of an id."""
        rows = self._read(f"SELECT {', '.join(COLUMNS)} FROM events WHERE id = ?", (event_id,))
        return _event(rows[0]) if rows else None

    def events(self, wanted: Wanted = Wanted()) -> list[WatchedEvent]:
        """Events, the newest start first."""
        where, values = [], []
        for clause, value in (
            ("start >= ?", wanted.since and wanted.since.timestamp()),
            ("start < ?", wanted.until and wanted.until.timestamp()),
            ("source = ?", wanted.source),
            ("action = ?", wanted.action),
            ("top_score >= ?", wanted.min_score),
            ("(start, id) < (SELECT start, id FROM events WHERE id = ?)", wanted.before),
            (ON_FOR, wanted.on_for),
        ):
            if value is not None:
                where.append(clause)
                values.append(value)
        query = f"SELECT {', '.join(COLUMNS)} FROM events{' WHERE ' * bool(where)}{' AND '.join(where)}"
        query += " ORDER BY start DESC, id DESC LIMIT ?"
        rows = self._read(query, [*values, -1 if wanted.limit is None else wanted.limit])
        return [_event(row) for row in rows]

    def due(self, channel: str, now: datetime, limit: int = 20) -> list[Notice]:
        """What a channel is to be told now, the oldest first; of no end before the beginning is delivered."""
        rows = self._read(
            f"SELECT notices.id, phase, tries, {', '.join(f'events.{name}' for name in COLUMNS)} FROM notices "
            f"JOIN events ON events.id = notices.event WHERE channel = ? AND {DELIVERABLE} AND (due <= ? OR due > ?) "
            "ORDER BY notices.id LIMIT ?",
            (channel, now.timestamp(), (now + MOST_AHEAD).timestamp(), limit),
        )
        return [Notice(number, _event(row), channel, phase, tries) for number, phase, tries, *row in rows]

    def next_due(self, channel: str) -> datetime | None:
        """When a channel is to be told something next."""
        ((due,),) = self._read(f"SELECT min(due) FROM notices WHERE channel = ? AND {DELIVERABLE}", (channel,))
        return None if due is None else datetime.fromtimestamp(due).astimezone()

    def deliver(self, notice: Notice, now: datetime) -> None:
        """Keep that a notice was delivered."""
        with self._changing() as connection:
            connection.execute("UPDATE notices SET delivered = ? WHERE id = ?", (now.timestamp(), notice.id))

    def put_off(self, notice: Notice, until: datetime, reason: str) -> None:
        """Keep that a notice could not be delivered, and when it is tried again."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE notices SET due = ?, tries = tries + 1, reason = ? WHERE id = ?",
                (until.timestamp(), reason[:500], notice.id),
            )

    def drop(self, notice: Notice, now: datetime, reason: str) -> None:
        """Keep that a channel is never told of an event, neither of its beginning nor of its end, and why."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE notices SET delivered = ?, reason = ? WHERE event = ? AND channel = ? AND delivered IS NULL",
                (now.timestamp(), reason[:500], notice.event.id, notice.channel),
            )

    def hold(self, channel: str, until: datetime) -> None:
        """Let all that waits for a channel wait until then at least, as while it is out of reach."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE notices SET due = max(due, ?) WHERE channel = ? AND delivered IS NULL",
                (until.timestamp(), channel),
            )

    def hasten(self, channel: str, now: datetime) -> None:
        """Let nothing wait longer for a channel, as once it is within reach again."""
        with self._changing() as connection:
            connection.execute(
                "UPDATE notices SET due = min(due, ?) WHERE channel = ? AND delivered IS NULL",
                (now.timestamp(), channel),
            )

    def last_told(self, source: str, action: str, until: datetime) -> datetime | None:
        """When the last event until then began of which anybody was, or is, to be told."""
        query = "SELECT max(start) FROM events WHERE source = ? AND action = ? AND start <= ?"
        query += " AND id IN (SELECT event FROM notices)"
        ((start,),) = self._read(query, (source, action, until.timestamp()))
        return None if start is None else datetime.fromtimestamp(start).astimezone()

    def told(self, channel: str, since: datetime, until: datetime) -> int:
        """How many events a channel was, or is, to be told of that were decided in that time."""
        query = "SELECT count(*) FROM notices JOIN events ON events.id = notices.event"
        query += " WHERE channel = ? AND phase = 'new' AND decided BETWEEN ? AND ?"
        return int(self._read(query, (channel, since.timestamp(), until.timestamp()))[0][0])

    def counts(self) -> dict[tuple[str, str], int]:
        """How many events are kept, by source and action."""
        rows = self._read("SELECT source, action, count(*) FROM events GROUP BY source, action")
        return {(source, action): count for source, action, count in rows}

    def waiting(self) -> dict[str, int]:
        """How many notices wait, by channel."""
        return dict(self._read("SELECT channel, count(*) FROM notices WHERE delivered IS NULL GROUP BY channel"))

    def keep(self, name: str, value: Any) -> None:
        """Keep a value of JSON over a restart; None forgets it."""
        with self._changing() as connection:
            if value is None:
                connection.execute("DELETE FROM kept WHERE name = ?", (name,))
            else:
                connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, json.dumps(value)))

    def kept(self, name: str) -> Any:
        """A value that is kept, or None."""
        rows = self._read("SELECT value FROM kept WHERE name = ?", (name,))
        return json.loads(rows[0][0]) if rows else None

    def forget(self, seconds: float) -> list[WatchedEvent]:
        """Delete what ended more than so many seconds ago, with its notices; the events, whose clips are to go too."""
        before = time() - seconds
        rows = self._read(f"SELECT {', '.join(COLUMNS)} FROM events WHERE end < ?", (before,))
        with self._changing() as connection:
            connection.execute("DELETE FROM events WHERE end < ?", (before,))
        return [_event(row) for row in rows]

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


COLUMNS = tuple(field.name for field in fields(WatchedEvent))


def _row(event: WatchedEvent) -> dict[str, Any]:
    return {name: value.timestamp() if isinstance(value, datetime) else value for name, value in vars(event).items()}


def _event(row: Collection[Any]) -> WatchedEvent:
    values = dict(zip(COLUMNS, row, strict=True))
    for name in TIMES:
        if values[name] is not None:
            values[name] = datetime.fromtimestamp(values[name]).astimezone()
    return WatchedEvent(**values | {"still_on": bool(values["still_on"])})


def _add_notices(
    connection: sqlite3.Connection, event_id: str, channels: Collection[str], phase: str, now: datetime
) -> None:
    rows = [(event_id, channel, phase, now.timestamp()) for channel in channels]
    connection.executemany("INSERT OR IGNORE INTO notices (event, channel, phase, due) VALUES (?, ?, ?, ?)", rows)

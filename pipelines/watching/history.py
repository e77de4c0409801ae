"""Events and their pending notifications in one SQLite file.

A notice is one notification: an event is `new`, or has come to its `end`, for one channel. It is stored in the
transaction that stores the event and stays until it is delivered, so a killed process neither loses nor invents one.
"""

import json
import os
import sqlite3
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from datetime import datetime
from io import FileIO
from pathlib import Path
from time import time
from typing import Any

from lstr.errors import HistoryError
from lstr.files.atomic import lock
from lstr.pipelines.watching.event import WatchedEvent

VERSION = 3  # of the tables, kept as SQLite's user_version
TABLES = """
CREATE TABLE events (
    id TEXT PRIMARY KEY, source TEXT NOT NULL, action TEXT NOT NULL, start REAL NOT NULL, decided REAL NOT NULL,
    score REAL NOT NULL, top_score REAL NOT NULL, seen REAL NOT NULL, end REAL, still_active INTEGER NOT NULL,
    model TEXT NOT NULL, false_alarms REAL, clip TEXT NOT NULL, picture TEXT NOT NULL, verdict TEXT NOT NULL
);
CREATE INDEX events_by_start ON events (start);
CREATE TABLE notices (
    id INTEGER PRIMARY KEY AUTOINCREMENT, event TEXT NOT NULL REFERENCES events (id) ON DELETE CASCADE,
    channel TEXT NOT NULL, phase TEXT NOT NULL, delivered REAL, UNIQUE (event, channel, phase)
);
CREATE INDEX notices_pending ON notices (channel) WHERE delivered IS NULL;
CREATE TABLE kept (name TEXT PRIMARY KEY, value TEXT NOT NULL);
"""
COLUMNS = tuple(field.name for field in fields(WatchedEvent))
# An end is not announced before its start is.
DELIVERABLE = """delivered IS NULL AND (phase = 'new' OR NOT EXISTS (
    SELECT 1 FROM notices AS first WHERE first.event = notices.event AND first.channel = notices.channel
    AND first.phase = 'new' AND first.delivered IS NULL))"""
# Which events `History.events` selects.
CLAUSES = {
    "since": "start >= ?",
    "until": "start < ?",
    "source": "source = ?",
    "action": "action = ?",
    "min_score": "top_score >= ?",
    "before": "(start, id) < (SELECT start, id FROM events WHERE id = ?)",  # older than the event of this id
    # whose start this channel has announced, and which have no end
    "active_on": """end IS NULL AND id IN
        (SELECT event FROM notices WHERE phase = 'new' AND delivered > 0 AND channel = ?)""",
}


@dataclass(frozen=True)
class Notice:
    """A pending notification of one channel about one event."""

    id: int
    event: WatchedEvent
    channel: str
    phase: str  # `new` or `end`

    @property
    def key(self) -> str:
        """Its name for receivers, the same at every attempt."""
        return f"{self.event.id}.{self.phase}"


class History:
    """The events of one folder; may be used from any thread. Raises HistoryError for a file that is not a history."""

    def __init__(self, path: Path, readonly: bool = False):
        self.path = path
        self._lock = threading.Lock()
        try:
            if readonly:
                self._connection = sqlite3.connect(
                    f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False
                )
            else:
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                path.touch(mode=0o600)  # addresses that were added on the page may contain passwords
                self._connection = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
                # readers such as `lstr events` do not wait for the writer, nor it for them
                self._connection.execute("PRAGMA journal_mode=WAL")
            # an event that a channel has announced is on the disk even if the power fails
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute("PRAGMA foreign_keys=ON")
            version = self._connection.execute("PRAGMA user_version").fetchone()[0]
            if version == 0 and not readonly:
                with self._transaction() as connection:
                    for statement in TABLES.split(";"):
                        connection.execute(statement)
                    connection.execute(f"PRAGMA user_version={VERSION}")
                version = VERSION
        except (sqlite3.Error, OSError) as error:
            hint = "name another folder as `data`."
            raise HistoryError(f"{path} cannot be used as a history ({error}).", hint) from error
        if version != VERSION:
            self._connection.close()
            hint = "update lstr, or name another folder as `data`."
            raise HistoryError(f"{path} is a history of version {version}; this lstr reads version {VERSION}.", hint)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction. Raises HistoryError if it fails, for example on a full disk, and keeps nothing of it."""
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
                raise HistoryError(f"{self.path} cannot be written ({error}).", "make room on the disk.") from error

    def _read(self, query: str, values: Collection[Any] = ()) -> list[tuple[Any, ...]]:
        with self._lock:
            try:
                return self._connection.execute(query, tuple(values)).fetchall()
            except sqlite3.Error as error:
                raise HistoryError(f"{self.path} cannot be read ({error}).", "check that it is a history.") from error

    def _select(self, clauses: str, *values: Any) -> list[WatchedEvent]:
        rows = self._read(f"SELECT {', '.join(COLUMNS)} FROM events {clauses}", values)
        return [_event(row) for row in rows]

    def begin(self, event: WatchedEvent, channels: Collection[str]) -> None:
        """Store a new event, with a notice for each of the channels."""
        with self._transaction() as connection:
            values = {n: v.timestamp() if isinstance(v, datetime) else v for n, v in vars(event).items()}
            marks = ", ".join("?" * len(values))
            connection.execute(f"INSERT INTO events ({', '.join(values)}) VALUES ({marks})", [*values.values()])
            rows = [(event.id, channel) for channel in channels]
            connection.executemany("INSERT INTO notices (event, channel, phase) VALUES (?, ?, 'new')", rows)

    def update(self, event: WatchedEvent) -> None:
        """Store that an active event was seen again, or its end, with a notice for each channel that has its start."""
        end = event.end and event.end.timestamp()
        with self._transaction() as connection:
            changed = connection.execute(
                "UPDATE events SET seen = ?, top_score = max(top_score, ?), end = ?, still_active = ? "
                "WHERE id = ? AND end IS NULL",
                (end or event.seen.timestamp(), event.top_score, end, event.still_active, event.id),
            ).rowcount
            if changed and event.end:
                connection.execute(
                    "INSERT INTO notices (event, channel, phase) "
                    "SELECT event, channel, 'end' FROM notices WHERE event = ? AND phase = 'new'",
                    (event.id,),
                )

    def end_all(self) -> int:
        """End all active events when they were last seen, as after a kill, and return their number."""
        active = self._select("WHERE end IS NULL")
        for event in active:
            self.update(replace(event, end=event.seen, still_active=True))
        return len(active)

    def attach(self, event_id: str, **names: str) -> None:
        """Store the name of the `clip` or the `picture` of an event; an empty name removes it."""
        with self._transaction() as connection:
            for column, name in names.items():
                connection.execute(f"UPDATE events SET {column} = ? WHERE id = ?", (name, event_id))

    def judge(self, event_id: str, verdict: str) -> bool:
        """Store a verdict: `right`, `wrong` or empty. Returns whether there is such an event."""
        with self._transaction() as connection:
            return connection.execute("UPDATE events SET verdict = ? WHERE id = ?", (verdict, event_id)).rowcount > 0

    def find(self, event_id: str) -> WatchedEvent | None:
        """Return the event of an id."""
        return next(iter(self._select("WHERE id = ?", event_id)), None)

    def events(self, limit: int = -1, **wanted: Any) -> list[WatchedEvent]:
        """Return the events that have all `wanted` values, which CLAUSES names, the latest start first.

        None selects all; a negative `limit` means no limit.
        """
        found = {CLAUSES[name]: value for name, value in wanted.items() if value is not None}
        values = [value.timestamp() if isinstance(value, datetime) else value for value in found.values()]
        return self._select(
            f"WHERE {' AND '.join(found) or 'TRUE'} ORDER BY start DESC, id DESC LIMIT ?", *values, limit
        )

    def pending(self, channel: str) -> list[Notice]:
        """Return the oldest notices that a channel can deliver now."""
        rows = self._read(
            f"SELECT notices.id, phase, {', '.join(f'events.{name}' for name in COLUMNS)} FROM notices "
            f"JOIN events ON events.id = event WHERE channel = ? AND {DELIVERABLE} ORDER BY notices.id LIMIT 100",
            (channel,),
        )
        return [Notice(number, _event(row), channel, phase) for number, phase, *row in rows]

    def mark_delivered(self, notice: Notice, now: datetime) -> None:
        """Store that a notice was delivered."""
        with self._transaction() as connection:
            connection.execute("UPDATE notices SET delivered = ? WHERE id = ?", (now.timestamp(), notice.id))

    def drop(self, notice: Notice, now: datetime) -> None:
        """Store that a channel announces neither start nor end of an event."""
        with self._transaction() as connection:
            connection.execute(
                "UPDATE notices SET delivered = ? WHERE event = ? AND channel = ? AND delivered IS NULL",
                (now.timestamp(), notice.event.id, notice.channel),
            )

    def last_announced(self, source: str, action: str, until: datetime) -> datetime | None:
        """Return the start of the latest event until a time that has a notice."""
        query = "SELECT max(start) FROM events WHERE source = ? AND action = ? AND start <= ?"
        query += " AND id IN (SELECT event FROM notices)"
        ((start,),) = self._read(query, (source, action, until.timestamp()))
        return None if start is None else datetime.fromtimestamp(start).astimezone()

    def count_announced(self, channel: str, since: datetime, until: datetime) -> int:
        """Return the number of events decided in a span that have a notice for a channel."""
        query = "SELECT count(*) FROM notices JOIN events ON events.id = notices.event"
        query += " WHERE channel = ? AND phase = 'new' AND decided BETWEEN ? AND ?"
        return int(self._read(query, (channel, since.timestamp(), until.timestamp()))[0][0])

    def set_value(self, name: str, value: Any) -> None:
        """Keep a JSON value across restarts; None deletes it."""
        with self._transaction() as connection:
            if value is None:
                connection.execute("DELETE FROM kept WHERE name = ?", (name,))
            else:
                connection.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (name, json.dumps(value)))

    def value(self, name: str) -> Any:
        """Return a kept value, or None."""
        rows = self._read("SELECT value FROM kept WHERE name = ?", (name,))
        return json.loads(rows[0][0]) if rows else None

    def delete_old(self, seconds: float) -> list[WatchedEvent]:
        """Delete events that ended more than `seconds` ago, with their notices, and return them."""
        before = time() - seconds
        old = self._select("WHERE end < ?", before)
        with self._transaction() as connection:
            connection.execute("DELETE FROM events WHERE end < ?", (before,))
        return old

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._connection.close()


def lock_folder(folder: Path) -> FileIO:
    """Keep other services out of a data folder until the returned file is closed or the process is killed.

    Raises HistoryError if another service has it, or if it cannot be written.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        (folder / "lock").touch(mode=0o600)
        file = (folder / "lock").open("a+b", buffering=0)
    except OSError as error:
        reason = error.strerror or error
        raise HistoryError(f"{folder} cannot be written ({reason}).", "name another folder as `data`.") from error
    if not lock(file):
        with file:
            file.seek(0)
            holder = file.read().decode(errors="replace").strip()
        hint = "end that one first, or name another folder as `data`."
        raise HistoryError(f"Another `lstr watch` uses {folder}{holder and f' (process {holder})'}.", hint)
    with suppress(OSError):  # only people read the number: a full disk prevents no start
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
    return file


def _event(row: Collection[Any]) -> WatchedEvent:
    values = dict(zip(COLUMNS, row, strict=True))
    for name in ("start", "decided", "seen", "end"):
        if values[name] is not None:
            values[name] = datetime.fromtimestamp(values[name]).astimezone()
    return WatchedEvent(**values | {"still_active": bool(values["still_active"])})

"""What the page of a watching service shows, in memory that does not grow: sources, scores, events, pictures."""

import base64
import json
import re
import secrets
import threading
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.errors import HistoryError
from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.zones import Zones
from lstr.files.names import without_credentials
from lstr.pipelines.detection.decision import Decision, Opened
from lstr.pipelines.detection.sinks import End, Sink
from lstr.pipelines.pages.palette import colours_of
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.shown_source import ShownSource
from lstr.timeline import Thresholds, iso

# Between two pictures of a source that are made for browsers, however many look.
PICTURE_SECONDS = 0.45
QUALITY = 80  # of JPEG
STATUS_SECONDS = 1.0  # between two looks at what has become of the sources
# Events that are on and shown, at most.
MOST_ON = 1000
# What a session adds to the name of a source that is opened while the one before it ends.
AGAIN = re.compile(r"~\d+$")
PHASES = ("new", "update", "end")
MOST_MESSAGES, MOST_BYTES = 4096, 2**21


class Board:
    """What is shown of the sources of a service; may be used from any thread.

    names: the sources that are to be opened. history: the events that the page lists. `messages` to browsers are
    numbered, and the newest of them kept, so that one which slept catches up.
    """

    def __init__(self, names: Iterable[str], history: History):
        self.history = history
        self.run = secrets.token_hex(6)
        """A word of this board alone: the numbers of another one's messages mean nothing here."""
        self._lock = threading.RLock()
        self._sources = {name: ShownSource(name) for name in names}
        self._on: dict[str, WatchedEvent] = {}
        self._snoozes: dict[tuple[str | None, str | None], datetime | None] = {}
        self._messages = Messages()
        self._looked = 0.0

    @property
    def names(self) -> list[str]:
        """The sources, in their order."""
        with self._lock:
            return list(self._sources)

    @property
    def actions(self) -> list[str]:
        """The classes of all sources, each once."""
        with self._lock:
            return list(dict.fromkeys(label for source in self._sources.values() for label in source.classes))

    def source(
        self,
        name: str,
        *,
        address: str | None = None,
        paused: bool | None = None,
        trouble: str | None = None,
        thresholds: Mapping[str, Thresholds] | None = None,
    ) -> None:
        """Show a source, or what has changed of it. The address loses its credentials; `trouble` is one sentence."""
        with self._lock:
            source = self._sources.setdefault(name, ShownSource(name))
            if address is not None:
                source.address = without_credentials(address)
            if paused is not None:
                source.paused = paused
                if paused:
                    source.keep_counts()
            if trouble is not None:
                source.trouble = without_credentials(trouble)
            if thresholds is not None:
                source.thresholds = dict(thresholds)
                self._tell("anew")
            self._tell_state(source)

    def zone(self, name: str, zones: Zones, drawn: bool) -> None:
        """Show the zones of a source; `drawn` says that they are the page's own, and not the file's."""
        with self._lock:
            source = self._sources.setdefault(name, ShownSource(name))
            if (source.zones, source.drawn) != (zones, drawn):
                source.zones, source.drawn = zones, drawn
                self._tell("zones", source=name, zones=zones, drawn=drawn)

    def remove(self, name: str) -> None:
        """Show a source no more."""
        with self._lock:
            if self._sources.pop(name, None):
                self._tell("gone", source=name)

    def tell(self, event: WatchedEvent, phase: str) -> None:
        """Show an event that is `new`, has changed (`update`) or come to its `end`, as the history has it."""
        assert phase in PHASES
        with self._lock:  # so that of two threads the later one has the newer event: one is not on after its end
            with suppress(HistoryError):  # what a person has said of it, its clip: only the history knows all
                event = self.history.find(event.id) or event
            if event.end is None:
                self._on[event.id] = event
                while len(self._on) > MOST_ON:
                    del self._on[next(iter(self._on))]
            else:
                self._on.pop(event.id, None)
            self._tell("event", phase=phase, event=event.to_dict())

    def snooze(self, snoozes: Mapping[tuple[str | None, str | None], datetime | None]) -> None:
        """Show of which sources and actions nobody is told, and until when; None is all, or until somebody ends it."""
        with self._lock:
            if snoozes != self._snoozes:
                self._snoozes = dict(snoozes)
                self._tell("snoozes", snoozes=self._snoozed())

    def sink(self) -> Sink:
        """A sink for one source: give the method to the session as it makes sinks."""
        return BoardSink(self)

    def see(self, name: str, chunk: Chunk) -> None:
        """Take the picture of a chunk that is read. It is kept as it is, and encoded where a browser wants it."""
        source = self._found(name)
        if source:
            source.frame, source.number = chunk.frames[-1], source.number + 1

    def picture(self, name: str) -> tuple[int, bytes] | None:
        """The newest picture of a source as JPEG, and its number; at most one in PICTURE_SECONDS is made."""
        source = self._sources.get(name)
        if source is None or source.frame is None:
            return None
        with source.drawing:
            frame, number = source.frame, source.number
            if number != source.jpeg[0] and monotonic() - source.made >= PICTURE_SECONDS:
                source.made = monotonic()
                blue_first = cv2.cvtColor(frame, cv2.COLOR_RGB2BGR)
                made, data = cv2.imencode(".jpg", blue_first, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])
                assert made
                source.jpeg = number, data.tobytes()
            return source.jpeg

    def states(self) -> list[dict[str, Any]]:
        """How each source does, without scores."""
        with self._lock:
            return [source.to_dict() for source in self._sources.values()]

    def silences(self) -> dict[str, float]:
        """Seconds since something was decided on each source that is not paused, or since it was to be."""
        with self._lock:
            return {name: source.silence() for name, source in self._sources.items() if not source.paused}

    def state(self) -> dict[str, Any]:
        """All of it as a JSON object, with the place in the messages from which a browser goes on."""
        with self._lock:
            sources = [self._whole(source) for source in self._sources.values()]
            return {
                "at": self._mark(),
                "now": iso(datetime.now().astimezone()),
                "sources": sources,
                "on": [event.to_dict() for event in self._on.values()],
                "snoozes": self._snoozed(),
                "colours": colours_of(self.actions),
            }

    def after(self, mark: str) -> tuple[str, list[str]] | None:
        """The messages that follow a mark of this board, and the mark of their end.

        None where they are no longer kept, or the mark is another board's: the browser then needs the `state` anew.
        """
        run, _, number = mark.partition("-")
        with self._lock:
            if monotonic() - self._looked > STATUS_SECONDS:
                self._looked = monotonic()
                for source in self._sources.values():
                    self._tell_state(source)
            if run != self.run or not (number.isascii() and number.isdecimal() and len(number) < 18):
                return None
            texts = self._messages.after(int(number))
            return None if texts is None else (self._mark(), texts)

    def open(self, source: Opened) -> None:
        """A source is opened: what its sink does."""
        with self._lock:
            shown = self._found(source.id)
            if shown:
                shown.open(source)
                self._tell("anew")  # its classes, and the place of its scores

    def take(self, name: str, decision: Decision) -> None:
        """Show a decision: what a sink does."""
        with self._lock:
            source = self._found(name)
            if source and len(decision.scores) == len(source.classes):
                column, codes = source.take(decision)
                at = iso(decision.at) if decision.at else None
                values = {"column": column, "at": at, "codes": _text(codes), "picture": source.number}
                self._tell("scores", source=source.name, **values)

    def close(self, opened: Opened, end: End) -> None:
        """A source is over: what its sink does."""
        with self._lock:
            source = self._found(opened.id)
            if source and source.status is opened.status:
                if end.error and not isinstance(end.error, GeneratorExit):
                    source.trouble = without_credentials(str(end.error))
                self._tell_state(source)

    def _found(self, name: str) -> ShownSource | None:
        return self._sources.get(name) or self._sources.get(AGAIN.sub("", name))

    def _whole(self, source: ShownSource) -> dict[str, Any]:
        first, codes = source.rows.columns()
        return source.to_dict() | {
            "classes": source.classes,
            "rules": {label: [rule.on, rule.off] for label, rule in source.thresholds.items()},
            "first": first,
            "columns": codes.shape[1],
            "codes": _text(codes),
            "at": iso(source.decided_at) if source.decided_at else None,
            "picture": source.number,
            "zones": source.zones,
            "drawn": source.drawn,
        }

    def _snoozed(self) -> list[dict[str, Any]]:
        now = datetime.now().astimezone()
        snoozes = [(key, until) for key, until in self._snoozes.items() if until is None or until > now]
        return [{"source": s, "action": a, "until": until and iso(until)} for (s, a), until in snoozes]

    def _mark(self) -> str:
        return f"{self.run}-{self._messages.newest}"

    def _tell_state(self, source: ShownSource) -> None:
        text = json.dumps(source.to_dict())
        if text != source.told:
            source.told = text
            self._tell("source", state=source.to_dict())

    def _tell(self, kind: str, **values: Any) -> None:
        self._messages.add(json.dumps({"kind": kind, **values}, separators=(",", ":")))


class BoardSink(Sink):
    """The decisions on one source, shown on a board."""

    name = "the page"
    waiting = 40

    def __init__(self, board: Board):
        self._board = board
        self._source: Opened | None = None

    def open(self, source: Opened) -> None:
        self._source = source
        self._board.open(source)

    def take(self, decision: Decision) -> None:
        assert self._source
        self._board.take(self._source.id, decision)

    def close(self, end: End) -> None:
        if self._source:
            self._board.close(self._source, end)


class Messages:
    """The newest messages, numbered from 1; at most MOST_MESSAGES of them, and MOST_BYTES."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque()
        self._bytes = 0
        self.newest = 0

    def add(self, text: str) -> None:
        """Number a message, and forget the oldest where there are too many."""
        self._texts.append(text)
        self._bytes += len(text)
        self.newest += 1
        while len(self._texts) > MOST_MESSAGES or self._bytes > MOST_BYTES:
            self._bytes -= len(self._texts.popleft())

    def after(self, number: int) -> list[str] | None:
        """The messages that follow a number; None where some of them are forgotten."""
        missing = self.newest - number
        if not 0 <= missing <= len(self._texts):
            return None
        return [self._texts[at] for at in range(len(self._texts) - missing, len(self._texts))]


def _text(codes: NDArray[np.uint8]) -> str:
    return base64.b64encode(np.ascontiguousarray(codes).tobytes()).decode("ascii")

"""What the page of a service shows, in bounded memory: sources with their scores and frames, active events, snoozes."""

import base64
import json
import secrets
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import HistoryError
from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.zones import Zones
from lstr.files.names import without_credentials
from lstr.pipelines.detection.decision import Decision, End, Opened, Sink, Status
from lstr.pipelines.pages.palette import colours_of
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.recorder import Snooze
from lstr.timeline import Thresholds, iso

MAX_COLUMNS = 600 * FEATURES_PER_SECOND  # chunks whose scores are kept: ten minutes
FULL_SCALE, NO_SCORE = 254, 255  # the codes of score 1, and of a chunk without a decision
COUNTERS = ("decided", "dropped", "unseen", "reconnects")
IMAGE_INTERVAL_S = 0.45  # between two JPEG images of a source, for any number of browsers
JPEG_QUALITY = 80
MAX_ACTIVE = 1000  # active events that are shown
MAX_MESSAGES = 4096  # kept for browsers that slept


@dataclass
class ShownSource:
    """One source. Its columns are chunks, counted on when it is opened again."""

    name: str
    address: str = ""
    paused: bool = False
    trouble: str = ""
    classes: tuple[str, ...] = ()
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)
    zones: Zones = ()
    drawn: bool = False
    """Whether its zones were drawn on the page."""
    status: Status | None = None
    codes: deque[bytes] = field(default_factory=lambda: deque(maxlen=MAX_COLUMNS))
    """A byte for each class in each of the latest columns."""
    newest: int = -1
    """The latest column."""
    offset: int | None = None
    """From a chunk to its column; None before the first decision since it was opened."""
    decided_at: datetime | None = None
    changed: float = field(default_factory=monotonic)
    """When it was decided last, on the monotonic clock, or added."""
    frame: NDArray[np.uint8] | None = None
    number: int = 0
    """The number of the latest frame."""
    jpeg: tuple[int, bytes] = (0, b"")
    encoded: float = 0.0
    """When the image was made, on the monotonic clock."""
    encoding: threading.Lock = field(default_factory=threading.Lock)
    sent: dict[str, Any] = field(default_factory=dict)
    """The state that browsers know."""

    def open(self, source: Opened) -> None:
        """Show the counters of a source that is opened, perhaps again."""
        if self.classes != source.classes:
            self.classes = source.classes
            self.codes.clear()
        self.status, self.offset, self.trouble = source.status, None, ""
        self.address = self.address or without_credentials(source.origin)

    def add(self, decision: Decision) -> bytes:
        """Keep the scores of a decision, and return their codes."""
        now, codes = monotonic(), encode_scores(decision.scores)
        if self.offset is None:
            silent = int((now - self.changed) * FEATURES_PER_SECOND) if self.codes else 0
            self.offset = self.newest + 1 + silent - decision.chunk
        column = self.offset + decision.chunk
        if self.codes:
            missing = min(column - self.newest - 1, MAX_COLUMNS)
            self.codes.extend([bytes([NO_SCORE]) * len(codes)] * missing)
        self.codes.append(codes)
        self.newest, self.changed, self.decided_at = column, now, decision.at
        return codes

    def state(self) -> dict[str, Any]:
        """Return its JSON object without scores."""
        lag = self.status.latency_ms(95) if self.status else []
        link = "paused" if self.paused else self.status.link if self.status else "waiting"
        return {
            "name": self.name,
            "address": self.address,
            "paused": self.paused,
            "trouble": self.trouble,
            "link": link,
            "lag_ms": round(lag[0]) if lag else None,
            **{name: getattr(self.status, name, 0) for name in COUNTERS},
        }

    def to_dict(self) -> dict[str, Any]:
        """Return its whole JSON object."""
        columns = np.frombuffer(b"".join(self.codes), np.uint8).reshape(len(self.codes), len(self.classes))
        return self.state() | {
            "classes": self.classes,
            "rules": {label: [rule.on, rule.off] for label, rule in self.thresholds.items()},
            "first": self.newest + 1 - len(self.codes),
            "columns": len(self.codes),
            "codes": base64.b64encode(columns.T.tobytes()).decode(),
            "at": iso(self.decided_at) if self.decided_at else None,
            "picture": self.number,
            "zones": self.zones,
            "drawn": self.drawn,
        }


class Dashboard:
    """The state of a service for its page; may be used from any thread.

    Browsers get numbered messages. The latest of them are kept, so that a browser that slept catches up. A message
    `reload` lets them read the whole state again.
    """

    def __init__(self, history: History):
        self.history = history
        self.run = secrets.token_hex(6)
        """A word of this object: message numbers of another run mean nothing."""
        self._lock = threading.RLock()
        self._sources: dict[str, ShownSource] = {}
        self._active: dict[str, WatchedEvent] = {}
        self._snoozes: Sequence[Snooze] = ()
        self._messages: deque[str] = deque(maxlen=MAX_MESSAGES)
        self._count = 0
        """Number of the latest message."""

    @property
    def names(self) -> list[str]:
        """The names of the sources, in their order."""
        with self._lock:
            return list(self._sources)

    @property
    def actions(self) -> list[str]:
        """The classes of all sources, each once."""
        with self._lock:
            return list(dict.fromkeys(label for source in self._sources.values() for label in source.classes))

    def update_source(
        self,
        name: str,
        *,
        address: str | None = None,
        paused: bool | None = None,
        trouble: str | None = None,
        thresholds: Mapping[str, Thresholds] | None = None,
        zones: tuple[Zones, bool] | None = None,
    ) -> None:
        """Show a source, or what has changed of it.

        Args:
            name: Its name.
            address: Its address, shown without credentials.
            paused: Whether it is paused.
            trouble: One sentence, shown without credentials.
            thresholds: The thresholds of each class.
            zones: Its zones, and whether they were drawn on the page.
        """
        with self._lock:
            is_new = name not in self._sources
            source = self._sources.setdefault(name, ShownSource(name))
            if address is not None:
                source.address = without_credentials(address)
            if paused is not None:
                source.paused = paused
            if trouble is not None:
                source.trouble = without_credentials(trouble)
            if thresholds is not None:
                source.thresholds = dict(thresholds)
            if zones is not None and zones != (source.zones, source.drawn):
                source.zones, source.drawn = zones
                self._send("zones", source=name, zones=source.zones, drawn=source.drawn)
            if is_new or thresholds is not None:
                self._send("reload")
            self._send_state(source)

    def remove_source(self, name: str) -> None:
        """Show a source no longer."""
        with self._lock:
            if self._sources.pop(name, None):
                self._send("removed", source=name)

    def show_event(self, event: WatchedEvent, phase: str) -> None:
        """Show an event that is `new`, has changed (`update`) or has come to its `end`."""
        with self._lock:  # so that of two threads the later one has the newer event
            with suppress(HistoryError):  # only the history has verdict and clip
                event = self.history.find(event.id) or event
            if event.end is None:
                self._active[event.id] = event
                while len(self._active) > MAX_ACTIVE:
                    del self._active[next(iter(self._active))]
            else:
                self._active.pop(event.id, None)
            self._send("event", phase=phase, event=event.to_dict())

    def show_snoozes(self, snoozes: Sequence[Snooze]) -> None:
        """Show which events are not announced."""
        with self._lock:
            if snoozes != self._snoozes:
                self._snoozes = snoozes
                self._send("snoozes", snoozes=msgspec.to_builtins(snoozes))

    def refresh(self) -> None:
        """Send the state of each source that has changed."""
        with self._lock:
            for source in self._sources.values():
                self._send_state(source)

    def take_frame(self, name: str, chunk: Chunk) -> None:
        """Keep the frame of a chunk that was read. It is encoded when a browser asks for it."""
        source = self._sources.get(name)
        if source:
            source.frame, source.number = chunk.frames[-1], source.number + 1

    def image(self, name: str) -> bytes | None:
        """Return the latest frame of a source as JPEG, at most one per IMAGE_INTERVAL_S."""
        source = self._sources.get(name)
        if source is None or source.frame is None:
            return None
        with source.encoding:
            frame, number = source.frame, source.number
            if number != source.jpeg[0] and monotonic() - source.encoded >= IMAGE_INTERVAL_S:
                source.encoded = monotonic()
                bgr = cv2.cvtColor(frame, cv2.COLOR_RGB2BGR)
                _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
                source.jpeg = number, data.tobytes()
            return source.jpeg[1]

    def states(self) -> list[dict[str, Any]]:
        """Return the state of each source without scores."""
        with self._lock:
            return [source.state() for source in self._sources.values()]

    def silences(self) -> dict[str, float]:
        """Return seconds since the last decision on each source that is not paused."""
        with self._lock:
            return {name: monotonic() - s.changed for name, s in self._sources.items() if not s.paused}

    def state(self) -> dict[str, Any]:
        """Return all of it as a JSON object, with the mark of the latest message."""
        with self._lock:
            return {
                "mark": self._mark,
                "now": iso(datetime.now().astimezone()),
                "sources": [source.to_dict() for source in self._sources.values()],
                "on": [event.to_dict() for event in self._active.values()],
                "snoozes": msgspec.to_builtins(self._snoozes),
                "colours": colours_of(self.actions),
            }

    def messages_after(self, mark: str) -> tuple[str, list[str]]:
        """Return the mark of the latest message, and the JSON of the messages after an earlier one.

        For an unknown or too old mark they are one message with the whole state.
        """
        run, _, number = mark.partition("-")
        with self._lock:
            missing = self._count - int(number) if number.isascii() and number.isdecimal() and len(number) < 18 else -1
            if run != self.run or not 0 <= missing <= len(self._messages):
                return self._mark, [_message("state", state=self.state())]
            return self._mark, [self._messages[at] for at in range(-missing, 0)]

    def open(self, source: Opened) -> None:
        """Show that a source was opened."""
        with self._lock:
            shown = self._sources.get(source.id)
            if shown:
                shown.open(source)
                self._send("reload")  # its classes and the place of its scores changed

    def take(self, name: str, decision: Decision) -> None:
        """Show a decision."""
        with self._lock:
            source = self._sources.get(name)
            if source and len(decision.scores) == len(source.classes):
                codes = base64.b64encode(source.add(decision)).decode()
                at = iso(decision.at) if decision.at else None
                self._send("scores", source=name, column=source.newest, at=at, codes=codes, picture=source.number)

    def close(self, opened: Opened, end: End) -> None:
        """Show that a source has ended, unless it was opened again."""
        with self._lock:
            source = self._sources.get(opened.id)
            if source and source.status is opened.status:
                if end.error and not isinstance(end.error, GeneratorExit):
                    source.trouble = without_credentials(str(end.error))
                self._send_state(source)

    @property
    def _mark(self) -> str:
        return f"{self.run}-{self._count}"

    def _send_state(self, source: ShownSource) -> None:
        state = source.state()
        if state != source.sent:
            source.sent = state
            self._send("source", state=state)

    def _send(self, kind: str, **values: Any) -> None:
        self._messages.append(_message(kind, **values))
        self._count += 1


class DashboardSink(Sink):
    """The decisions on one source, shown on a dashboard."""

    name = "the page"
    waiting = 40

    def __init__(self, dashboard: Dashboard):
        self._dashboard = dashboard
        self._source: Opened | None = None

    def open(self, source: Opened) -> None:
        """Show that the source was opened."""
        self._source = source
        self._dashboard.open(source)

    def take(self, decision: Decision) -> None:
        """Show a decision."""
        assert self._source
        self._dashboard.take(self._source.id, decision)

    def close(self, end: End) -> None:
        """Show that the source has ended."""
        if self._source:
            self._dashboard.close(self._source, end)


def encode_scores(scores: NDArray[np.float32]) -> bytes:
    """Return a byte for each score; one that is not finite is no score."""
    finite = np.isfinite(scores)
    codes = np.rint(np.clip(np.where(finite, scores, 0), 0, 1) * FULL_SCALE).astype(np.uint8)
    codes[~finite] = NO_SCORE
    return codes.tobytes()


def _message(kind: str, **values: Any) -> str:
    return json.dumps({"kind": kind, **values}, separators=(",", ":"))

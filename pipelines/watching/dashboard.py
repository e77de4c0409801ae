"""What the page of a service shows, in bounded memory: sources with their scores and frames, active events, snoozes."""

import base64
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
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
from lstr.pipelines.pages.overlay import draw_people
from lstr.pipelines.pages.palette import colours_of
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.recorder import Snooze
from lstr.timeline import Person, Thresholds, iso

MAX_COLUMNS = 600 * FEATURES_PER_SECOND  # chunks whose scores are kept: ten minutes
FULL_SCALE, NO_SCORE = 254, 255  # the codes of score 1, and of a chunk without a decision
COUNTERS = ("decided", "dropped", "unseen", "reconnects")
# Between two JPEG images of a source, for any number of browsers. A page asks every 0.5 s: with a little less than that
# each request gets a new frame.
IMAGE_INTERVAL_S = 0.45
JPEG_QUALITY = 80
MAX_ACTIVE = 1000  # active events that are shown
MAX_CHANGES = 1000  # of events, that are kept for slow browsers

Message = dict[str, Any]


@dataclass
class SourceState:
    """One source. Its columns are chunks, counted on when it is opened again."""

    name: str
    address: str = ""
    paused: bool = False
    trouble: str = ""
    classes: tuple[str, ...] = ()
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)
    zones: Zones = ()
    drawn: bool = False  # whether its zones were drawn on the page
    status: Status | None = None
    was_lost: bool = False
    earlier: Mapping[str, int] = field(default_factory=dict)  # the counters of its earlier openings together
    # a byte for each class in each of the latest columns
    codes: deque[bytes] = field(default_factory=lambda: deque(maxlen=MAX_COLUMNS))
    newest: int = -1  # the latest column
    offset: int | None = None  # from a chunk to its column; None before the first decision since it was opened
    decided_at: datetime | None = None
    changed: float = field(default_factory=monotonic)  # when it was decided last, on the monotonic clock, or added
    frame: NDArray[np.uint8] | None = None
    number: int = 0  # the number of the latest frame
    people: Sequence[Person] = ()  # by a model on poses, of the latest decision
    # the number of the frame whose image was made last, when on the monotonic clock, and the image
    jpeg: tuple[int, float, bytes] = (0, 0.0, b"")
    encoding: threading.Lock = field(default_factory=threading.Lock)

    def add(self, decision: Decision) -> None:
        """Keep the scores of a decision."""
        now, finite = monotonic(), np.isfinite(decision.scores)
        self.people = decision.people
        values = np.rint(np.clip(np.where(finite, decision.scores, 0), 0, 1) * FULL_SCALE).astype(np.uint8)
        values[~finite] = NO_SCORE
        codes = values.tobytes()
        if self.offset is None:
            silent = int((now - self.changed) * FEATURES_PER_SECOND) if self.codes else 0
            self.offset = self.newest + 1 + silent - decision.chunk
        column = self.offset + decision.chunk
        if self.codes:
            missing = min(column - self.newest - 1, MAX_COLUMNS)
            self.codes.extend([bytes([NO_SCORE]) * len(codes)] * missing)
        self.codes.append(codes)
        self.newest, self.changed, self.decided_at = column, now, decision.at

    def state(self) -> Message:
        """Return its JSON object without scores."""
        lag = self.status.latency_ms(95) if self.status else []
        unopened = "ended" if self.trouble else "waiting"
        return {
            "name": self.name,
            "address": self.address,
            "paused": self.paused,
            "trouble": self.trouble,
            "link": "paused" if self.paused else self.status.link if self.status else unopened,
            "lag_ms": round(lag[0]) if lag else None,
            **self.counts(),
        }

    def counts(self) -> dict[str, int]:
        """Return its counters by name, of all its openings together."""
        return {name: self.earlier.get(name, 0) + getattr(self.status, name, 0) for name in COUNTERS}

    def scores(self, first: int) -> Message:
        """Return the JSON object of its columns from one on."""
        codes = [self.codes[at] for at in range(max(0, len(self.codes) - 1 - self.newest + first), len(self.codes))]
        columns = np.frombuffer(b"".join(codes), np.uint8).reshape(len(codes), len(self.classes))
        return {
            "first": self.newest + 1 - len(codes),
            "columns": len(codes),
            "codes": base64.b64encode(columns.T.tobytes()).decode(),
            "at": iso(self.decided_at) if self.decided_at else None,
            "picture": self.number,
        }


class Dashboard:
    """The state of a service for its page. May be used from any thread; hold `lock` to use `sources`."""

    def __init__(self, history: History, shows_images: bool = True):
        """Without images, people are drawn on black."""
        self.history, self._shows_images = history, shows_images
        self.lock = threading.RLock()
        self.sources: dict[str, SourceState] = {}
        self.version = 0
        """Raised by changes after which browsers need the whole state."""
        self._active: dict[str, WatchedEvent] = {}
        self.snoozes: list[Snooze] = []
        """Which events are not announced."""
        # the latest changes of events
        self._changes: deque[Message] = deque(maxlen=MAX_CHANGES)
        self._n_changes = 0

    @property
    def names(self) -> list[str]:
        """The names of the sources, in their order."""
        with self.lock:
            return list(self.sources)

    @property
    def actions(self) -> list[str]:
        """The classes of all sources, each once."""
        with self.lock:
            return list(dict.fromkeys(label for source in self.sources.values() for label in source.classes))

    def update_source(self, name: str, **changes: Any) -> None:
        """Show a source, with new values of fields of SourceState. Text is shown without credentials."""
        with self.lock:
            if name not in self.sources:
                self.sources[name] = SourceState(name)
                self.version += 1
            source = self.sources[name]
            for attribute, value in changes.items():
                shown = without_credentials(value) if isinstance(value, str) else value
                self.version += attribute in ("thresholds", "zones", "drawn") and getattr(source, attribute) != shown
                setattr(source, attribute, shown)

    def remove_source(self, name: str) -> None:
        """Show a source no longer."""
        with self.lock:
            self.version += self.sources.pop(name, None) is not None

    def show_event(self, event: WatchedEvent, phase: str) -> None:
        """Show an event that is `new`, has changed (`update`) or has come to its `end`."""
        with self.lock:  # so that of two threads the later one has the newer event
            with suppress(HistoryError):  # only the history has verdict and clip
                event = self.history.find(event.id) or event
            self._active.pop(event.id, None)
            if event.end is None:
                self._active[event.id] = event
                if len(self._active) > MAX_ACTIVE:
                    del self._active[next(iter(self._active))]
            self._changes.append({"kind": "event", "phase": phase, "event": event.to_dict()})
            self._n_changes += 1

    def refresh_event(self, event_id: str) -> WatchedEvent | None:
        """Show an event as the history has it now, for example with its clip, which may come after its end."""
        with suppress(HistoryError):
            if event := self.history.find(event_id):
                self.show_event(event, "update")
                return event
        return None

    def take_frame(self, name: str, chunk: Chunk) -> None:
        """Keep the frame of a chunk that was read. It is encoded when a browser asks for it."""
        source = self.sources.get(name)
        if source:
            source.frame, source.number = chunk.frames[-1], source.number + 1

    def image(self, name: str) -> bytes | None:
        """Return the latest frame of a source as JPEG, at most one per IMAGE_INTERVAL_S."""
        source = self.sources.get(name)
        if source is None or source.frame is None:
            return None
        with source.encoding:
            frame, number = source.frame, source.number
            if number != source.jpeg[0] and monotonic() - source.jpeg[1] >= IMAGE_INTERVAL_S:
                shown = draw_people(
                    frame if self._shows_images else np.zeros_like(frame),
                    [person.to_dict() for person in source.people],
                )
                bgr = cv2.cvtColor(shown, cv2.COLOR_RGB2BGR)
                _, data = cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])
                source.jpeg = number, monotonic(), data.tobytes()
            return source.jpeg[2]

    def state(self) -> Message:
        """Return all of it as a JSON object."""
        with self.lock:
            sources = []
            for source in self.sources.values():
                rules = {label: [rule.on, rule.off] for label, rule in source.thresholds.items()}
                more = {"classes": source.classes, "rules": rules, "zones": source.zones, "drawn": source.drawn}
                sources.append({**source.state(), **source.scores(0), **more})
            return {
                "now": iso(datetime.now().astimezone()),
                "sources": sources,
                "on": [event.to_dict() for event in self._active.values()],
                "snoozes": msgspec.to_builtins(self.snoozes),
                "colours": colours_of(self.actions),
            }

    def messages(self) -> Iterator[list[Message]]:
        """Yield lists of messages for one browser: first the whole state, then what changed since the list before."""
        version, n_changes = -1, 0
        snoozes: list[Snooze] = []
        known: dict[str, tuple[Message, int]] = {}
        while True:
            with self.lock:
                found: list[Message] = []
                missed = self._n_changes - n_changes
                if version != self.version or missed > len(self._changes):
                    found.append({"kind": "state", "state": self.state()})
                else:
                    for name, source in self.sources.items():
                        state, newest = known[name]
                        if source.newest != newest:
                            found.append({"kind": "scores", "source": name, **source.scores(newest + 1)})
                        if source.state() != state:
                            found.append({"kind": "source", "state": source.state()})
                    found += [self._changes[at] for at in range(-missed, 0)]
                    if snoozes != self.snoozes:
                        found.append({"kind": "snoozes", "snoozes": msgspec.to_builtins(self.snoozes)})
                version, n_changes, snoozes = self.version, self._n_changes, self.snoozes
                known = {name: (source.state(), source.newest) for name, source in self.sources.items()}
            yield found


class DashboardSink(Sink):
    """The decisions on one source, shown on a dashboard."""

    name = "the page"
    waiting = 40

    def __init__(self, dashboard: Dashboard):
        self._dashboard = dashboard

    def open(self, source: Opened) -> None:
        """Show that a source was opened, perhaps again."""
        self._opened = source
        with self._dashboard.lock:
            shown = self._dashboard.sources.get(source.id)
            if shown:
                if shown.classes != source.classes:
                    shown.classes = source.classes
                    shown.codes.clear()
                shown.earlier = Counter(shown.counts()) + Counter(reconnects=int(shown.was_lost))
                shown.was_lost = False
                shown.status, shown.offset, shown.trouble = source.status, None, ""
                shown.address = shown.address or without_credentials(source.origin)
                self._dashboard.version += 1

    def take(self, decision: Decision) -> None:
        """Show a decision."""
        with self._dashboard.lock:
            shown = self._dashboard.sources.get(self._opened.id)
            if shown and shown.status is self._opened.status:
                shown.add(decision)

    def close(self, end: End) -> None:
        """Show that the source has ended, unless it was opened again."""
        with self._dashboard.lock:
            shown = self._dashboard.sources.get(self._opened.id)
            if shown and shown.status is self._opened.status:
                shown.was_lost = shown.status.decided > 0 and not shown.paused  # else an attempt failed
                if end.error and not isinstance(end.error, GeneratorExit):
                    shown.trouble = without_credentials(str(end.error))

"""The sink that stores what a watched source was seen to do, before anybody is told."""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

from lstr.errors import HistoryError
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import Decision, Opened
from lstr.pipelines.detection.sinks import End, Sink
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History
from lstr.timeline import Event

RENEWED_SECONDS = 10.0  # between two notes that an event is still on
STEP = 0.05  # by which its highest score has to rise to be noted at once
MOST_UNSTORED = 1000  # changes that wait while the history cannot be written
# An event, and which phase of it is to be stored: `new`, `update` or `end`.
Change = tuple[WatchedEvent, str]


@dataclass(frozen=True)
class Storage:
    """Where the events of all sources go; `stored` hears of each when it is in the history, and of its phase.

    What cannot be written waits here, by source: it is not lost with the sink of a source that ends meanwhile.
    """

    history: History
    channels_of: Callable[[WatchedEvent, datetime], tuple[str, ...]]
    stored: Callable[[WatchedEvent, str], None]
    say: Callable[[str], None]
    troubles: set[str] = field(default_factory=set)
    """Sources whose events could not be stored, each told once."""
    unstored: dict[str, deque[Change]] = field(default_factory=dict)
    """What waits to be stored of each source, in order."""
    lock: threading.Lock = field(default_factory=threading.Lock)
    """Held while something is stored, so that it is stored once, and in order."""

    def add(self, source: str, event: WatchedEvent, phase: str) -> None:
        """Let a change of a source wait to be stored."""
        with self.lock:
            waiting = self.unstored.setdefault(source, deque(maxlen=MOST_UNSTORED))
            if phase != "update" or not waiting:  # an update is newer than what waits
                waiting.append((event, phase))

    def write_what_waits(self, source: str | None = None) -> None:
        """Write what waits of a source, or of all of them, as far as the history can be written."""
        for name in [*self.unstored] if source is None else [source]:
            with self.lock:
                self._write_waiting(name, self.unstored.get(name, deque()))

    def _write_waiting(self, source: str, waiting: deque[Change]) -> None:
        if not waiting:
            return
        while waiting:
            event, phase = waiting[0]
            try:
                self._write(event, phase)
            except HistoryError as error:
                if source not in self.troubles:
                    self.troubles.add(source)
                    self.say(f"{error} The decisions on {source} go on; what is not stored is not told.")
                return
            waiting.popleft()
            self.stored(event, phase)
        if source in self.troubles:
            self.troubles.discard(source)
            self.say(f"The history of {source} is written again.")

    def _write(self, event: WatchedEvent, phase: str) -> None:
        now = datetime.now().astimezone()
        if phase == "new":
            self.history.begin(event, self.channels_of(event, now), now)
            return
        self.history.renew(event.id, event.seen, event.top_score)
        if phase == "end":
            assert event.end
            self.history.end(event.id, event.end, event.still_on, now)


class Storing(Sink):
    """The events of one source to the history. An error of the history is told, and what it lacks is tried again."""

    name = "the history"

    def __init__(self, storage: Storage, model: str = "", false_alarms: Mapping[str, float] | None = None):
        self._storage, self._model, self._false_alarms = storage, model, false_alarms or {}
        self._source = ""
        self._classes: tuple[str, ...] = ()
        self._on: dict[str, WatchedEvent] = {}
        """The events that are on, by action."""
        self._stored: dict[str, float] = {}
        """The highest score of each as it was stored last."""
        self._renewed = monotonic()

    def open(self, source: Opened) -> None:
        """Learn whose events come."""
        self._source, self._classes = source.id, source.classes

    def take(self, decision: Decision) -> None:
        """Store the events of a decision, and now and then that others are still on."""
        now = decision.at or datetime.now().astimezone()
        for event in decision.events:
            self._take(event, now)
        for action, known in self._on.items():
            score = float(decision.scores[self._classes.index(action)])
            self._on[action] = known = replace(known, seen=now, top_score=max(known.top_score, score))
            if known.top_score - self._stored[action] >= STEP:
                self._store(known, "update")
        if self._on and monotonic() - self._renewed > RENEWED_SECONDS:
            self._renewed = monotonic()
            for known in self._on.values():
                self._store(known, "update")
        self._storage.write_what_waits(self._source)

    def close(self, end: End) -> None:
        """End the events that are on: of an action that has ended, else of the source."""
        now = datetime.now().astimezone()
        for event in end.events:
            self._take(event, event.at or now)
        for action in [*self._on]:
            known = self._on.pop(action)
            self._store(replace(known, end=known.seen, still_on=True), "end")
        self._storage.write_what_waits(self._source)

    def _take(self, event: Event, now: datetime) -> None:
        if event.event == "started":
            start = event.start_at or now - timedelta(seconds=event.time - event.start)
            known = WatchedEvent(
                new_id(start),
                self._source,
                event.label,
                start,
                now,
                event.score,
                event.score,
                now,
                model=self._model,
                false_alarms=self._false_alarms.get(event.label),
            )
            self._on[event.label] = known
            self._store(known, "new")
        elif event.event == "ended" and (ended := self._on.pop(event.label, None)):
            end = event.end_at or now
            self._store(replace(ended, end=end, seen=end, still_on=event.still_on), "end")

    def _store(self, event: WatchedEvent, phase: str) -> None:
        self._stored[event.action] = event.top_score
        self._storage.add(self._source, event, phase)


def alarms_of(loaded: Checkpoint) -> dict[str, float]:
    """False alarms an hour of each action, by the model file's own measurement on videos that it had not seen."""
    metrics: Any = loaded.about.get("metrics") if isinstance(loaded.about, Mapping) else None
    events = metrics.get("events") if isinstance(metrics, Mapping) else None
    classes = events.get("per_class") if isinstance(events, Mapping) else None
    if not isinstance(classes, Mapping):
        return {}
    rates = {label: one.get("false_alarms_per_hour") for label, one in classes.items() if isinstance(one, Mapping)}
    return {label: float(rate) for label, rate in rates.items() if isinstance(rate, int | float)}

"""Decisions become events of the history, with notices for the channels that are to announce them."""

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic
from typing import Any

import msgspec

from lstr.errors import HistoryError
from lstr.pipelines.detection.decision import Decision, End, Opened, Sink
from lstr.pipelines.watching.config import ActionConfig, WatchConfig
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History
from lstr.timeline import Event

RENEW_S = 10.0  # between two notes that an event is still active
SCORE_STEP = 0.05  # a rise of the top score that is stored at once
MAX_PENDING = 10_000  # changes that wait while the history cannot be written
SNOOZES = "snoozed"  # name of the snoozes in the history


class Snooze(msgspec.Struct, frozen=True):
    """Events that no channel announces for a while; None means every source, or every action."""

    source: str | None
    action: str | None
    until: datetime


class Policy:
    """Which channels announce an event. Snoozes are kept in the history; may be used from any thread.

    Store an event before asking about the next one: limits count stored events.
    """

    def __init__(self, config: WatchConfig, history: History):
        self._config, self._history = config, history
        self._lock = threading.Lock()

    def channels_of(self, event: WatchedEvent, now: datetime) -> tuple[str, ...]:
        """Return the channels that announce a new event, in the order of the configuration. Raises HistoryError."""
        action, rules = self._config.actions.get(event.action, ActionConfig()), self._config.notifications
        for snooze in self.snoozes(now):
            if snooze.source in (None, event.source) and snooze.action in (None, event.action):
                return ()
        quiet = rules.quiet if action.quiet is None else action.quiet
        if any(hours.contains(now.astimezone().time()) for hours in quiet):
            return ()
        cooldown = rules.cooldown if action.cooldown is None else action.cooldown
        if cooldown > 0:
            # events later than this one were stored while the clock was ahead, and do not count
            last = self._history.last_announced(event.source, event.action, event.start)
            if last is not None and (event.start - last).total_seconds() < cooldown:
                return ()
        names = [name for name in self._config.channels if action.notify is None or name in action.notify]
        limit, hour_ago = rules.max_per_hour, now - timedelta(hours=1)
        return tuple(
            name for name in names if limit is None or self._history.count_announced(name, hour_ago, now) < limit
        )

    def snooze(self, source: str | None, action: str | None, until: datetime | None) -> None:
        """Snooze events of a source, an action or both until a time, instead of an earlier snooze of the same two.

        With `until` None that snooze ends; wider and narrower ones stay.
        """
        with self._lock:
            kept = [other for other in self.snoozes() if (other.source, other.action) != (source, action)]
            self._keep([*kept, Snooze(source, action, until)] if until else kept)

    def forget(self, source: str) -> None:
        """End all snoozes of a source."""
        with self._lock:
            self._keep([snooze for snooze in self.snoozes() if snooze.source != source])

    def snoozes(self, now: datetime | None = None) -> list[Snooze]:
        """Return the snoozes at a time, by default now."""
        now = now or datetime.now().astimezone()
        kept = msgspec.convert(self._history.value(SNOOZES) or [], list[Snooze])
        return [snooze for snooze in kept if snooze.until > now]

    def _keep(self, snoozes: list[Snooze]) -> None:
        self._history.set_value(SNOOZES, msgspec.to_builtins(snoozes) or None)


class Recorder:
    """Writes changes of events to the history, in order.

    A change that cannot be written waits here, not in the sink of a source, because a source may end before.
    """

    def __init__(self, service: Any):
        self._service, self._history, self._log = service, service.history, service.log
        self._pending: deque[tuple[WatchedEvent, str]] = deque(maxlen=MAX_PENDING)
        self._lock = threading.RLock()
        self._fails = False

    def add(self, event: WatchedEvent, phase: str) -> None:
        """Store a change, or let it wait while the history cannot be written."""
        with self._lock:
            if phase != "update" or not self._pending:  # each later change contains what an update says
                self._pending.append((event, phase))
            self.flush()

    def flush(self) -> None:
        """Write waiting changes as far as the history can be written."""
        with self._lock:
            while self._pending:
                event, phase = self._pending[0]
                try:
                    if phase == "new":
                        channels = self._service.policy.channels_of(event, datetime.now().astimezone())
                        self._history.begin(event, channels)
                    else:
                        self._history.update(event)
                except HistoryError as error:
                    if not self._fails:
                        self._log(f"{error} Detection continues; events are stored and announced later.")
                    self._fails = True
                    return
                self._pending.popleft()
                self._service.show_stored(event, phase)
            if self._fails:
                self._fails = False
                self._log("The history can be written again.")


class RecorderSink(Sink):
    """The events of one source, for a recorder.

    Args:
        recorder: Where they go.
        model: The file name of the model.
        false_alarms: Measured false alarms per hour by action.
    """

    name = "the history"

    def __init__(self, recorder: Recorder, model: str, false_alarms: Mapping[str, float]):
        self._recorder, self._model, self._false_alarms = recorder, model, false_alarms
        self._active: dict[str, WatchedEvent] = {}
        # the top score of each action as it was stored last
        self._stored: dict[str, float] = {}
        self._renewed = monotonic()

    def open(self, source: Opened) -> None:
        """Take the names of the source and its classes."""
        self._opened = source

    def take(self, decision: Decision) -> None:
        """Store the events of a decision, and from time to time that others are still active."""
        now = decision.at or datetime.now().astimezone()
        for event in decision.events:
            self._take_event(event, now)
        is_due = monotonic() - self._renewed > RENEW_S
        if is_due:
            self._renewed = monotonic()
        for action, active in self._active.items():
            score = float(decision.scores[self._opened.classes.index(action)])
            self._active[action] = active = replace(active, seen=now, top_score=max(active.top_score, score))
            if is_due or active.top_score - self._stored[action] >= SCORE_STEP:
                self._store(active, "update")

    def close(self, end: End) -> None:
        """End the active events."""
        now = datetime.now().astimezone()
        for event in end.events:
            self._take_event(event, event.at or now)
        for known in self._active.values():
            self._store(replace(known, end=known.seen, still_active=True), "end")
        self._active.clear()

    def _take_event(self, event: Event, now: datetime) -> None:
        if event.event == "started":
            start = event.start_at or now - timedelta(seconds=event.time - event.start)
            rate, score = self._false_alarms.get(event.label), event.score
            begun = WatchedEvent(new_id(start), self._opened.id, event.label, start, now, score, score, now)
            self._active[event.label] = replace(begun, model=self._model, false_alarms=rate)
            self._store(self._active[event.label], "new")
        elif event.event == "ended" and (ended := self._active.pop(event.label, None)):
            end = event.end_at or now
            self._store(replace(ended, end=end, seen=end, still_active=event.still_active), "end")

    def _store(self, event: WatchedEvent, phase: str) -> None:
        self._stored[event.action] = event.top_score
        self._recorder.add(event, phase)

"""Who is told of a new event: by action; nobody within a cool-down, above a number an hour, in quiet hours or a snooze.

An event of which nobody is told is stored all the same.
"""

import json
import threading
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from lstr.pipelines.watching.config import ActionConfig, Hours, WatchConfig
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.telling.sentence import describe_seconds

KEPT = "snoozed"
"""The name under which the history keeps what is snoozed."""
HOUR = timedelta(hours=1)
LARGEST_ORDER = 4096
"""Bytes of an order to snooze that comes by MQTT."""
YEAR = 366 * 86400.0
FIELDS = {"seconds", "source", "action"}


@dataclass(frozen=True)
class Snooze:
    """What nobody is told of for a while; None is every source, or every action."""

    source: str | None
    action: str | None
    until: datetime | None
    """None is until somebody wakes it."""

    def holds(self, source: str, action: str, now: datetime) -> bool:
        """Whether an action on a source is snoozed by it."""
        return self.source in (None, source) and self.action in (None, action) and not self.is_over(now)

    def is_over(self, now: datetime) -> bool:
        """Whether its time has passed."""
        return self.until is not None and self.until <= now

    def to_dict(self) -> dict[str, Any]:
        """Its JSON object."""
        return asdict(self) | {"until": self.until and self.until.isoformat()}


class Policy:
    """Who is told of what. May be used from any thread; what is snoozed is kept in the history, over a restart.

    Ask it and store the event in one thread: what it counts are the events that are stored.
    """

    def __init__(self, config: WatchConfig, history: History):
        self._config = config
        self._history = history
        self._lock = threading.Lock()

    def channels_of(self, event: WatchedEvent, now: datetime) -> tuple[str, ...]:
        """The channels that are to be told of a new event, in the order of the configuration."""
        why = self.why(event, now)
        return tuple(channel for channel in self._config.channels if channel not in why)

    def why(self, event: WatchedEvent, now: datetime) -> dict[str, str]:
        """Why channels are not told of a new event: a reason for each of these. Raises HistoryError."""
        action = self._config.actions.get(event.action, ActionConfig())
        for_all = self._why_nobody(event, action, now)
        reasons: dict[str, str] = {}
        for name in self._config.channels:
            if action.tell is not None and name not in action.tell:
                reasons[name] = f"{event.action} is not for it"
            elif for_all:
                reasons[name] = for_all
            elif reason := self._why_not(name, now):
                reasons[name] = reason
        return reasons

    def _why_nobody(self, event: WatchedEvent, action: ActionConfig, now: datetime) -> str:
        for snooze in self.snoozed(now):
            if snooze.holds(event.source, event.action, now):
                return f"snoozed until {snooze.until.astimezone():%Y-%m-%d %H:%M:%S}" if snooze.until else "snoozed"
        quiet = self._config.telling.quiet if action.quiet is None else action.quiet
        if hours := _quiet(quiet, now):
            return f"quiet from {hours.since:%H:%M} to {hours.until:%H:%M}"
        cooldown = self._config.telling.cooldown if action.cooldown is None else action.cooldown
        # not of one that was stored while the clock was ahead, which would silence all until then
        last = self._history.last_told(event.source, event.action, event.start) if cooldown > 0 else None
        if last and (event.start - last).total_seconds() < cooldown:
            return f"the last of it began less than {describe_seconds(cooldown)} before"
        return ""

    def _why_not(self, channel: str, now: datetime) -> str:
        most = self._config.telling.most_an_hour
        if most is None or self._history.told(channel, now - HOUR, now) < most:
            return ""
        return f"it was told of {most} event{'' if most == 1 else 's'} within the hour"

    def snooze(self, source: str | None, action: str | None, until: datetime | None) -> None:
        """Tell nobody of an action, a source, an action on a source, or of anything, until then.

        None is every source, every action, or until somebody wakes it. It takes the place of one of the same two.
        """
        with self._lock:
            others = [other for other in self.snoozed() if (other.source, other.action) != (source, action)]
            self._keep([*others, Snooze(source, action, until)])

    def wake(self, source: str | None = None, action: str | None = None) -> int:
        """End all that is snoozed of a source, an action, an action on a source, or anything; how many snoozes."""
        with self._lock:
            before = self.snoozed()
            kept = [
                snooze
                for snooze in before
                if source not in (None, snooze.source) or action not in (None, snooze.action)
            ]
            self._keep(kept)
            return len(before) - len(kept)

    def end(self, source: str | None, action: str | None) -> None:
        """End the one snooze of just these two; wider and narrower ones hold on."""
        with self._lock:
            self._keep([other for other in self.snoozed() if (other.source, other.action) != (source, action)])

    def snoozed(self, now: datetime | None = None) -> list[Snooze]:
        """What is snoozed at that time, or now."""
        now = now or datetime.now().astimezone()
        return [snooze for snooze in map(_snooze, self._history.kept(KEPT) or ()) if not snooze.is_over(now)]

    def _keep(self, snoozes: Sequence[Snooze]) -> None:
        self._history.keep(KEPT, [snooze.to_dict() for snooze in snoozes] or None)


def _quiet(quiet: Sequence[Hours], now: datetime) -> Hours | None:
    return next((hours for hours in quiet if hours.holds(now.astimezone().time())), None)


def _snooze(values: dict[str, Any]) -> Snooze:
    until = values["until"]
    return Snooze(values["source"], values["action"], datetime.fromisoformat(until) if until else None)


@dataclass(frozen=True)
class SnoozeOrder:
    """To tell nobody of what happens on a source, of an action, or of anything, for so many seconds."""

    seconds: float | None
    """None is until it is woken; 0 wakes it."""
    source: str | None = None
    action: str | None = None

    def until(self, now: datetime) -> datetime | None:
        """When it ends."""
        return None if self.seconds is None else now + timedelta(seconds=self.seconds)


def read_snooze(payload: bytes, sources: Collection[str], actions: Collection[str]) -> SnoozeOrder:
    """An order from a number of seconds, or a JSON object. Raises ValueError, with a sentence, for what is neither."""
    if len(payload) > LARGEST_ORDER:
        raise ValueError("it is too long")
    try:
        values = json.loads(payload)
    except (ValueError, RecursionError):
        raise ValueError("it is neither a number of seconds nor JSON") from None
    if not isinstance(values, dict):
        values = {"seconds": values}
    if unknown := set(values) - FIELDS:
        raise ValueError(f"it has fields beyond {', '.join(sorted(FIELDS))}: {len(unknown)}")
    seconds, source, action = values.get("seconds"), values.get("source"), values.get("action")
    if seconds is not None and (isinstance(seconds, bool) or not isinstance(seconds, int | float)):
        raise ValueError("its seconds are no number")
    if seconds is not None and not 0 <= seconds <= YEAR:
        raise ValueError("its seconds are not between 0 and a year")
    for name, value, known in (("source", source, sources), ("action", action, actions)):
        if value is not None and value not in known:
            raise ValueError(f"there is no such {name}")
    return SnoozeOrder(seconds, source, action)

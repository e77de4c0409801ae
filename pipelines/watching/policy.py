"""Who is told of a new event: by action; nobody within a cool-down, above a number an hour, in quiet hours or a snooze.

An event of which nobody is told is stored all the same.
"""

import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from typing import Any

from lstr.pipelines.watching.config import ActionConfig, WatchConfig
from lstr.pipelines.watching.event import WatchedEvent
from lstr.pipelines.watching.history import History

# The name under which the history keeps what is snoozed.
KEPT = "snoozed"
HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Snooze:
    """What nobody is told of for a while; None is every source, or every action."""

    source: str | None
    action: str | None
    until: datetime | None
    """None is until somebody ends it."""

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
        """The channels that are to be told of a new event, in the order of the configuration. Raises HistoryError."""
        action, most = self._config.actions.get(event.action, ActionConfig()), self._config.telling.most_an_hour
        if self._is_silent(event, action, now):
            return ()
        named = [name for name in self._config.channels if action.tell is None or name in action.tell]
        return tuple(name for name in named if most is None or self._history.told(name, now - HOUR, now) < most)

    def _is_silent(self, event: WatchedEvent, action: ActionConfig, now: datetime) -> bool:
        """Whether nobody is told of an event now."""
        if any(snooze.holds(event.source, event.action, now) for snooze in self.snoozed(now)):
            return True
        quiet = self._config.telling.quiet if action.quiet is None else action.quiet
        if any(hours.holds(now.astimezone().time()) for hours in quiet):
            return True
        cooldown = self._config.telling.cooldown if action.cooldown is None else action.cooldown
        # not of one that was stored while the clock was ahead, which would silence all until then
        last = self._history.last_told(event.source, event.action, event.start) if cooldown > 0 else None
        return last is not None and (event.start - last).total_seconds() < cooldown

    def snooze(self, source: str | None, action: str | None, until: datetime) -> None:
        """Tell nobody of an action, a source, an action on a source, or of anything, until then.

        None is every source, or every action. It takes the place of one of the same two.
        """
        with self._lock:
            self._keep([*self._others(source, action), Snooze(source, action, until)])

    def end(self, source: str | None, action: str | None) -> None:
        """End the one snooze of just these two; wider and narrower ones hold on."""
        with self._lock:
            self._keep(self._others(source, action))

    def forget(self, source: str) -> None:
        """End all that is snoozed of a source."""
        with self._lock:
            self._keep([snooze for snooze in self.snoozed() if snooze.source != source])

    def snoozed(self, now: datetime | None = None) -> list[Snooze]:
        """What is snoozed at that time, or now."""
        now = now or datetime.now().astimezone()
        return [snooze for snooze in map(_snooze, self._history.kept(KEPT) or ()) if not snooze.is_over(now)]

    def _others(self, source: str | None, action: str | None) -> list[Snooze]:
        return [other for other in self.snoozed() if (other.source, other.action) != (source, action)]

    def _keep(self, snoozes: Sequence[Snooze]) -> None:
        self._history.keep(KEPT, [snooze.to_dict() for snooze in snoozes] or None)


def _snooze(values: dict[str, Any]) -> Snooze:
    until = values["until"]
    return Snooze(values["source"], values["action"], datetime.fromisoformat(until) if until else None)

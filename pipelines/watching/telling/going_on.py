"""Events of which a channel has told that they began and not that they ended, as it told of them last."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from lstr.pipelines.watching.event import WatchedEvent

STEP = 0.05
"""By which the highest score has to rise to be told at once."""
EVERY = 10.0
"""Seconds after which is told that an event still goes on."""
MOST = 1000
"""Events that are remembered; of the others no change is told."""


@dataclass
class _Told:
    event: WatchedEvent
    at: float
    """On the monotonic clock."""
    ending: bool = False


class GoingOn:
    """What was told last of each; may be used from any thread. It is forgotten with the program."""

    def __init__(self) -> None:
        self._told: dict[str, _Told] = {}
        self._lock = threading.Lock()

    def begin(self, event: WatchedEvent) -> None:
        """An event was told of, which goes on."""
        with self._lock:
            self._told[event.id] = _Told(event, monotonic())
            while len(self._told) > MOST:
                self._told.pop(next(iter(self._told)))

    def update(self, event: WatchedEvent, tell: Callable[[WatchedEvent], None]) -> None:
        """Tell of an event where it has changed enough, or was told of long ago; `tell` gets what was told last.

        An event is told of that was told as new, and whose end is not being told.
        """
        with self._lock:  # held while it is told, so that no end comes before it
            told = self._told.get(event.id)
            if told is None or told.ending or event.end or not _has_changed(told, event):
                return
            tell(told.event)
            self._told[event.id] = _Told(event, monotonic())

    def end(self, event_id: str) -> WatchedEvent | None:
        """Tell no more changes of an event, whose end is told now: how it was told of last, where that is known."""
        with self._lock:
            told = self._told.get(event_id)
            if told is None:
                return None
            told.ending = True
            return told.event

    def forget(self, event_id: str) -> None:
        """The end of an event was told."""
        with self._lock:
            self._told.pop(event_id, None)


def _has_changed(told: _Told, event: WatchedEvent) -> bool:
    before = told.event
    if (event.clip and not before.clip) or (event.picture and not before.picture):
        return True
    return event.top_score - before.top_score >= STEP or monotonic() - told.at >= EVERY

"""Orders that come by MQTT: to tell nobody for a while."""

import json
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta

LARGEST = 4096
"""Bytes of an order."""
YEAR = 366 * 86400.0
FIELDS = {"seconds", "source", "action"}


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
    if len(payload) > LARGEST:
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

"""What a watched source was seen to do: one action from its start to its end, as history, page and notices have it."""

import secrets
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from lstr.timeline import iso


@dataclass(frozen=True)
class WatchedEvent:
    """One action on one source. Times are aware datetimes; scores from 0 to 1."""

    id: str
    """The time and a random part: it sorts by time, and is a file name."""
    source: str
    action: str
    start: datetime
    """When the action began."""
    decided: datetime
    """When it was decided; `start` is earlier by the delay of the rule."""
    score: float
    """The one that reached its threshold."""
    top_score: float
    """The highest so far."""
    seen: datetime
    """When it was last known to be on; of an event that has ended its end."""
    end: datetime | None = None
    """None while it is on."""
    still_on: bool = False
    """Whether the source ended, not the action."""
    model: str = ""
    """The name of the model file that decided."""
    false_alarms: float | None = None
    """An hour, of this action at its threshold, by the model's own measurement; None where there is none."""
    clip: str = ""
    """The name of its film among the clips; empty while there is none."""
    picture: str = ""
    """The name of its picture among the clips."""
    verdict: str = ""
    """What a person has said of it: `right`, `wrong`, or nothing."""

    @property
    def seconds(self) -> float:
        """How long it has been on."""
        return ((self.end or self.seen) - self.start).total_seconds()

    def to_dict(self) -> dict[str, Any]:
        """Its JSON object: times as ISO 8601 with their zone, what is not known as null."""
        values = asdict(self) | {"seconds": round(self.seconds, 2)}
        times = {name: iso(value) for name, value in values.items() if isinstance(value, datetime)}
        scores = {name: round(values[name], 4) for name in ("score", "top_score")}
        return values | times | scores


def new_id(start: datetime) -> str:
    """An id for an event that began then."""
    return f"{start.astimezone():%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"

"""One action on a watched source from its start to its end, and the sentences that announce it."""

import math
import re
import secrets
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from lstr.files.names import displayed
from lstr.timeline import iso

# Lower-case words, such as `hall` and `living room`; a source of another name, such as `cam2`, is not a place.
PLACE = re.compile(r"[^\W\d_]+( [^\W\d_]+)*")
DAYS_PER_MONTH, DAYS_PER_YEAR = 30.44, 365.25


@dataclass(frozen=True)
class WatchedEvent:
    """One action on one source. Times are aware datetimes; scores are from 0 to 1."""

    id: str  # the time and a random part: it sorts by time, and is a file name
    source: str
    action: str
    start: datetime
    decided: datetime  # when it was detected, later than `start` by the delay of the thresholds
    score: float  # the score that reached the start threshold
    top_score: float  # the highest score so far
    seen: datetime  # when it was last known to be active; its end if it has ended
    end: datetime | None = None  # None while it is active
    still_active: bool = False  # whether the source ended, not the action
    model: str = ""  # the file name of the model
    # false alarms per hour of this action at its threshold, as measured for the model
    false_alarms: float | None = None
    clip: str = ""  # the file name of its clip, if there is one
    picture: str = ""  # the file name of its image, if there is one
    verdict: str = ""  # a person's verdict: `right`, `wrong` or empty

    @property
    def seconds(self) -> float:
        """How long it has been active."""
        return ((self.end or self.seen) - self.start).total_seconds()

    def to_dict(self) -> dict[str, Any]:
        """Return its JSON object: times as ISO 8601 with their zone, unknown values as null."""
        values = asdict(self) | {"seconds": round(self.seconds, 2)}
        times = {name: iso(value) for name, value in values.items() if isinstance(value, datetime)}
        return values | times | {name: round(values[name], 4) for name in ("score", "top_score")}


def new_id(start: datetime) -> str:
    """Return an id for an event that began at a time."""
    return f"{start.astimezone():%Y%m%dT%H%M%S}-{secrets.token_hex(4)}"


def title(event: WatchedEvent) -> str:
    """Return its action and source as a title."""
    action, source = (" ".join(displayed(name).split()) for name in (event.action, event.source))
    if not (PLACE.fullmatch(source) and source.islower()):
        return f"{action} on {source}"
    return f"{action} in {source}" if source.startswith("the ") else f"{action} in the {source}"


def format_seconds(seconds: float) -> str:
    """Return a length of time in at most two units: `4 s`, `2 min 5 s`, `3 h`, `1 day 2 h`."""
    whole = round(seconds)
    if whole < 1:
        return "less than 1 s"
    units = (("day", 86400), ("h", 3600), ("min", 60), ("s", 1))
    at = next(at for at, (_, length) in enumerate(units) if whole >= length)
    parts = []
    for unit, length in units[at : at + 2]:
        count, whole = divmod(whole, length)
        if count:
            parts.append(f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}")
    return " ".join(parts)


def describe_rate(per_hour: float) -> str:
    """Return how often there is a false alarm; empty for a value that is not a rate.

    A rate of 0 is described as a measurement, because it does not mean that there will be none.
    """
    if not 0 <= per_hour < math.inf:
        return ""
    if per_hour == 0:
        return "no false alarm was measured"
    for count, unit in ((per_hour, "an hour"), (per_hour * 24, "a day")):
        if count > 2 / 3:
            return f"about {round(count)} false alarms {unit}" if round(count) > 1 else f"about one false alarm {unit}"
    days = 1 / (per_hour * 24)
    if days < 2 * DAYS_PER_MONTH:
        return f"about one false alarm in {round(days)} days"
    if days < DAYS_PER_YEAR:
        return f"about one false alarm in {round(days / DAYS_PER_MONTH)} months"
    return "less than one false alarm a year"

"""A labelled time interval, used by label files, timelines and annotations."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

# h:mm:ss or m:ss, optionally with fractions of a second.
CLOCK = re.compile(r"(?:(\d{1,9}):([0-5]?\d)|(\d{1,9})):([0-5]?\d(?:[.,]\d{1,30})?)")
SURROGATE = re.compile("[\ud800-\udfff]")
LATEST = 1e9  # Seconds: 30 years. A longer video would need more chunks than any array can hold.


@dataclass(frozen=True)
class Segment:
    """An action from `start` to `end` in seconds; `score` is None for a manual label.

    A segment may be invalid, because label files may be; `find_error` reports the error.
    """

    start: float
    end: float
    label: str
    score: float | None = None
    subject: str = ""
    """The individual that performs the action, for example an animal; empty if unknown"""

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object with label, start and end, and with score and subject if they are set."""
        entry: dict[str, Any] = {"label": self.label, "start": self.start, "end": self.end}
        more = {"score": self.score, "subject": self.subject or None}
        return entry | {name: value for name, value in more.items() if value is not None}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> "Segment":
        """Build a segment from a JSON object of `to_dict`. Raises KeyError for a missing entry."""
        return cls(entry["start"], entry["end"], entry["label"], entry.get("score"), entry.get("subject", ""))


def is_time(value: object) -> bool:
    """Return whether a value is a plausible time in a video, in seconds; it may be negative."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LATEST <= value <= LATEST


def is_name(value: object) -> TypeGuard[str]:
    r"""Return whether a value is a valid class name that can be encoded as UTF-8; "\ud800" in JSON cannot."""
    return isinstance(value, str) and bool(value) and not SURROGATE.search(value)


def clock_seconds(text: str) -> float | None:
    """Parse a time such as 1:02:03.5 or 2:03, also with a decimal comma, to seconds; None for other text."""
    found = CLOCK.fullmatch(text.strip())
    if not found:
        return None
    hours, minutes, only_minutes, seconds = found.groups()
    return (int(hours or 0) * 60 + int(minutes or only_minutes)) * 60 + float(seconds.replace(",", "."))


def find_error(segment: Segment, classes: Collection[str]) -> tuple[str, str, str] | None:
    """Return the error of a segment that is invalid in any video: its kind, a sentence with the values, and a hint."""
    if segment.label not in classes:
        known = f"Add it to classes, or use one of: {', '.join(classes)}."
        return "unknown class", f"the label {segment.label!r} is not in classes.", known
    if segment.start < 0:
        return "before the start", f"the segment starts at {segment.start} s.", "Let it start at 0 or later."
    if segment.end < segment.start:
        sentence = f"the segment ends at {segment.end} s, before its start {segment.start} s."
        return "negative length", sentence, "Swap the two."
    return None

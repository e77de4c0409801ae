"""A labelled piece of time, the same in label files, timelines and annotations."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

# h:mm:ss or m:ss, seconds with or without a fraction.
CLOCK = re.compile(r"(?:(\d{1,9}):([0-5]?\d)|(\d{1,9})):([0-5]?\d(?:[.,]\d{1,30})?)")
SURROGATE = re.compile("[\ud800-\udfff]")
# Seconds: 30 years. A longer video would need more chunks than any array can hold.
LATEST = 1e9


@dataclass(frozen=True)
class Segment:
    """From `start` to `end` in seconds; `score` is None where a person labelled it.

    It can be wrong, as label files can, so that `find_error` can name each error.
    """

    start: float
    end: float
    label: str
    score: float | None = None
    subject: str = ""
    """Who does it, for example an animal; empty if it is not stated"""

    def to_dict(self) -> dict[str, Any]:
        """Return its JSON object: label, start, end, and score and subject if it has them."""
        entry: dict[str, Any] = {"label": self.label, "start": self.start, "end": self.end}
        more = {"score": self.score, "subject": self.subject or None}
        return entry | {name: value for name, value in more.items() if value is not None}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Segment:
        """Return the segment of a JSON object of `to_dict`. Raises KeyError if one of its names is missing."""
        return cls(entry["start"], entry["end"], entry["label"], entry.get("score"), entry.get("subject", ""))


def is_time(value: object) -> bool:
    """Return whether a value is a number of seconds that a time of a video can have; it may be negative."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LATEST <= value <= LATEST


def is_name(value: object) -> TypeGuard[str]:
    r"""Return whether a value can name a class and be written as UTF-8: "\ud800" of JSON cannot."""
    return isinstance(value, str) and bool(value) and not SURROGATE.search(value)


def clock_seconds(text: str) -> float | None:
    """Return the seconds of a time such as 1:02:03.5 or 2:03, also with a decimal comma; None if it is no such time."""
    found = CLOCK.fullmatch(text.strip())
    if not found:
        return None
    hours, minutes, only_minutes, seconds = found.groups()
    return (int(hours or 0) * 60 + int(minutes or only_minutes)) * 60 + float(seconds.replace(",", "."))


def find_error(segment: Segment, classes: Collection[str]) -> tuple[str, str, str] | None:
    """Return what makes a segment unusable in any video: the kind of error, a sentence with the values, and a hint."""
    if segment.label not in classes:
        known = f"Add it to classes, or use one of: {', '.join(classes)}."
        return "unknown class", f"the label {segment.label!r} is not in classes.", known
    if segment.start < 0:
        return "before the start", f"the segment starts at {segment.start} s.", "Let it start at 0 or later."
    if segment.end < segment.start:
        sentence = f"the segment ends at {segment.end} s, before its start {segment.start} s."
        return "negative length", sentence, "Swap the two."
    return None

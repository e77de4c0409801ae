"""A labelled piece of time, the same in label files, timelines and annotations."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

# h:mm:ss or m:ss, seconds with or without a fraction.
CLOCK = re.compile(r"(?:(\d{1,9}):([0-5]?\d)|(\d{1,9})):([0-5]?\d(?:[.,]\d{1,30})?)")
SURROGATE = re.compile("[\ud800-\udfff]")
# Seconds; no video lasts 30 years. A number beyond has no place in any array.
LATEST = 1e9


@dataclass(frozen=True)
class Segment:
    """From `start` to `end` in seconds; `score` is None where a person labelled it.

    It may be wrong, as label files are, so that each mistake can be named: see `mistake`.
    """

    start: float
    end: float
    label: str
    score: float | None = None
    subject: str = ""
    """Who does it, as an animal; empty where nobody says"""

    def to_dict(self) -> dict[str, Any]:
        """Its JSON object: label, start, end, and score and subject where it has them."""
        entry: dict[str, Any] = {"label": self.label, "start": self.start, "end": self.end}
        more = {"score": self.score, "subject": self.subject or None}
        return entry | {name: value for name, value in more.items() if value is not None}

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any]) -> Segment:
        """From a JSON object as of `to_dict`. Raises KeyError where one of its names is missing."""
        return cls(entry["start"], entry["end"], entry["label"], entry.get("score"), entry.get("subject", ""))


def is_time(value: object) -> bool:
    """Return whether a value that a file holds is a number of seconds within a video's reach, which may be negative."""
    return isinstance(value, int | float) and not isinstance(value, bool) and -LATEST <= value <= LATEST


def is_name(value: object) -> TypeGuard[str]:
    r"""Whether a value that a file holds can name a class, and be written as UTF-8 again: "\ud800" of JSON cannot."""
    return isinstance(value, str) and bool(value) and not SURROGATE.search(value)


def clock_seconds(text: str) -> float | None:
    """Return the seconds of a time such as 1:02:03.5 or 2:03, also with a decimal comma; None if it is no such time."""
    found = CLOCK.fullmatch(text.strip())
    if not found:
        return None
    hours, minutes, only_minutes, seconds = found.groups()
    return (int(hours or 0) * 60 + int(minutes or only_minutes)) * 60 + float(seconds.replace(",", "."))


@dataclass(frozen=True)
class Mistake:
    """What is wrong with a segment: its kind, a sentence with the values, and what to do."""

    kind: str
    sentence: str
    hint: str


def mistake(segment: Segment, classes: Collection[str]) -> Mistake | None:
    """Return what makes a segment unusable in any video; None when it is sound."""
    if segment.label not in classes:
        known = f"Add it to classes, or use one of: {', '.join(classes)}."
        return Mistake("unknown class", f"the label {segment.label!r} is not in classes.", known)
    if segment.start < 0:
        sentence = f"the segment starts at {segment.start} s."
        return Mistake("before the start", sentence, "Let it start at 0 or later.")
    if segment.end < segment.start:
        sentence = f"the segment ends at {segment.end} s, before its start {segment.start} s."
        return Mistake("negative length", sentence, "Swap the two.")
    return None

"""Scores to events and segments, causally, and the timeline file they make."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from extractors.video import CHUNK_SECONDS
from lstr.labels import AMBIGUOUS, BACKGROUND
from pipelines.store import replacing

FORMAT = "lstr-timeline/1"


@dataclass(frozen=True)
class Event:
    """`started` or `ended` of an action; times in seconds. `time` is when it was decided, `start` when it began."""

    event: str
    label: str
    time: float
    start: float
    score: float
    end: float | None = None

    def to_dict(self) -> dict:
        """The event's JSON object; `end` only where there is one."""
        values = {"event": self.event, "label": self.label, "time": self.time, "start": self.start}
        if self.end is not None:
            values["end"] = self.end
        return {**values, "score": round(self.score, 4)}


@dataclass(frozen=True)
class Thresholds:
    """A class begins when its score reaches `on` and ends when it falls below `off` (hysteresis)."""

    on: float = 0.5
    off: float = 0.35


@dataclass
class Timeline:
    """Turns a score vector a chunk into events; several classes may be on at once. Background is never an event.

    `push` decides at once, so an action is announced at the end of its first chunk: the delay added is 0.
    """

    classes: tuple[str, ...]
    thresholds: Thresholds = field(default_factory=Thresholds)
    segments: list[dict] = field(default_factory=list)
    _open: dict[int, tuple[float, list[float]]] = field(default_factory=dict)
    """Class index to (start in seconds, scores so far)."""

    def push(self, time: float, scores: np.ndarray) -> list[Event]:
        """Events decided at the end of a chunk, `time` in seconds, scores (C,)."""
        events = []
        for c, label in enumerate(self.classes):
            if label in (BACKGROUND, AMBIGUOUS):
                continue
            score = float(scores[c])
            if c in self._open and score < self.thresholds.off:
                events.append(self._close(c, time, time - CHUNK_SECONDS))
            elif c in self._open:
                self._open[c][1].append(score)
            elif score >= self.thresholds.on:
                self._open[c] = (time - CHUNK_SECONDS, [score])
                events.append(Event("started", label, time, time - CHUNK_SECONDS, score))
        return events

    def finish(self, time: float) -> list[Event]:
        """End what is still on when the source ends at `time` seconds."""
        return [self._close(c, time, time) for c in sorted(self._open)]

    def _close(self, c: int, time: float, end: float) -> Event:
        start, scores = self._open.pop(c)
        mean = float(np.mean(scores))
        self.segments.append({"label": self.classes[c], "start": start, "end": end, "score": round(mean, 4)})
        return Event("ended", self.classes[c], time, start, mean, end)


def write_scores(path: Path, scores: np.ndarray) -> None:
    """Write `<id>.scores.npy`: float32 (chunks, classes), whole or not at all."""
    with replacing(path) as temporary, temporary.open("wb") as file:
        np.save(file, scores.astype(np.float32))


def sorted_segments(segments: Iterable[dict]) -> list[dict]:
    """Segments by start, then label."""
    return sorted(segments, key=lambda s: (s["start"], s["label"]))

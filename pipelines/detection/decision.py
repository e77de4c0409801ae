"""The decision at the end of a chunk."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.checkpoints.loaded import Checkpoint
from lstr.chunk import CLOCK, Clock
from lstr.extractors.run import FeatureRow
from lstr.extractors.video.stretches import Gap
from lstr.timeline import Event, Timeline, iso

TOP = 3


@dataclass(frozen=True)
class Decision:
    """What was decided at the end of one chunk. `time` in seconds, scores (C,), latency from features to scores.

    For a live source the latency is from the frame that closed the chunk, and `at` is when that came, on the clock of
    the wall. `ahead` is (seconds, label, score) for each later chunk that the model anticipates; `gaps` are the chunks
    since the previous decision that were not decided.
    """

    chunk: int
    time: float
    label: str
    score: float
    top: list[tuple[str, float]]
    latency_ms: float
    events: list[Event]
    scores: NDArray[np.float32] = field(repr=False)
    ahead: list[tuple[float, str, float]] = field(default_factory=list)
    gaps: list[Gap] = field(default_factory=list)
    at: datetime | None = None
    source: str = ""
    """The id of what it is a decision on, of a folder that of a video."""
    clock: Clock = field(default=CLOCK, repr=False)
    """When chunks are."""

    def to_dict(self) -> dict:
        """The chunk's JSON object, with `ahead` where the model anticipates."""
        ahead = [[seconds, label, round(score, 4)] for seconds, label, score in self.ahead]
        return {
            "chunk": self.chunk,
            "time": self.time,
            **({"at": iso(self.at)} if self.at else {}),
            "label": self.label,
            "score": round(self.score, 4),
            "top": [[label, round(score, 4)] for label, score in self.top],
            "latency_ms": round(self.latency_ms, 2),
            **({"ahead": ahead} if ahead else {}),
        }

    def lines(self) -> list[dict]:
        """The JSON objects of the chunk, one per line: gaps, the chunk itself, events."""
        gaps = [
            {"gap": gap.reason, "time": self.time, **self.span(gap), "chunks": gap.end - gap.first} for gap in self.gaps
        ]
        return [*gaps, self.to_dict(), *(event.to_dict() for event in self.events)]

    def span(self, gap: Gap) -> dict[str, Any]:
        """Start and end of a gap before it in seconds, and of a live source on the clock of the wall."""
        seconds = {"start": self.clock.at(gap.first), "end": self.clock.at(gap.end)}
        if self.at is None or gap.reason == "skipped":
            return seconds
        walls = {name: self.at - timedelta(seconds=self.time - second) for name, second in seconds.items()}
        return seconds | {f"{name}_at": iso(wall) for name, wall in walls.items()}


def decision_of(
    loaded: Checkpoint,
    timeline: Timeline,
    row: FeatureRow,
    scores: NDArray[np.float32],
    latency_ms: float,
    gaps: Sequence[Gap] = (),
    at: datetime | None = None,
) -> Decision:
    """The decision on a chunk from the model's scores (1 + n_ahead, C), which the timeline takes."""
    now, later, clock = scores[0], scores[1:], timeline.clock
    ahead = [(clock.length(h + 1), loaded.classes[chunk.argmax()], float(chunk.max())) for h, chunk in enumerate(later)]
    top = [(loaded.classes[c], float(now[c])) for c in np.argsort(-now)[:TOP]]
    events = timeline.push(row.end_time, now, later)
    return Decision(row.index, row.end_time, *top[0], top, latency_ms, events, now, ahead, list(gaps), at, clock=clock)

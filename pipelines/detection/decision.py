"""Decisions, and the events that a detection reports while it runs."""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CHUNK_SECONDS, CLOCK, Clock
from lstr.extractors.video.frames import Gap
from lstr.pipelines.progress import Failed
from lstr.timeline import Event, iso

LATENCIES = 1000  # of the latest decisions are kept


@dataclass(frozen=True)
class Decision:
    """The decision at the end of one chunk: `time` in seconds, scores (C,), latency from features to scores.

    The latency of a live source starts at the frame that closed the chunk, and `at` is when that frame arrived (wall
    clock). `ahead` is (seconds, label, score) for each later chunk that the model anticipates; `gaps` are the chunks
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
    """The id of the source; in a folder, the id of the video."""
    clock: Clock = field(default=CLOCK, repr=False)
    """Start and end times of chunks."""

    def to_dict(self) -> dict:
        """Return the chunk's JSON object, with `ahead` if the model anticipates."""
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
        """Return the JSON objects of the chunk, one per line: gaps, the chunk itself, events."""
        gaps = [
            {"gap": gap.reason, "time": self.time, **self.span(gap), "chunks": gap.end - gap.first} for gap in self.gaps
        ]
        return [*gaps, self.to_dict(), *(event.to_dict() for event in self.events)]

    def span(self, gap: Gap) -> dict[str, Any]:
        """Return start and end of a gap in seconds, for a live source also in wall-clock time."""
        seconds = {"start": self.clock.at(gap.first), "end": self.clock.at(gap.end)}
        if self.at is None or gap.reason == "skipped":
            return seconds
        walls = {name: self.at - timedelta(seconds=self.time - second) for name, second in seconds.items()}
        return seconds | {f"{name}_at": iso(wall) for name, wall in walls.items()}


@dataclass
class Status:
    """Counters of a running source. They change in place and may be read from any thread.

    Each chunk from the first to the latest is either decided, dropped or unseen.
    """

    name: str
    total: int | None = None
    """Number of chunks; None if unknown, as for a live source."""
    link: str = "reading"
    """connecting, reading, stalled (sends nothing), lost (reconnects), or ended."""
    time: float = 0.0
    """Seconds of the source, to the end of the latest decided chunk."""
    decided: int = 0
    dropped: int = 0
    """Chunks skipped because the machine was slower than the source."""
    unseen: int = 0
    """Chunks that the source never sent: it was disconnected, or its clock jumped."""
    gaps: int = 0
    """Stretches of unseen chunks."""
    frames: int = 0
    """Frames decoded, at the source's own rate."""
    decode_errors: int = 0
    reconnects: int = 0
    waiting: int = 0
    """Complete chunks in the queue before the networks."""
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))
    """Latencies of the latest decisions, see `Decision`."""
    chunk_seconds: float = CHUNK_SECONDS
    """Length of a chunk."""

    def decide(self, time: float, latency_ms: float) -> None:
        """Count a decision on a chunk that ended at `time`."""
        self.time, self.decided = time, self.decided + 1
        self.latencies_ms.append(latency_ms)

    def latency_ms(self, *percentiles: float) -> list[float]:
        """Return percentiles (0 to 100) of the latest latencies in milliseconds; empty before the first decision."""
        kept = list(self.latencies_ms)
        return [float(value) for value in np.percentile(kept, percentiles)] if kept else []


@dataclass(frozen=True)
class Opened:
    """A source was opened. Its `status` changes in place; `classes` name the columns of its scores."""

    id: str
    status: Status
    classes: tuple[str, ...]
    refresh: Callable[[], object] | None = None
    """Updates the status of a live source between decisions."""
    origin: str = ""
    """Its path, or its address without credentials."""
    video: Path | None = None
    """The video file to show next to the timeline."""
    dated: str = ""
    """The id of a live source with its start time, a name that no file of the output folder had."""
    named: bool = False
    """Whether the user chose its id."""

    @property
    def live(self) -> bool:
        """Whether it does not wait for its sinks, as a camera."""
        return self.refresh is not None

    @property
    def file_name(self) -> str:
        """The names of its files without their suffix."""
        return self.dated or self.id


@dataclass(frozen=True)
class Decided:
    """A source has a new decision, and its lines are written."""

    id: str
    decision: Decision


@dataclass(frozen=True)
class Ended:
    """A source ended and its files are written: its lstr-timeline/1 document, empty if none is kept, and its page."""

    id: str
    timeline: dict
    page: Path | None = None
    events: tuple[Event, ...] = ()
    """`ended`, with `still_on`, of each action that was active at the end."""


@dataclass(frozen=True)
class Undecided:
    """A live source ended before its first decision, without an error and without files."""

    id: str


@dataclass(frozen=True)
class Detected:
    """The result of all sources."""

    timelines: dict[str, dict]
    """By source, in the order of their ends."""
    failures: tuple[Failed, ...] = ()
    index: Path | None = None
    """The page that links the pages of several sources."""
    stalled: bool = False
    """Whether a live source failed because it sent no frame for too long."""
    left: bool = False
    """Whether an interrupt ended the live sources."""


SourceEvent = Opened | Decided | Ended | Undecided | Failed

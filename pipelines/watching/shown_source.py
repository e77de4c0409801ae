"""What the page of a watching service knows of one source, in memory that does not grow."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import FEATURES_PER_SECOND
from lstr.extractors.addresses import without_credentials
from lstr.extractors.video.zones import Zones
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.events import Opened
from lstr.pipelines.detection.status import Status
from lstr.pipelines.watching.score_rows import ScoreRows, codes_of
from lstr.timeline import Thresholds

COUNTED = ("decided", "dropped", "unseen", "reconnects")


@dataclass
class ShownSource:
    """What is known of a source. Its columns are chunks that go on where it is opened again."""

    name: str
    address: str = ""
    paused: bool = False
    trouble: str = ""
    classes: tuple[str, ...] = ()
    thresholds: Mapping[str, Thresholds] = field(default_factory=dict)
    zones: Zones = ()
    drawn: bool = False
    """Whether its zones are the page's own, and not the file's."""
    status: Status | None = None
    rows: ScoreRows = field(default_factory=lambda: ScoreRows(0))
    offset: int | None = None
    """Between a chunk of the source as it is open now and its column; None before its first decision."""
    decided_at: datetime | None = None
    heard: float = 0.0
    known: float = field(default_factory=monotonic)
    counted: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTED, 0))
    """What was counted while it was open before."""
    frame: NDArray[np.uint8] | None = None
    number: int = 0
    """The number of the newest picture."""
    jpeg: tuple[int, bytes] = (0, b"")
    made: float = 0.0
    told: str = ""
    """What browsers know of its state."""
    drawing: threading.Lock = field(default_factory=threading.Lock)

    def open(self, source: Opened) -> None:
        """It is opened, perhaps again."""
        self.keep_counts()
        if self.classes != source.classes:
            self.classes, self.rows = source.classes, ScoreRows(len(source.classes))
        self.status, self.offset, self.trouble = source.status, None, ""
        self.address = self.address or without_credentials(source.origin)

    def keep_counts(self) -> None:
        """Count what was counted until now with what follows."""
        if self.status:
            self.counted = {name: self.counted[name] + getattr(self.status, name) for name in COUNTED}
        self.status = None

    def take(self, decision: Decision) -> tuple[int, NDArray[np.uint8]]:
        """Keep the scores of a decision; their column and codes."""
        now, codes = monotonic(), codes_of(decision.scores)
        if self.offset is None:
            silent = int((now - self.heard) * FEATURES_PER_SECOND) if self.rows.first is not None else 0
            self.offset = self.rows.newest + 1 + silent - decision.chunk
        column = self.offset + decision.chunk
        self.rows.put(column, codes)
        self.heard, self.decided_at = now, decision.at
        return column, codes

    def silence(self) -> float:
        """Seconds since something was decided, or since it was to be."""
        return monotonic() - (self.heard or self.known)

    def to_dict(self) -> dict[str, Any]:
        """Its state as a JSON object, without scores."""
        status = self.status
        lag = status.latency_ms(95) if status else []
        counts = {name: self.counted[name] + (getattr(status, name) if status else 0) for name in COUNTED}
        link = "paused" if self.paused else status.link if status else "waiting"
        return {
            "name": self.name,
            "address": self.address,
            "paused": self.paused,
            "trouble": self.trouble,
            "link": link,
            "lag_ms": round(lag[0]) if lag else None,
            **counts,
        }

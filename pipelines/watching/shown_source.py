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
from lstr.extractors.video.zones import Zones
from lstr.files.names import without_credentials
from lstr.pipelines.detection.decision import Decision, Opened, Status
from lstr.timeline import Thresholds

# Chunks of which the scores are kept: ten minutes.
ROWS = 600 * FEATURES_PER_SECOND
# The code of score 1, and that of a chunk that was not decided.
FULL_SCALE, NO_SCORE = 254, 255
COUNTED = ("decided", "dropped", "unseen", "reconnects")


class ScoreRows:
    """Codes of the scores of `n_classes` in the newest ROWS chunks; older ones are forgotten."""

    def __init__(self, n_classes: int):
        self._codes = np.full((ROWS, n_classes), NO_SCORE, np.uint8)
        self.first: int | None = None
        """The first column that was ever put; None before that."""
        self.newest = -1

    def put(self, column: int, codes: NDArray[np.uint8]) -> None:
        """Codes (C,) of a chunk; columns between it and the newest one were not decided."""
        if self.first is None:
            self.first = column
        missed = np.arange(max(self.newest + 1, column - ROWS + 1), column)
        self._codes[missed % ROWS] = NO_SCORE
        self._codes[column % ROWS] = codes
        self.newest = column

    def columns(self) -> tuple[int, NDArray[np.uint8]]:
        """The first column that is kept, and the codes (C, n) from it to the newest."""
        if self.first is None:
            return 0, self._codes[:0].T
        first = max(self.first, self.newest - ROWS + 1)
        return first, self._codes[np.arange(first, self.newest + 1) % ROWS].T


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


def codes_of(scores: NDArray[np.float32]) -> NDArray[np.uint8]:
    """A byte for each score; one that is not finite is no score."""
    finite = np.isfinite(scores)
    codes = np.rint(np.clip(np.where(finite, scores, 0), 0, 1) * FULL_SCALE).astype(np.uint8)
    codes[~finite] = NO_SCORE
    return codes

"""Where the detection on one source stands: plain numbers, for whoever shows them."""

from collections import deque
from dataclasses import dataclass, field

import numpy as np

from lstr.chunk import CHUNK_SECONDS

LATENCIES = 1000  # newest ones that are kept


@dataclass
class Status:
    """What came of a source so far. It changes in place while the source runs, and may be read from any thread.

    A chunk of its time is decided, dropped or unseen: together they are the chunks from the first to the newest.
    """

    name: str
    total: int | None = None
    """Chunks it will have; None where that is unknown, as of a live source."""
    link: str = "reading"
    """connecting, reading, stalled (sends nothing), lost (to be connected again), or ended."""
    time: float = 0.0
    """Seconds of the source, to the end of the newest chunk decided."""
    decided: int = 0
    dropped: int = 0
    """Chunks left out because the machine was slower than the source."""
    unseen: int = 0
    """Chunks that the source never sent: while it was away, or where its clock jumped."""
    gaps: int = 0
    """Stretches of unseen chunks."""
    frames: int = 0
    """Frames decoded, at the source's own rate."""
    decode_errors: int = 0
    reconnects: int = 0
    waiting: int = 0
    """Whole chunks that are read and have not gone into the networks."""
    latencies_ms: deque[float] = field(default_factory=lambda: deque(maxlen=LATENCIES))
    """How long the newest decisions took, from the frame that closed the chunk, or a recorded source's features."""
    chunk_seconds: float = CHUNK_SECONDS
    """How long a chunk is."""

    def decide(self, time: float, latency_ms: float) -> None:
        """Count a decision, made at the end of a chunk at `time`."""
        self.time, self.decided = time, self.decided + 1
        self.latencies_ms.append(latency_ms)

    def latency_ms(self, *percentiles: float) -> list[float]:
        """Percentiles (0 to 100) of the newest latencies, milliseconds; empty before the first decision."""
        kept = list(self.latencies_ms)
        return [float(value) for value in np.percentile(kept, percentiles)] if kept else []

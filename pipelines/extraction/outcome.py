"""How an extraction went: what became of its videos, and how fast each stage was."""

from collections import Counter
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import Any

from lstr.extractors.video.frames import CHUNK_SECONDS
from lstr.pipelines.failures import Failure
from lstr.pipelines.files.remote import Place


@dataclass(frozen=True)
class Outcome:
    """What became of one video: `done`, `kept` (finished before) or `failed` with a reason and a hint.

    The reason of a done one says what of a damaged file was kept; otherwise it is empty.
    """

    id: str
    source: Place
    state: str
    chunks: int = 0
    seconds: float = 0.0
    """It took, from opening the video to its record."""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds each stage worked, as in the record."""
    reason: str = ""
    hint: str = ""
    note: str = ""
    """A sentence to warn with."""
    traceback: str = ""
    """The traceback of an error that nobody foresaw."""

    @property
    def failure(self) -> Failure:
        """Why it has failed."""
        return Failure(self.reason, self.hint, self.traceback)


def failed(video_id: str, source: Place, failure: Failure) -> Outcome:
    """The Outcome of a video that cannot be extracted."""
    return Outcome(video_id, source, "failed", **asdict(failure))


@dataclass
class Summary:
    """Counts the outcomes of a run as they come."""

    started: float = field(default_factory=perf_counter)
    counts: Counter[str] = field(default_factory=Counter)
    chunks: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds each stage worked, in all threads and processes together."""
    failed: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one video."""
        self.counts[outcome.state] += 1
        if outcome.state == "failed":
            self.failed.append(outcome)
        elif outcome.state == "done":
            self.chunks += outcome.chunks
            for name, seconds in outcome.stages.items():
                self.stages[name] = self.stages.get(name, 0.0) + seconds

    def to_dict(self) -> dict[str, Any]:
        """The outcome as a JSON object; speeds only of what was done in this run."""
        seconds = perf_counter() - self.started
        return {
            **{state: self.counts[state] for state in ("done", "kept", "failed")},
            "chunks": self.chunks,
            "seconds": round(seconds, 3),
            "chunks_per_second": round(self.chunks / seconds, 3),
            "realtime_factor": round(self.chunks * CHUNK_SECONDS / seconds, 3),
            "stages": {
                name: {"thread_seconds": round(spent, 3), "chunks_per_thread_second": round(self.chunks / spent, 2)}
                for name, spent in self.stages.items()
                if spent > 0
            },
            "failures": [{"id": o.id, "source": str(o.source), "reason": o.reason} for o in self.failed],
        }

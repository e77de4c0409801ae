"""Videos to a feature folder, resumable by running again: only what is not done is given to an engine.

And how it went: what became of each video, and how fast each stage was.
"""

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from time import perf_counter
from typing import Any, TypeVar

from lstr.extractors.stages import closed_after
from lstr.extractors.video.frames import CHUNK_SECONDS
from lstr.files.remote import Place
from lstr.pipelines.failures import Failure, FailureLog
from lstr.pipelines.features.any_folder import Features
from lstr.pipelines.progress import Notice, Progress

LOOKS = 32  # at videos and their features at a time; those may be far away


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


# Extracts videos {id: source}, in any order and anywhere, with an Outcome of each as it ends.
#
# Closing the iterator ends everything it started; what was finished is kept.
Engine = Callable[[Mapping[str, Place]], Iterator[Progress | Notice | Outcome]]
Item = TypeVar("Item")
Found = TypeVar("Found")


def resume(
    videos: Mapping[str, Place], folder: Features, engine: Engine
) -> Generator[Progress | Notice | Outcome, None, None]:
    """Have an engine extract each video that is not done; one bad video does not stop the rest.

    Yields one Outcome per video, and what else the engine yields. `videos.jsonl` and `failed.jsonl` are compiled at
    the end, also after an interruption; an error that nobody foresaw leaves its traceback in logs/ID.log.
    """
    folder.sweep()
    log, over, to_do = FailureLog(folder.path), [], {}
    try:
        for (video_id, source), chunks in together(lambda video: chunks_done(folder, *video), videos.items()):
            if chunks:
                over.append(video_id)
                yield Outcome(video_id, source, "kept", chunks)
            else:
                to_do[video_id] = source
        with closed_after(engine(to_do)) as events:
            for event in events:
                if isinstance(event, Outcome):
                    over.append(event.id)
                    if event.state == "failed":
                        event = replace(event, hint=log.add(event.id, event.source, event.failure).hint)
                yield event
    finally:
        folder.compile()
        log.finish(over)


def chunks_done(folder: Features, video_id: str, source: Place) -> int:
    """How many chunks of a finished video there are; 0 where it is not done."""
    record = folder.read_record(video_id) if folder.is_done(video_id, source) else None
    return record["chunks"] if record else 0


def together(look: Callable[[Item], Found], items: Iterable[Item]) -> Iterator[tuple[Item, Found]]:
    """(item, what `look` finds of it) of each item in order, many at once: most of it is waiting."""
    items = list(items)
    pool = ThreadPoolExecutor(LOOKS, "looks")
    try:
        yield from zip(items, pool.map(look, items), strict=True)
    finally:
        pool.shutdown(cancel_futures=True)

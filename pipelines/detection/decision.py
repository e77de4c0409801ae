"""Decisions, the events of a running detection, and sinks, which receive the decisions on a source."""

import errno
import json
import os
import tempfile
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import IO, Any, TextIO

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CHUNK_SECONDS, CLOCK, Clock
from lstr.errors import OutputError
from lstr.extractors.stages import WRITE
from lstr.extractors.video.frames import Gap
from lstr.files.atomic import unwritable
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.options import OutputOptions
from lstr.pipelines.progress import Failed, Notice
from lstr.timeline import Event, Person, iso

LATENCIES = 1000  # number of latest decisions with stored latencies
EMPTY_ROWS = 4096  # written at a time where a source was disconnected


@dataclass(frozen=True)
class Decision:
    """The decision at the end of one chunk: `time` in seconds, scores (C,), latency from features to scores.

    The latency of a live source starts at the frame that completed the chunk, and `at` is the wall-clock time of that
    frame's arrival. `ahead` is (seconds, label, score) for each later chunk that the model anticipates; `gaps` are the
    chunks without a decision since the previous decision.
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
    people: Sequence[Person] = ()
    """By a model on poses: at most two people, from left to right."""

    def to_dict(self) -> dict:
        """Return the chunk's JSON object, with `ahead` if the model anticipates, and the people it saw."""
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
            **({"people": [person.to_dict() for person in self.people]} if self.people else {}),
        }

    def lines(self) -> list[dict]:
        """Return the JSON objects of the chunk, one per line: gaps, the chunk itself, events."""
        gaps = [
            {"gap": gap.reason, "time": self.time, **self.span(gap), "chunks": gap.end - gap.first} for gap in self.gaps
        ]
        return [*gaps, self.to_dict(), *(event.to_dict() for event in self.events)]

    def span(self, gap: Gap) -> dict[str, Any]:
        """Return start and end of a gap in seconds, for a live source also in wall-clock time."""
        walls = {name: iso(wall) for name in ("start_at", "end_at") if (wall := getattr(gap, name))}
        return {"start": self.clock.at(gap.first), "end": self.clock.at(gap.end), **walls}


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
    """Number of gaps with unseen chunks."""
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

    def latency_ms(self, *percentiles: float) -> list[float]:
        """Return percentiles (0 to 100) of the latest latencies in milliseconds; empty before the first decision."""
        latencies = list(self.latencies_ms)  # a copy: another thread may append
        return [float(value) for value in np.percentile(latencies, percentiles)] if latencies else []


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
        """Whether it is live, like a camera, and does not wait for its sinks."""
        return self.refresh is not None

    @property
    def file_name(self) -> str:
        """The names of its files without their suffix."""
        return self.dated or self.id


@dataclass(frozen=True)
class Ended:
    """A source ended and its files are written: its lstr-timeline/1 document, and its page.

    The document is empty if it is not stored, and for a live source that ended before its first decision.
    """

    id: str
    timeline: dict
    page: Path | None = None
    events: tuple[Event, ...] = ()
    """`ended`, with `still_active`, of each action that was active at the end."""


SourceEvent = Opened | Decision | Ended | Failed | Notice


@dataclass(frozen=True)
class End:
    """The end of a source. With an `error` its files are not finished."""

    events: Sequence[Event] = ()
    """Events of actions that were active at the end."""
    duration: float | None = None
    """Seconds of a recorded source; None for up to the latest decision."""
    warnings: Sequence[str] = ()
    live: Mapping[str, Any] | None = None
    """How a live source was read."""
    spent: tuple[float, float] = (0.0, 0.0)
    """Seconds of the detection, and processor seconds per second of video."""
    error: BaseException | None = None
    """Why a recorded source failed, or is not read to its end."""


class Sink:
    """A receiver of the decisions on one source: `open`, then `take` for each decision, then `close`.

    Each source has separate sinks. A recorded source waits for them. A live source never waits: each of its sinks runs
    in a thread, behind a queue.
    """

    needs_all: bool = False
    """Whether a failure of the sink is a failure of the source, as for files. Otherwise, as for a terminal or a broker,
    a full queue drops its oldest decisions, and an error is a warning."""
    waiting: int = 1200
    """Maximum number of decisions in the queue of a live source: five minutes."""
    name: str = "a sink"
    """Its name in messages."""

    def open(self, source: Opened) -> None:
        """Prepare for the first decision."""

    def take(self, decision: Decision) -> None:
        """Take a decision; decisions come in order."""
        raise NotImplementedError

    def close(self, end: End) -> Any:
        """Finish after the last decision, also after an error of `open` or `take`."""


MakeSink = Callable[[], Sink]


class Outlet:
    """A connection from a source to a sink; with `changed`, by a thread and a queue, notifying of error and end.

    Without a thread, errors of a sink that needs all decisions are raised; errors of other sinks are stored.
    """

    def __init__(self, sink: Sink, changed: threading.Condition | None = None):
        self.sink, self._changed = sink, changed
        self.dropped = 0
        self.error: Exception | None = None
        """After an error it takes nothing more."""
        self.is_reported = False
        """Whether a notice has reported the error."""
        self.result: Any = None
        """What `close` of the sink returned."""
        self.has_ended = changed is None
        self._queue: deque[Decision | End] = deque()
        self._new = threading.Condition()

    def open(self, source: Opened) -> None:
        """Open the sink."""
        if self._changed:
            threading.Thread(target=self._work, args=(source,), name=f"sink of {source.id}", daemon=True).start()
        else:
            self._call(self.sink.open, source)

    def take(self, decision: Decision) -> None:
        """Give the sink a decision, or put it into the queue."""
        if not self._changed:
            self._call(self.sink.take, decision)
            return
        with self._new:
            if self.error:
                return
            if len(self._queue) >= self.sink.waiting:
                if self.sink.needs_all:
                    self._queue.clear()
                    self.error = OutputError(
                        f"{self.sink.name} did not accept {self.sink.waiting} decisions in a row.",
                        "check that its disk responds.",
                    )
                    return
                self._queue.popleft()
                self.dropped += 1
            self._queue.append(decision)
            self._new.notify()

    def close(self, end: End) -> None:
        """Close the sink, after the decisions in the queue."""
        if self._changed:
            with self._new:
                self._queue.append(end)
                self._new.notify()
        else:
            self._close(end)

    def _close(self, end: End) -> None:
        if self.error or end.error:
            with suppress(Exception):
                self.sink.close(end if end.error else End(error=self.error))
        else:
            self.result = self._call(self.sink.close, end)

    def _work(self, source: Opened) -> None:
        """Pass the items of the queue to the sink, until the end or an error."""
        assert self._changed
        self._call(self.sink.open, source)
        while True:
            with self._new:
                self._new.wait_for(lambda: self._queue or self.error)
                item = self._queue.popleft() if self._queue else End()
            if isinstance(item, End):
                break
            self._call(self.sink.take, item)
        self._close(item)
        with self._changed:
            self.has_ended = True
            self._changed.notify_all()

    def _call(self, method: Callable[[Any], Any], given: Any) -> Any:
        """Return the result of a method of the sink; None after an error."""
        if self.error:
            return None
        try:
            return method(given)
        except Exception as error:
            if self.sink.needs_all:
                WRITE.mark(error)
                if not self._changed:
                    raise
            with self._changed or nullcontext():
                self.error = error
                if self._changed:
                    self._changed.notify_all()
        return None


class JsonLines(Sink):
    """The lines of a source in ID.jsonl of a folder, or in a stream, where `named` lines have the id of their source.

    A file needs all lines; the reader of a stream may be slower than a camera. A live source gets a new file, which is
    removed if nothing is decided; a recorded one replaces the file of an earlier run at its first decision. With
    `events_only` there are no lines of decisions and dropped chunks, only of events and of a source that comes back.
    """

    def __init__(self, target: Path | TextIO, named: bool = False, events_only: bool = False):
        self.needs_all = isinstance(target, Path)
        self.name = "its JSONL" if self.needs_all else "the lines"
        self._target, self._is_named, self._events_only = target, named, events_only
        self._stream: TextIO | None = None

    def open(self, source: Opened) -> None:
        """Raise OutputError if the file of a live source cannot be opened."""
        self._prefix = {"source": source.id} if self._is_named else {}
        self._source, self._is_empty = source, bool(source.dated)
        if not isinstance(self._target, Path):
            self._stream = self._target
        elif source.dated:
            self._stream = open_lines(self._target, source)

    def take(self, decision: Decision) -> None:
        """Write the lines of a decision. Raises OutputError if the file cannot be opened."""
        self._is_empty = False
        if self._stream is None:
            assert isinstance(self._target, Path)
            self._stream = open_lines(self._target, self._source)
        lines = decision.lines()
        if self._events_only:
            lines = [line for line in lines if "event" in line or line.get("gap") == "unseen"]
        self._write(lines)

    def close(self, end: End) -> None:
        """Write the events of the end."""
        try:
            if not end.error:
                self._write(event.to_dict() for event in end.events)
        finally:
            if self.needs_all and self._stream:
                self._stream.close()
                if self._is_empty:  # otherwise each restart of a camera would leave a file
                    Path(self._stream.name).unlink(missing_ok=True)

    def _write(self, values: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps({**self._prefix, **value}, ensure_ascii=False) + "\n" for value in values]
        if not lines:
            return
        assert self._stream, "it is open"
        try:
            if self.needs_all and not os.fstat(self._stream.fileno()).st_nlink:  # the lines would be lost
                raise unwritable(Path(self._stream.name), OSError(errno.ENOENT, "it was deleted while in use"))
            self._stream.write("".join(lines))  # in one call, because several cameras may share a stream
            self._stream.flush()
        except Exception as error:
            WRITE.mark(error)  # a pipe whose reader has gone ends the run
            raise


def open_lines(folder: Path, source: Opened) -> TextIO:
    """Open the JSONL file of a source. Raises OutputError."""
    path = folder / f"{source.file_name}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if not source.dated:  # another run that still writes it stops, instead of both mixing their lines
            path.unlink(missing_ok=True)
        return path.open("x", encoding="utf-8")
    except OSError as error:
        raise unwritable(path.parent, error) from error


class Recorder(Sink):
    """Keeps the decisions on a source that its files need, for `outputs.TimelineFiles`.

    A source may run for days, so scores and events are on disk instead of in memory: in files of the output folder, or
    of the system's temporary folder, that have no names and vanish when closed.
    """

    needs_all, name = True, "its files"

    def __init__(self, loaded: Checkpoint, options: OutputOptions):
        self._loaded, self._options = loaded, options
        self._decided = self._chunks = 0
        """Decisions, and chunks up to the latest one."""
        self._actions = [c for c, label in enumerate(loaded.classes) if label not in (BACKGROUND, AMBIGUOUS)]
        self._best: tuple[float, str, Decision] | None = None  # score, class, decision
        self._latencies: deque[float] = deque(maxlen=LATENCIES)
        self._lines: IO[str] | None = None
        """JSON objects of gaps and events."""
        self._scores: IO[bytes] | None = None
        """A row of float32 per chunk, NaN without a decision."""

    def open(self, source: Opened) -> None:
        """Raise OutputError if nothing can be kept."""
        self._source, folder = source, self._options.folder
        try:
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
            self._lines = tempfile.TemporaryFile("w+", dir=folder, encoding="utf-8")
            if folder and {*self._options.formats} != {"jsonl"}:
                self._scores = tempfile.TemporaryFile(dir=folder)
        except OSError as error:
            raise unwritable(folder or Path(tempfile.gettempdir()), error) from error

    def take(self, decision: Decision) -> None:
        """Keep what the files need."""
        assert self._lines, "it is open"
        gaps, scores = decision.gaps, decision.scores
        if self._decided == 0:  # chunks before --start
            first = min([decision.chunk, *(gap.first for gap in gaps)])
            gaps = [*([Gap(0, first, "skipped")] if first else []), *gaps]
        if self._scores:
            while missing := min(decision.chunk - self._chunks, EMPTY_ROWS):
                self._scores.write(np.full((missing, len(scores)), np.nan, np.float32).tobytes())
                self._chunks += missing
            self._scores.write(scores.astype(np.float32, copy=False).tobytes())
        self._chunks = decision.chunk + 1
        self._decided += 1
        self._latencies.append(decision.latency_ms)
        for c in self._actions:
            if self._best is None or scores[c] > self._best[0]:
                self._best = float(scores[c]), self._loaded.classes[c], decision
        lines = [*({"gap": gap.reason, **decision.span(gap)} for gap in gaps), *(e.to_dict() for e in decision.events)]
        if decision.people and self._source.video:  # to be drawn on it; the file of a camera would grow for days
            lines.append(decision.to_dict())
        self._lines.writelines(json.dumps(line) + "\n" for line in lines)

"""Where decisions go: what a sink is, the queue of a live source in front of it, and JSON lines."""

import errno
import json
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from lstr.errors import OutputError
from lstr.extractors.stages import WRITE
from lstr.files.atomic import unwritable
from lstr.pipelines.detection.decision import Decision, Opened
from lstr.timeline import Event


@dataclass(frozen=True)
class End:
    """How a source ended. With an `error` its results stay as they are."""

    events: Sequence[Event] = ()
    """Events of actions that were active at the end."""
    duration: float | None = None
    """Seconds of a recorded source; None for up to the latest decision."""
    warnings: Sequence[str] = ()
    live: Mapping[str, Any] | None = None
    """How a live source was read."""
    error: BaseException | None = None
    """Why a recorded source failed, or is not read to its end."""


class Sink:
    """Where the decisions on one source go: `open`, then `take` for each decision, then `close`.

    Each source has its own sinks. A recorded source waits for them; a live one never does: they run in a thread each,
    behind a queue.
    """

    needs_all: bool = False
    """Whether a source fails without it, as without its files. Otherwise, as for a terminal or a broker, a full queue
    drops its oldest decisions, and an error is a warning."""
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
    """A sink of a source. With `changed`, which is notified of its error and its end, a thread and a queue are between.

    The errors of a sink that needs all decisions are raised, without a thread; those of others are kept.
    """

    def __init__(self, sink: Sink, changed: threading.Condition | None = None):
        self.sink, self._changed = sink, changed
        self.dropped = 0
        self.error: Exception | None = None
        """After an error it takes nothing more."""
        self.reported = False
        """Whether a person has been told of the error."""
        self.result: Any = None
        """What `close` of the sink returned."""
        self._over = changed is None
        self._end: End | None = None
        self._queue: deque[Decision] = deque()
        self._new = threading.Condition()

    @property
    def over(self) -> bool:
        """Whether nothing more is to be waited for."""
        return self._over or self.error is not None

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
                        f"Of {self.sink.waiting} decisions {self.sink.name} took none.",
                        "see whether the disk behind it hangs.",
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
                self._end = end
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
        assert self._changed
        self._call(self.sink.open, source)
        while True:
            with self._new:
                self._new.wait_for(lambda: self._queue or self._end or self.error)
                decision = self._queue.popleft() if self._queue else None
            if decision is None:
                break
            self._call(self.sink.take, decision)
        self._close(self._end or End())
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _call(self, method: Callable[[Any], Any], given: Any) -> Any:
        if self.error:
            return None
        try:
            with WRITE if self.sink.needs_all else nullcontext():
                return method(given)
        except Exception as error:
            if not self._changed:
                if self.sink.needs_all:
                    raise
                self.error = error
                return None
            with self._changed:
                self.error = error
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
        if source.dated or not isinstance(self._target, Path):
            self._start()

    def take(self, decision: Decision) -> None:
        """Write the lines of a decision. Raises OutputError if the file cannot be opened."""
        self._is_empty = False
        if self._stream is None:
            self._start()
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

    def _start(self) -> None:
        self._stream = open_lines(self._target, self._source) if isinstance(self._target, Path) else self._target

    def _write(self, values: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps({**self._prefix, **value}, ensure_ascii=False) + "\n" for value in values]
        if not lines:
            return
        with WRITE:  # a pipe whose reader has gone ends the run
            assert self._stream, "it is open"
            if self.needs_all and not os.fstat(self._stream.fileno()).st_nlink:  # the lines would be lost
                raise unwritable(Path(self._stream.name), OSError(errno.ENOENT, "it was deleted meanwhile"))
            self._stream.write("".join(lines))  # in one call, because several cameras may share a stream
            self._stream.flush()


def open_lines(folder: Path, source: Opened) -> TextIO:
    """Open the JSONL file of a source. Raises OutputError."""
    path = folder / f"{source.file_name}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("x" if source.dated else "w", encoding="utf-8")
    except OSError as error:
        raise unwritable(path.parent, error) from error

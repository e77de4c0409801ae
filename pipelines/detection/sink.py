"""Where decisions go: what a sink is, and the thread in which one that is slow or hangs stops no camera."""

import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Any

from lstr.errors import OutputError
from lstr.extractors.stages import WRITE
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.events import Opened
from lstr.timeline import Event


@dataclass(frozen=True)
class End:
    """How a source ended, for its sinks. With an `error` its results are to be left as they are."""

    events: Sequence[Event] = ()
    """Events of actions that were still on."""
    duration: float | None = None
    """Seconds of a recorded source; None is to the newest decision."""
    warnings: Sequence[str] = ()
    """What a reader of the scores must know."""
    live: Mapping[str, Any] | None = None
    """How a live source was read."""
    error: BaseException | None = None
    """Why a recorded source has failed, or is not taken to its end."""


class Sink:
    """Where the decisions on one source go. Each source has one of its own, so what it keeps is of that source alone.

    A recorded source waits for its sinks: they are called where its events are taken. Those of a live source run in a
    thread each, with a queue before it, and none stops the decisions.
    """

    needs_all: bool = False
    """Whether a source without it has failed, as of a file: a camera then ends with its error, a video at once. Else,
    as of a terminal or a broker, a full queue drops its oldest decisions, and an error is a warning."""
    waiting: int = 1200
    """Decisions on a live source, five minutes of it, that wait in the queue at most."""
    name: str = "a sink"
    """What messages call it."""

    def open(self, source: Opened) -> None:
        """Before the first decision."""

    def take(self, decision: Decision) -> None:
        """Take a decision; they come in order."""
        raise NotImplementedError

    def close(self, end: End) -> Any:
        """After the last decision, and after an error of `open` or `take` too."""


MakeSink = Callable[[], Sink]


class Outlet:
    """A sink of a recorded source, which is called at once. Raises what a sink raises that needs all."""

    def __init__(self, sink: Sink):
        self.sink = sink
        self.dropped = 0
        self.error: Exception | None = None
        """What it has failed with; it then takes nothing more."""
        self.result: Any = None
        """What closing it gave."""
        self.told = False

    @property
    def over(self) -> bool:
        """Whether nothing more is to be waited for."""
        return True

    def open(self, source: Opened) -> None:
        """Open the sink."""
        self._call(self.sink.open, source)

    def take(self, decision: Decision) -> None:
        """Hand it to the sink."""
        self._call(self.sink.take, decision)

    def close(self, end: End) -> None:
        """Close the sink, and keep what it gives."""
        if self.error or end.error:
            with suppress(Exception):
                self.sink.close(end if end.error else End(error=self.error))
        else:
            self.result = self._call(self.sink.close, end)

    def _call(self, do: Callable[[Any], Any], given: Any) -> Any:
        if self.error:
            return None
        try:
            with WRITE if self.sink.needs_all else nullcontext():
                return do(given)
        except Exception as error:
            self._fail(error)
        return None

    def _fail(self, error: Exception) -> None:
        if self.sink.needs_all:
            raise error
        self.error = error


class Feed(Outlet):
    """A sink of a live source, in a thread of its own; `changed` is notified when it fails, and at its end."""

    def __init__(self, sink: Sink, changed: threading.Condition):
        super().__init__(sink)
        self._changed = changed
        self._new = threading.Condition()
        self._queue: deque[Decision] = deque()
        self._end: End | None = None
        self._over = False

    @property
    def over(self) -> bool:
        return self._over or self.error is not None

    def open(self, source: Opened) -> None:
        threading.Thread(target=self._work, args=(source,), name=f"sink of {source.id}", daemon=True).start()

    def take(self, decision: Decision) -> None:
        """Let it wait for its turn."""
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
        """Let it close after what waits."""
        with self._new:
            self._end = end
            self._new.notify()

    def _work(self, source: Opened) -> None:
        self._call(self.sink.open, source)
        while given := self._next():
            self._call(self.sink.take, given)
        super().close(self._end or End())
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def _next(self) -> Decision | None:
        with self._new:
            self._new.wait_for(lambda: self._queue or self._end or self.error)
            return self._queue.popleft() if self._queue else None

    def _fail(self, error: Exception) -> None:
        with self._changed:
            self.error = error
            self._changed.notify_all()

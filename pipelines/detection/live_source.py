"""A live source of a detection: its reader, what is known of it, and what ended it."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from lstr.checkpoints.loaded import Checkpoint
from lstr.extractors.addresses import shown
from lstr.extractors.video.live_input import Input
from lstr.extractors.video.live_reader import LiveOptions, LiveReader
from lstr.pipelines.detection.sources import ALL, Limits
from lstr.pipelines.detection.status import Status
from lstr.pipelines.failures import failure_of
from lstr.timeline import Thresholds, Timeline

COUNTED = ("dropped", "unseen", "gaps", "frames", "decode_errors", "reconnects")


@dataclass
class LiveSource:
    """A source while it runs: its reader, its status, and its timeline of events."""

    id: str
    origin: str
    """Its address as it may be shown."""
    reader: LiveReader
    timeline: Timeline
    status: Status
    begun: int = 0
    """Chunks that went into the networks."""
    pending: int = 0
    """Of these, those not yet decided."""
    over: bool = False
    """No decision will follow."""
    broken: Exception | None = None
    """What went wrong with what it had sent."""

    @property
    def error(self) -> BaseException | None:
        """What ended it, if that was a failure."""
        return self.broken or (self.reader.error if self.over else None)

    def fail(self, error: Exception) -> None:
        """End it, and leave what it has sent. Raises as `failure_of` where the error is not of this source alone."""
        failure_of(error, self.origin)
        self.broken = self.broken or error
        self.reader.stop()

    def refresh(self) -> Status:
        """Its status, as of now."""
        self.status.link = "ended" if self.over else self.reader.link
        self.status.waiting = self.reader.waiting
        for name in COUNTED:
            setattr(self.status, name, getattr(self.reader, name))
        return self.status

    def describe(self) -> dict:
        """How it was read and what came of it, as a timeline file has it."""
        error = self.broken or self.reader.error
        return {
            "clock": self.reader.clock,
            "on_lag": self.reader.on_lag,
            **{name: getattr(self.refresh(), name) for name in COUNTED},
            **({"error": str(error)} if error else {}),
        }


@contextmanager
def open_live(
    inputs: Iterable[Input],
    loaded: Checkpoint,
    long_side: int,
    options: LiveOptions | None = None,
    limits: Limits = ALL,
    thresholds: Thresholds | Mapping[str, Thresholds] | None = None,
) -> Iterator[list[LiveSource]]:
    """Live sources that are read from now on, each with an id of its own; they end with the context."""
    changed = threading.Condition()
    with ExitStack() as stack:
        sources: list[LiveSource] = []
        for live_input in inputs:
            named = sum(source.id.partition("~")[0] == live_input.id for source in sources)
            name = f"{live_input.id}~{named + 1}" if named else live_input.id
            origin = shown(live_input.source) if isinstance(live_input.source, str) else live_input.id
            reader = LiveReader(live_input, long_side, options, changed, limits.first, limits.end)
            timeline = Timeline(loaded.classes, thresholds or Thresholds())
            sources.append(LiveSource(name, origin, stack.enter_context(reader), timeline, Status(name)))
        yield sources

"""A live source of a detection: its reader, what is known of it, and what ended it."""

from collections.abc import Iterator, Sequence
from time import monotonic

from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.live_input import Input
from lstr.extractors.video.live_reader import LiveReader
from lstr.files.names import shown
from lstr.pipelines.detection.effort import Since
from lstr.pipelines.detection.running import Deciding, Running
from lstr.pipelines.detection.sink import End
from lstr.pipelines.detection.status import Status
from lstr.pipelines.detection.warnings import warnings_of_shape
from lstr.pipelines.failures import failure_of
from lstr.pipelines.progress import Notice

COUNTED = ("dropped", "unseen", "gaps", "frames", "decode_errors", "reconnects")
PATIENCE = 2.0
"""Seconds that a sink may take for what waits for it when its source is over, unless it needs all."""


class LiveSource(Running):
    """A source while it runs, in a place of the model's state; it drops chunks when the machine is slower than it."""

    live = True

    def __init__(
        self,
        source_id: str,
        live_input: Input,
        reader: LiveReader,
        deciding: Deciding,
        place: int,
        warnings: Sequence[str] = (),
    ):
        origin = shown(live_input.source) if isinstance(live_input.source, str) else live_input.id
        super().__init__(source_id, origin, deciding)
        self.reader, self.place, self.warnings = reader, place, [*warnings]
        self.since = Since(deciding.effort)
        self.named = live_input.named
        self.begun = 0
        """Chunks that went into the networks."""
        self.pending = 0
        """Begun, and not yet decided."""
        self.over = False
        """No decision will follow."""
        self.broken: Exception | None = None
        """What went wrong with what it had sent."""
        self._closed = 0.0
        self._shape: tuple[int, ...] = ()
        self._news: list[str] = []

    @property
    def error(self) -> BaseException | None:
        """What ended it, if that was a failure, or what became of its files."""
        return self.broken or (self.reader.error if self.over else None) or self.lost

    def fail(self, error: Exception) -> None:
        """End it, and leave what it has sent. Raises as `failure_of` where the error is not of this source alone."""
        failure_of(error, self.called)
        self.broken = self.broken or error
        self.reader.stop()

    def has_chunk(self, most: int | None) -> bool:
        """Whether a chunk waits that is wanted."""
        return self.reader.waiting > 0 and not self.is_full(most) and not self.broken and not self.left

    def meet(self, chunk: Chunk) -> None:
        """Warn of the shape of a chunk's frames where it is another than before."""
        if self._shape != chunk.frames.shape:
            self._shape = chunk.frames.shape
            height, width = self._shape[1:3]
            self._news += warnings_of_shape(self.deciding.loaded, width, height)

    def is_full(self, most: int | None) -> bool:
        """Whether all chunks that are wanted of it have gone into the networks."""
        return most is not None and self.begun >= most

    def is_done(self, most: int | None) -> bool:
        """Whether its last decision is made."""
        ended = self.reader.ended and self.reader.waiting == 0
        return self.pending == 0 and (ended or self.left or self.broken is not None or self.is_full(most))

    def troubles(self) -> Iterator[Notice]:
        """What its reader has to say too."""
        name = f"{self.id}: " if self.named or self.deciding.named else ""
        news, self._news = self._news, []
        self.warnings += news
        yield from (Notice(f"{name}{text}") for text in news)
        # as when it was away: each of these has happened once more
        yield from (Notice(f"{name}{text}", repeats=True) for text in self.reader.news())
        yield from super().troubles()

    def refresh(self) -> Status:
        self.status.link = "ended" if self.over else self.reader.link
        self.status.waiting = self.reader.waiting
        for name in COUNTED:
            setattr(self.status, name, getattr(self.reader, name))
        return self.status

    def abandon(self) -> None:
        """Let the sinks end without results."""
        self._closed = monotonic()
        self.close(End(error=GeneratorExit()))

    def leave(self) -> None:
        """Read no more, and let the sinks end after what waits for them."""
        if self.over:
            return
        self.over, self._closed = True, monotonic()
        self.reader.stop()
        error = self.broken or self.reader.error
        live = {
            "on_gap": self.deciding.on_gap,
            "clock": self.reader.clock,
            "on_lag": self.reader.on_lag,
            **{name: getattr(self.refresh(), name) for name in COUNTED},
            **({"error": str(error)} if error else {}),
        }
        warnings = [*self.warnings, *self.reader.warnings]
        self.close(End(self.finish(), None, warnings, live))

    @property
    def settled(self) -> bool:
        """Whether its sinks have ended, or are not to be waited for."""
        late = monotonic() - self._closed > PATIENCE
        return all(outlet.over or (late and not (self.over and outlet.sink.needs_all)) for outlet in self.outlets)

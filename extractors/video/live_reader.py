"""A live source in a thread of its own: chunks at the source's time, a bounded number of them waiting.

Time. With the `stream` clock it is that of the source's timestamps, from its first frame on; one that steps back goes
on from where it was. With the `wall` clock, for pictures that come without times (MJPEG), and where timestamps stand
still or jump to and fro, it is when a frame came. A pipe and a recording come as fast as they are taken, so that there
frames are counted where timestamps are of no use.
A frame is shown until the next one, as in a file, unless that is more than GAP_SECONDS away (or four of the source's
own steps, if it is that slow): then what lies between was not seen. A chunk consists of frames that were seen, so
chunks are missing where the source was away, and chunk numbers keep to the time. After a reconnection the clock goes
on by the time it took. An event whose end turned it into a recording (HLS) is over: it is not read from its beginning.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from fractions import Fraction
from time import monotonic

from lstr.errors import StalledError, VideoError
from lstr.extractors.stages import DECODE
from lstr.extractors.video.containers import Opening
from lstr.extractors.video.frames import (
    GAP_SECONDS,
    SILENCE,
    Chunk,
    Gap,
    SourceFrame,
    chunks_of,
    counted_on,
    joined,
    stretches,
)
from lstr.extractors.video.live_input import QUIET, Input, Link, LiveOptions, given_up, has_ended, stalled, too_short
from lstr.extractors.video.packet_ring import PacketSink
from lstr.extractors.video.probe import AVERAGE_RATE, comes_later
from lstr.extractors.video.reader import PyAVReader
from lstr.extractors.video.zones import Backdrop, Zones
from lstr.files.names import shown

LONGEST_GAP = 24 * 3600  # seconds; a clock that jumps farther is wrong, and goes on from where it was
DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0)  # seconds before each attempt to connect again; the last one for all others


@dataclass(frozen=True)
class Moment:
    """The present, in seconds of the monotonic clock and on the clock of the wall, with the zone of this machine."""

    monotonic: float = field(default_factory=monotonic)
    wall: datetime = field(default_factory=lambda: datetime.now().astimezone())


class LiveReader:
    """Chunks of a live source, read ahead; use it as a context manager.

    `changed` is notified whenever there is a chunk to `take`, and at the end. Chunks before `first` are left out, and
    before `end` the source is left. `packets` gets each packet of its video stream, in the reader's thread; `seen` gets
    each chunk too, as it is read; what goes wrong in it stops nothing. `zones` is asked at each chunk where motion
    counts in it: outside these zones it shows a `Backdrop`.
    """

    def __init__(
        self,
        live_input: Input,
        long_side: int,
        options: LiveOptions | None = None,
        changed: threading.Condition | None = None,
        first: int = 0,
        end: int | None = None,
        packets: PacketSink | None = None,
        seen: Callable[[Chunk], None] | None = None,
        zones: Callable[[], Zones] | None = None,
    ):
        self._seen, self._zones = seen, zones
        self.input, self.options = live_input, options or LiveOptions()
        self.changed = changed or threading.Condition()
        self.error: BaseException | None = None
        """What ended it, after the last chunk; None at its end."""
        self.ended = False
        self.clock: str = self.options.clock
        """`stream`, `wall` (when frames came) or `average rate` (frames are counted)."""
        self.dropped = self.unseen = self.gaps = self.reconnects = 0
        self._long_side, self._first, self._end, self._packets = long_side, first, end, packets
        self._chunks: deque[tuple[Chunk, Moment]] = deque()
        self._missing: list[Gap] = []
        self._next = first  # the chunk that follows the newest one made
        self._stopped = threading.Event()
        self._reader: PyAVReader | None = None
        self._counted = [0, 0]  # frames and decode errors of earlier connections
        self._link = Link()
        self.warnings: list[str] = []  # what a reader of the scores must know
        self._noted: list[str] = []
        self._told: list[str] = []
        self._last: tuple[Fraction, Fraction] | None = None  # time and step of the newest frame
        self._heard = self._began = monotonic()
        self._origin: Fraction | None = None  # of a connection's clock on this reader's; None before its first frame
        self._thread = threading.Thread(target=self._work, name=f"live {live_input.id}", daemon=True)

    @property
    def on_lag(self) -> str:
        """What happens to chunks that come too fast: `drop` or `wait`."""
        reader = self._reader
        goes_on = self.input.lasting and not (reader and reader.finite and reader.decoded)
        return self.options.on_lag or ("drop" if goes_on else "wait")

    @property
    def frames(self) -> int:
        """Source frames decoded so far."""
        return self._counted[0] + (self._reader.decoded if self._reader else 0)

    @property
    def decode_errors(self) -> int:
        """Damaged packets and frames that were left out so far."""
        return self._counted[1] + (self._reader.decode_errors if self._reader else 0)

    def news(self) -> list[str]:
        """What a person should know, as of one who waits for the first frame, each sentence once."""
        noted = [self._reader.note] if self._reader and self._reader.note else []
        new = [text for text in [*self._noted, *noted] if text not in self._told]
        self._told += new
        return [*new, *self._link.changes()]

    @property
    def link(self) -> str:
        """connecting, reading, stalled, lost or ended."""
        return "ended" if self.ended else self._link.describe(bool(self._chunks))

    @property
    def waiting(self) -> int:
        """Chunks to take."""
        return len(self._chunks)

    def take(self) -> tuple[Chunk, Moment] | None:
        """The oldest chunk that waits, and when it was closed; None where none waits."""
        with self.changed:
            if not self._chunks:
                return None
            taken = self._chunks.popleft()
            self.changed.notify_all()
            return taken

    def missing_before(self, chunk: int) -> list[Gap]:
        """What is not decided before a chunk, in order, each returned once."""
        with self.changed:
            passed = [gap for gap in self._missing if gap.end <= chunk]
            self._missing = [gap for gap in self._missing if gap.end > chunk]
        return joined(passed)

    def stop(self) -> None:
        """Read no more. What FFmpeg waits for now it may wait for a little longer, with nobody listening."""
        self._stopped.set()
        with self.changed:
            self.changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait until it reads no more, for so long at most."""
        self._thread.join(max(0.0, seconds))

    def __enter__(self) -> "LiveReader":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self.join(QUIET)

    def _work(self) -> None:
        try:
            self._read()
        except BaseException as error:  # for the one who takes the chunks, whatever it is
            self.error = error
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _read(self) -> None:
        """Connect, and connect again, until it ends, stalls or is stopped."""
        attempts = 0
        while not self._stopped.is_set():
            before = self._link.sign
            lost = self._connection()
            if self._stopped.is_set() or self._is_over():
                return
            if lost is None and self._ends():
                if self._next == self._first:
                    is_over = self.input.is_over and not self.frames
                    raise has_ended(self.input) if is_over else too_short(self.input, self.frames)
                return
            if lost and self._ends():  # connected again, a recording would begin anew
                raise stalled(self.input, self.options.timeout) if isinstance(lost, StalledError) else lost
            if lost and not self._link.has_received and not isinstance(lost, StalledError):
                if "://" not in str(self.input.source) or not comes_later(lost):
                    raise lost  # an address with a mistake is not tried again
            attempts = 0 if self._link.sign > before else attempts + 1
            self._link.leave()
            left = self._link.sign + self.options.timeout - monotonic()
            if lost and not self._link.has_received and left > 0:
                self._noted.append(f"{lost} It is tried again for {self.options.timeout:g} s.")
            self._stopped.wait(max(0.0, min(DELAYS[min(attempts, len(DELAYS) - 1)], left)))
            if monotonic() - self._link.sign >= self.options.timeout:
                raise given_up(self.input, self.options.timeout, None if self._link.has_received else lost) from lost

    def _connection(self) -> VideoError | None:
        """Read one connection to its end; what ended it, None where the source did."""
        left = max(0.1, self._link.sign + self.options.timeout - monotonic())
        patience = min(left, SILENCE) if self.input.lasting else left
        opening = Opening(self.input.options, self.input.demuxer, (patience, patience))
        again = self._link.has_received or self.input.is_over  # a recording is never connected to again
        reader = PyAVReader(self.input.source, "skip", True, opening, self._stopped.is_set, self._packets, again)
        self._counted, self._reader, self._origin = [self.frames, self.decode_errors], reader, None
        try:
            with DECODE, closing(reader.frames(self._long_side)) as frames:
                self._take(frames, Backdrop())
        except VideoError as error:
            return error
        finally:
            self._link.is_connected = False
        return None

    def _take(self, frames: Iterator[SourceFrame], backdrop: Backdrop) -> None:
        """Let the chunks of a connection wait to be taken, to its end."""
        for first, stretch in stretches(self._timed(frames), self._last and self._last[1]):
            for chunk in chunks_of(stretch, max(self._next, first, self._first)):
                if self._seen:
                    with suppress(Exception):
                        self._seen(chunk)
                self._put(backdrop.behind(chunk, self._zones()) if self._zones else chunk)
                if self._stopped.is_set() or self._is_over():
                    return

    def _timed(self, frames: Iterator[SourceFrame]) -> Iterator[SourceFrame]:
        """A connection's frames on this reader's clock, which goes on over connections."""
        for frame in frames:
            now = monotonic()
            self._link.take_frame(now)
            origin = self._origin
            if origin is None:
                if self._last is None:
                    origin, self._began = Fraction(0), now
                else:  # between two connections time went on
                    origin = self._last[0] + Fraction(max(0.0, now - self._heard)).limit_denominator(1000)
                    self.reconnects += 1
            time = origin + frame.time
            before, step = self._last or (time, Fraction(0))
            if self.clock == "stream" and frame.time and time - before > LONGEST_GAP:
                origin -= time - before - step
                time = before + step
            if self.clock == "stream":
                self._leave_stamps(now, max(time, before))
            if self.clock == "wall":
                time = Fraction(now - self._began).limit_denominator(1000)
            elif self.clock == AVERAGE_RATE:
                time = counted_on(before, frame.duration, now - self._heard)
            time = max(time, before)
            self._origin = origin
            self._last, self._heard = (time, time - before), now
            # in a container a frame may last until its clock has jumped
            yield replace(frame, time=time, duration=min(frame.duration, Fraction(GAP_SECONDS)))
            if self._stopped.is_set():
                return
            self._link.wait()
            self._heard = self._link.sign

    def _leave_stamps(self, now: float, time: Fraction) -> None:
        """Take another clock from now on, at `time`, where there are no timestamps or they are of no use."""
        reader = self._reader
        if reader is None:
            return
        if self.input.lasting and reader.timeless:
            self.clock = "wall"
            return
        goes_on = not self._ends()
        fault = reader.stamps.fault(now if goes_on else None)
        if goes_on and reader.clock == AVERAGE_RATE:
            fault = "are missing"
        if not fault:
            return
        source = shown(self.input.source)
        if goes_on:
            self.clock, self._began = "wall", reader.stamps.since - float(time)
            self._noted.append(f"The time stamps of {source} {fault}: its time is now that at which frames come.")
        else:
            self.clock = AVERAGE_RATE
            self._noted.append(
                f"The time stamps of {source} {fault}: its frames are now counted, at the rate that it names. With "
                "`--set clock=wall` its time is that at which they come."
            )
        self.warnings.append(self._noted[-1])

    def _put(self, chunk: Chunk) -> None:
        """Let a chunk wait to be taken, in the place of the oldest where none is free."""
        drop = self.on_lag == "drop"
        with self.changed:
            if self._end is not None and chunk.index >= self._end:
                self._next = chunk.index
                return
            if chunk.index > self._next:
                self.unseen += chunk.index - self._next
                self.gaps += 1
                self._missing.append(Gap(self._next, chunk.index, "unseen"))
            self._next = chunk.index + 1
            if drop and len(self._chunks) >= self.options.waiting:
                oldest, _ = self._chunks.popleft()
                self.dropped += 1
                self._missing = joined([*self._missing, Gap(oldest.index, oldest.index + 1, "dropped")])
            self.changed.wait_for(lambda: len(self._chunks) < self.options.waiting or self._stopped.is_set())
            self._chunks.append((chunk, Moment()))
            self.changed.notify_all()

    def _ends(self) -> bool:
        """Whether the end of this connection is the source's."""
        return not self.input.lasting or (self._reader is not None and self._reader.finite)

    def _is_over(self) -> bool:
        return self._end is not None and self._next >= self._end

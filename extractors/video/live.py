"""Readers of live sources (URLs, cameras and pipes), each in a separate thread.

The `stream` clock takes the time of a chunk from the source's timestamps, relative to its first frame. If they step
back, the clock continues from the last time. The `wall` clock uses the time of arrival; it is for frames without
timestamps (MJPEG) and for timestamps that stand still or jump back and forth. Pipes and recordings arrive as fast as
they are read, so their frames are counted instead if their timestamps are unusable.

A frame is shown until the next one, as in a file. If the next one is more than GAP_SECONDS later (or four frame
intervals of a slow source), there is a gap without chunks. Chunk numbers follow the time. A reconnection advances the
clock by its duration. If a live event becomes a recording (HLS), it has ended, and is not read from its beginning.
"""

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from time import monotonic
from typing import TYPE_CHECKING

from lstr.errors import StalledError, VideoError
from lstr.extractors.stages import DECODE
from lstr.extractors.video.frames import CHUNK, FPS, GAP_SECONDS, SILENCE_S, Chunk, Gap, merge_gaps
from lstr.extractors.video.inputs import Input, LiveOptions
from lstr.extractors.video.probe import AVERAGE_RATE, comes_later
from lstr.extractors.video.reader import PacketSink, PyAVReader, SourceFrame, chunks_of, stretches
from lstr.files.names import shown

if TYPE_CHECKING:  # most sources have no zones
    from lstr.extractors.video.zones import Zones

STALL_S = 2.0  # seconds without a frame after which the status of a source is `stalled`
MAX_JUMP_S = 24 * 3600  # a larger jump of timestamps is an error; the clock continues from the last time
SLOWEST_STEP, FASTEST_STEP = Fraction(10), Fraction(1, 240)  # seconds per frame that a source may declare
MAX_WAITING = 4  # complete chunks in the queue: a later decision would be a second old
DELAYS_S = (0.5, 1.0, 2.0, 4.0, 8.0)  # before each attempt to reconnect; the last one for all later attempts

# A point in time, in seconds of the monotonic clock and as local wall clock time with time zone.
Moment = tuple[float, datetime]


class LiveReader:
    """Reader that queues the chunks of a live source in a thread; use it as a context manager.

    `changed` is notified whenever a chunk can be taken, and at the end. Chunks before `first` are skipped, and reading
    ends before chunk `end`. `packets` is called with each packet of the video stream, in the reader's thread;
    `on_chunk` is called with each chunk, and its errors are ignored. `zones` is called for each chunk and returns the
    zones to keep: the area outside them is replaced by a `Backdrop`. `seen` is as for `chunks_of`.
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
        on_chunk: Callable[[Chunk], None] | None = None,
        zones: "Callable[[], Zones] | None" = None,
        seen: Collection[int] = range(CHUNK),
    ):
        self.input, self.options = live_input, options or LiveOptions()
        self.changed = changed or threading.Condition()
        # The error that ended the reader, after the last chunk; None if the source ended.
        self.error: BaseException | None = None
        self.ended = False
        # `stream`, `wall` (time of arrival) or `average rate` (frames are counted).
        self.clock: str = self.options.clock
        self.frames = self.dropped = self.unseen = self.gaps = self.reconnects = 0
        self.began: datetime | None = None  # the arrival of the first frame
        self.warnings: list[str] = []  # stored with the scores
        self._long_side, self._seen, self._first, self._end = long_side, seen, first, end
        self._packets, self._on_chunk, self._zones = packets, on_chunk, zones
        self._chunks: deque[tuple[Chunk, Moment]] = deque()
        self._missing: list[Gap] = []
        self._next = first  # the chunk after the latest one
        self._stopped = threading.Event()
        self._reader: PyAVReader | None = None
        self._earlier_errors = 0  # decode errors of earlier connections
        self._is_connected = self._has_received = False
        self._lost_at: float | None = None  # when the connection was lost, after frames were received
        self._notes: list[str] = []
        self._reported: set[str] = set()
        self._changes: list[str] = []
        self._last: tuple[Fraction, Fraction] | None = None  # time and step of the latest frame
        # Monotonic time of the latest frame; a source that waits for a full queue is not silent.
        self._heard = self._began = monotonic()
        self._origin: Fraction | None = None  # the connection's start on this reader's clock; None before a frame
        self._thread = threading.Thread(target=self._work, name=f"live {live_input.id}", daemon=True)

    @property
    def on_lag(self) -> str:
        """The behaviour for chunks that arrive too fast: `drop` or `wait`."""
        reader = self._reader
        has_no_end = self.input.lasting and not (reader and reader.finite and reader.decoded)
        return self.options.on_lag or ("drop" if has_no_end else "wait")

    @property
    def decode_errors(self) -> int:
        """Number of damaged packets and frames that were skipped so far."""
        return self._earlier_errors + (self._reader.decode_errors if self._reader else 0)

    @property
    def link(self) -> str:
        """State of the connection: connecting, reading, stalled, lost or ended."""
        if self.ended:
            return "ended"
        if not self._is_connected:
            return "lost" if self._has_received else "connecting"
        return "stalled" if monotonic() - self._heard > STALL_S and not self._chunks else "reading"

    @property
    def waiting(self) -> int:
        """Number of chunks that can be taken."""
        return len(self._chunks)

    def news(self) -> list[str]:
        """Return new sentences for the user: each note once, and every loss or restoration of the connection."""
        notes = [*self._notes, *([self._reader.note] if self._reader and self._reader.note else [])]
        new = [text for text in dict.fromkeys(notes) if text not in self._reported]
        self._reported.update(new)
        changes, self._changes = self._changes, []
        return [*new, *changes]

    def take(self) -> tuple[Chunk, Moment] | None:
        """Return the oldest queued chunk, and when it was completed; None if the queue is empty."""
        with self.changed:
            if not self._chunks:
                return None
            oldest = self._chunks.popleft()
            self.changed.notify_all()
            return oldest

    def missing_before(self, chunk: int) -> list[Gap]:
        """Return the new gaps before a chunk, in order; each gap is returned once."""
        with self.changed:
            before = [gap for gap in self._missing if gap.end <= chunk]
            self._missing = [gap for gap in self._missing if gap.end > chunk]
        return merge_gaps(before)

    def stop(self) -> None:
        """Stop reading; FFmpeg may still wait for data that it requested."""
        self._stopped.set()
        with self.changed:
            self.changed.notify_all()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, for at most `seconds`."""
        self._thread.join(max(0.0, seconds))

    def __enter__(self) -> "LiveReader":
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.stop()
        self.join(STALL_S)

    def _work(self) -> None:
        """Connect, and reconnect, until the source ends, stalls or is stopped."""
        try:
            attempts, source, timeout = 0, shown(self.input.source), self.options.timeout
            check = "check that it is on, and its address" if self.input.lasting else "check what writes it"
            hint = f"{check}; or wait longer with `--set timeout=SECONDS`."
            stalled = StalledError(f"{source} sent no frame for {timeout:g} s.", hint)
            while not self._stopped.is_set():
                before = self._heard
                lost = self._read_connection()
                if self._stopped.is_set() or self._is_past_end():
                    return
                if self._is_finite():
                    if lost:  # after a reconnection a recording would start over
                        raise stalled if isinstance(lost, StalledError) else lost
                    if self._next == self._first and self.input.is_over and not self.frames:
                        raise VideoError(
                            f"{source} has ended and is now a recording.",
                            "run `lstr detect` for the recording; a new live stream at this address is read again.",
                        )
                    if self._next == self._first:
                        raise VideoError(
                            f"{source} ended after {self.frames} frames, before the first decision.",
                            "a decision takes a quarter of a second of video, after `--start`; check what writes it.",
                        )
                    return
                if lost and not self._has_received and not isinstance(lost, StalledError):
                    if "://" not in str(self.input.source) or not comes_later(lost):
                        raise lost  # a permanent error; a retry does not help
                attempts = 0 if self._heard > before else attempts + 1
                silence = monotonic() - self._heard
                if self._has_received and self._lost_at is None and silence > GAP_SECONDS:
                    self._lost_at = self._heard
                    since = datetime.now() - timedelta(seconds=silence)
                    self._changes.append(f"connection lost: no frame since {since:%H:%M:%S}; reconnecting.")
                left = self._heard + timeout - monotonic()
                if lost and not self._has_received and left > 0:
                    self._notes.append(f"{lost} Reconnecting for up to {timeout:g} s.")
                self._stopped.wait(max(0.0, min(DELAYS_S[min(attempts, len(DELAYS_S) - 1)], left)))
                if monotonic() - self._heard >= timeout:
                    if self._has_received or lost is None:
                        raise stalled from lost
                    if isinstance(lost, StalledError):  # before the first frame: the camera may not exist
                        raise VideoError(str(stalled), hint) from lost
                    raise lost
        except BaseException as error:  # reported to the thread that takes the chunks
            self.error = error
        finally:
            with self.changed:
                self.ended = True
                self.changed.notify_all()

    def _read_connection(self) -> VideoError | None:
        """Read from one connection until it ends. Return its error, or None if the source ended."""
        left = max(0.1, self._heard + self.options.timeout - monotonic())
        patience = min(left, SILENCE_S) if self.input.lasting else left
        reader = PyAVReader(
            self.input.source,
            "skip",
            live=True,
            options=self.input.options,
            demuxer=self.input.demuxer,
            timeout=patience,
            stopped=self._stopped.is_set,
            packets=self._packets,
            endless=self._has_received or self.input.is_over,  # never reconnect to a recording
        )
        self._earlier_errors, self._reader, self._origin = self.decode_errors, reader, None
        backdrop = None
        if self._zones:
            from lstr.extractors.video.zones import Backdrop

            backdrop = Backdrop()
        try:
            with DECODE, closing(reader.frames(self._long_side)) as frames:
                for first, stretch in stretches(self._timed(reader, frames), self._last and self._last[1]):
                    for chunk in chunks_of(stretch, max(self._next, first, self._first), seen=self._seen):
                        if self._on_chunk:
                            with suppress(Exception):
                                self._on_chunk(chunk)
                        self._put(backdrop.behind(chunk, self._zones()) if backdrop and self._zones else chunk)
                        if self._stopped.is_set() or self._is_past_end():
                            return None
        except VideoError as error:
            return error
        finally:
            self._is_connected = False
        return None

    def _timed(self, reader: PyAVReader, frames: Iterator[SourceFrame]) -> Iterator[SourceFrame]:
        """Convert the times of a connection's frames to this reader's clock, which continues over connections."""
        for frame in frames:
            self.frames += 1
            now = monotonic()
            silence, self._heard = max(0.0, now - self._heard), now
            if self._lost_at is not None:
                self._changes.append(f"connected again, after {now - self._lost_at:.0f} s without a frame.")
                self._lost_at = None
            self._has_received = self._is_connected = True
            origin = self._origin
            if origin is None:
                if self._last is None:
                    origin, self._began, self.began = Fraction(0), now, datetime.now().astimezone()
                else:  # advance the clock by the time between two connections
                    origin = self._last[0] + Fraction(silence).limit_denominator(1000)
                    self.reconnects += 1
            time = origin + frame.time
            before, step = self._last or (time, Fraction(0))
            if self.clock == "stream" and frame.time and time - before > MAX_JUMP_S:
                origin -= time - before - step
                time = before + step
            if self.clock == "stream":
                self._replace_clock(reader, now, max(time, before))
            if self.clock == "wall":
                time = Fraction(now - self._began).limit_denominator(1000)
            elif self.clock == AVERAGE_RATE:
                step = frame.duration if FASTEST_STEP <= frame.duration <= SLOWEST_STEP else Fraction(1, FPS)
                time = before + (Fraction(silence).limit_denominator(1000) if silence > GAP_SECONDS else step)
            time = max(time, before)
            self._origin, self._last = origin, (time, time - before)
            # the duration in a container may include a jump of its clock
            yield replace(frame, time=time, duration=min(frame.duration, Fraction(GAP_SECONDS)))
            if self._stopped.is_set():
                return
            self._heard = monotonic()

    def _replace_clock(self, reader: PyAVReader, now: float, time: Fraction) -> None:
        """Change to another clock, from `time` on, because timestamps are missing or unusable."""
        if self.input.lasting and reader.timeless:
            self.clock = "wall"
            return
        is_finite = self._is_finite()
        fault = reader.stamps.fault(None if is_finite else now)
        if not is_finite and reader.clock == AVERAGE_RATE:
            fault = "are missing"
        if not fault:
            return
        sentence = f"The time stamps of {shown(self.input.source)} {fault}: "
        if is_finite:
            self.clock = AVERAGE_RATE
            sentence += "its frames are now counted, at its declared rate. `--set clock=wall` uses arrival times."
        else:
            self.clock, self._began = "wall", reader.stamps.since - float(time)
            sentence += "its time is now the time of arrival of its frames."
        self._notes.append(sentence)
        self.warnings.append(sentence)

    def _put(self, chunk: Chunk) -> None:
        """Queue a chunk; if the queue is full, drop the oldest one or wait."""
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
            if drop and len(self._chunks) >= MAX_WAITING:
                oldest, _ = self._chunks.popleft()
                self.dropped += 1
                self._missing = merge_gaps([*self._missing, Gap(oldest.index, oldest.index + 1, "dropped")])
            self.changed.wait_for(lambda: len(self._chunks) < MAX_WAITING or self._stopped.is_set())
            self._chunks.append((chunk, (monotonic(), datetime.now().astimezone())))
            self.changed.notify_all()

    def _is_finite(self) -> bool:
        """Return whether the end of this connection is the end of the source."""
        return not self.input.lasting or (self._reader is not None and self._reader.finite)

    def _is_past_end(self) -> bool:
        return self._end is not None and self._next >= self._end

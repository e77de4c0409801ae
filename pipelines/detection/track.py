"""A source while it is decided: its chunks through networks and model, its timeline, its status and its sinks."""

import resource
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from time import monotonic, perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import OutputError
from lstr.extractors.run import FeatureRow
from lstr.extractors.video.frames import Chunk, Gap
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import Decision, End, MakeSink, Opened, Outlet, Sink, SourceEvent, Status
from lstr.pipelines.detection.model import Networks, warnings_of, warnings_of_shape
from lstr.pipelines.detection.options import Limits, OutputOptions
from lstr.pipelines.detection.outputs import JsonLines, TimelineFiles, dated
from lstr.pipelines.detection.source import Source
from lstr.pipelines.failures import failure_of
from lstr.pipelines.progress import Notice
from lstr.timeline import Event as ActionEvent
from lstr.timeline import Thresholds, Timeline

if TYPE_CHECKING:  # a file needs no reader of live sources
    from lstr.extractors.video.live import LiveReader

SINK_TIMEOUT_S = 2.0  # for the queue of a sink after its source has ended, unless it needs all decisions
DECIDED_AHEAD = 1200  # decisions of a file, five minutes, that may wait until the files before it are reported
TOP = 3  # classes that a decision names
# Counters of a live reader.
COUNTED = ("dropped", "unseen", "gaps", "frames", "decode_errors", "reconnects")

Event = SourceEvent | Notice
# A chunk of a track on its way through the networks, and for a live source the moment at which it was complete.
NetworkInput = tuple["Track", Chunk, Any]


@dataclass
class Shared:
    """What the sources of a session share."""

    loaded: Checkpoint
    rules: Thresholds | Mapping[str, Thresholds]
    on_gap: str
    limits: Limits
    output: OutputOptions
    sinks: Sequence[MakeSink]
    # whether lines and messages of live sources name them
    names_sources: bool
    # notified when something happens to a source
    changed: threading.Condition = field(default_factory=threading.Condition)
    # of the decided chunks
    video_seconds: float = 0.0

    def spent(self) -> tuple[float, float, float]:
        """Return wall seconds, processor seconds of all threads and ended children, and seconds of video decided."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        return perf_counter(), sum(part.ru_utime + part.ru_stime for part in used), self.video_seconds


class Track:
    """A source while it is decided, at its place in the model's state: its timeline, its status and its sinks."""

    def __init__(self, source: Source, shared: Shared, place: int):
        self.source, self.shared, self.place = source, shared, place
        self.id, self.live = source.id, source.live
        self.reader: LiveReader | None = source.chunks if source.live else None
        # in messages: path or address, after the id that the user chose
        self.title = f"{source.id} ({source.origin})" if source.named else source.origin
        # whether lines and messages name it, if it is live
        self.is_named = source.named or shared.names_sources
        self.clock = shared.loaded.clock
        self.timeline = Timeline(shared.loaded.classes, shared.rules, self.clock)
        self.status = Status(source.id, source.n_chunks, chunk_seconds=self.clock.seconds)
        self.outlets: list[Outlet] = []
        # chunks that went into the networks, and those that have not come out
        self.n_sent = self.pending = 0
        # features of its next chunks; when these were there, or complete of a live source, and in wall-clock time
        self.ready: deque[tuple[FeatureRow, float, datetime | None]] = deque()
        # not reported yet
        self.decisions: deque[Decision] = deque()
        # whether its sinks are open, or closed; no more decisions are wanted; it could not be opened
        self.is_open = self.is_closed = self.is_removed = self.unreadable = False
        # the error of something that it gave to networks, model or sinks, and that of a sink that needs all decisions
        self.failure: BaseException | None = None
        self.sink_error: Exception | None = None
        self.final_events: tuple[ActionEvent, ...] = ()
        # up to its last decision, because it may wait until the files before it are reported
        self.spent_at_end: tuple[float, float, float] | None = None
        self._spent_before = shared.spent()  # after its opening, which may build the networks
        self._n_warnings = 0  # that were reported
        self._close_time = 0.0
        self.next: int | None = None  # the chunk that follows the latest one of a recorded source
        self._shape: tuple[int, ...] = ()
        self._at: datetime | None = None
        self._starts: dict[str, datetime] = {}  # of active actions, in wall-clock time

    @property
    def exhausted(self) -> bool:
        """Whether nothing is left to read."""
        chunks = self.source.chunks
        return self.source.rows is None and (chunks is None or (chunks.ended and not chunks.waiting))

    @property
    def error(self) -> BaseException | None:
        """The error that ended it, or made its files incomplete."""
        reading = self.source.chunks.error if self.source.chunks and (self.exhausted or self.is_closed) else None
        return self.failure or reading or self.sink_error

    @property
    def stops(self) -> bool:
        """Whether it sends nothing more into the networks; a live source stops after the chunks that are wanted."""
        is_full = self.live and self.n_sent >= (self.shared.limits.max_chunks or np.inf)
        return is_full or self.is_removed or self.is_closed or self.failure is not None

    @property
    def is_finished(self) -> bool:
        """Whether its last decision is made."""
        return not (self.pending or self.ready) and (self.stops or self.exhausted)

    @property
    def is_settled(self) -> bool:
        """Whether its sinks have ended, or are not waited for any longer."""
        late = monotonic() - self._close_time > SINK_TIMEOUT_S
        return all(
            outlet.has_ended or outlet.error is not None or (late and not (self.is_closed and outlet.sink.needs_all))
            for outlet in self.outlets
        )

    def has_batch(self, largest: int) -> bool:
        """Return whether a batch of its chunks is waiting."""
        chunks, wanted = self.source.chunks, self.source.batch or largest
        if chunks is None or self.stops or self.pending + len(self.decisions) >= DECIDED_AHEAD:
            return False
        return chunks.waiting >= wanted or (chunks.ended and chunks.waiting > 0)

    def take_chunks(self, largest: int) -> list[NetworkInput]:
        """Take the chunks of its next batch for the networks, each with when it was complete if the source is live."""
        chunks, batch = self.source.chunks, []
        for _ in range(min(self.source.batch or largest, chunks.waiting)):
            item = chunks.take()
            chunk, closed = (item, None) if isinstance(item, Chunk) else item
            if self._shape != chunk.frames.shape:  # the networks may see less of it
                self._shape = chunk.frames.shape
                height, width = self._shape[1:3]
                self.source.warnings += warnings_of_shape(self.shared.loaded, width, height)
            batch.append((self, chunk, closed))
        self.n_sent += len(batch)
        self.pending += len(batch)
        if self.stops:
            self.source.stop()
        return batch

    def take_row(self) -> None:
        """Take the next row of a source that needs no networks, unless its last decision is still on the way."""
        rows = self.source.rows
        if rows is None or self.stops or self.ready or self.decisions:
            return
        row = None
        try:
            row = next(rows, None)
        except Exception as error:
            self.fail(error)
        if row is None:
            self.source.rows = None
        else:
            self.ready.append((row, monotonic(), None))

    def decide(self, gaps: list[Gap], scores: NDArray[np.float32]) -> None:
        """Decide on the oldest chunk that is ready from the model's scores (1 + n_ahead, C)."""
        row, since, at = self.ready.popleft()
        latency_ms = (monotonic() - since) * 1000
        now, later, classes, clock = scores[0], scores[1:], self.shared.loaded.classes, self.clock
        ahead = [(clock.length(h + 1), classes[chunk.argmax()], float(chunk.max())) for h, chunk in enumerate(later)]
        top = [(classes[c], float(now[c])) for c in np.argsort(-now)[:TOP]]
        try:
            events = self.timeline.push(row.end_time, now, later)
        except Exception as error:  # scores that are not from 0 to 1
            self.fail(error, drop_ready=True)
            return
        events = self._with_wall_times(events, at) if at else events
        self.decisions.append(
            Decision(row.index, row.end_time, *top[0], top, latency_ms, events, now, ahead, gaps, at, self.id, clock)
        )
        self.shared.video_seconds += clock.seconds

    def open(self) -> Opened:
        """Open its sinks. Raises the error of one that needs all decisions and is waited for."""
        shared, source, output = self.shared, self.source, self.shared.output
        name = dated(self.id, output.folder) if self.live and output.folder else ""
        opened = Opened(
            self.id,
            self.status,
            shared.loaded.classes,
            self.refresh if self.live else None,
            source.origin,
            source.video,
            name,
            source.named,
        )
        self.is_open = True
        self.status.total = source.n_chunks
        sinks: list[Sink] = []
        if output.timeline:  # first, because its result is the source's
            sinks.append(TimelineFiles(shared.loaded, output, self.timeline.describe(), self._spent))
        if output.lines:
            sinks.append(JsonLines(output.lines, self.live and self.is_named, output.events_only))
        if output.folder and "jsonl" in output.formats:
            sinks.append(JsonLines(output.folder, events_only=output.events_only))
        for sink in (*sinks, *(make() for make in shared.sinks)):
            self.outlets.append(Outlet(sink, shared.changed if self.live else None))
            self.outlets[-1].open(opened)
        return opened

    def report(self) -> Iterator[Event]:
        """Hand its decisions to its sinks, and report them. Raises as `open`."""
        if self.unreadable:
            return
        yield from self.warnings()
        if not self.is_open:
            yield self.open()
        while self.decisions and (self.live or not self.is_removed):
            decision = self.decisions.popleft()
            self._at, status = decision.at, self.status
            status.time, status.decided = decision.time, status.decided + 1
            status.latencies_ms.append(decision.latency_ms)
            for outlet in self.outlets:
                outlet.take(decision)
            yield decision
        yield from self.notices()

    def warnings(self) -> Iterator[Notice]:
        """Yield new warnings for readers of its scores; some are known only as frames come."""
        name = f"{self.id}: " if self.live and self.is_open and self.is_named else ""
        new = self.source.warnings[self._n_warnings :]
        self._n_warnings += len(new)
        yield from (Notice(f"{name}{text}") for text in new)

    def notices(self) -> Iterator[Notice]:
        """Yield news of its reader, and errors of its sinks, once each.

        Raises as `failure_of`, except that a full disk ends no live source.
        """
        if self.reader:  # a camera may be disconnected several times
            name = f"{self.id}: " if self.is_named else ""
            yield from (Notice(f"{name}{text}", repeats=True) for text in self.reader.news())
        for outlet in self.outlets:
            if outlet.is_reported or (error := outlet.error) is None:
                continue
            outlet.is_reported = True
            try:
                reason = failure_of(error, self.title).reason
            except OutputError as full:
                if not self.live:
                    raise
                error, reason = full, str(full)
            if outlet.sink.needs_all:
                self.sink_error = self.sink_error or error
            yield Notice(f"{reason} Detection on {self.title} continues without {outlet.sink.name}.")

    def refresh(self) -> Status:
        """Return its status, updated from its reader."""
        if self.reader:
            self.status.link = "ended" if self.is_closed else self.reader.link
            self.status.waiting = self.reader.waiting
            for name in COUNTED:
                setattr(self.status, name, getattr(self.reader, name))
        return self.status

    def fail(self, error: BaseException, drop_ready: bool = False) -> None:
        """Send no more of it, and decide only what is ready. Raises as `failure_of` if others would fail too."""
        if not isinstance(error, Exception):
            raise error
        failure_of(error, self.title)
        self.failure = self.failure or error
        self.source.stop()
        if drop_ready:
            self.ready.clear()

    def close(self, error: BaseException | None = None) -> None:
        """Read no more and close its sinks, with its results unless there is an `error`. Raises as `open`."""
        if self.is_closed and error is None:
            return
        source, self.is_closed, self._close_time = self.source, True, monotonic()
        source.stop()
        end = End(error=error)
        if error is None:
            live, warnings = None, [*warnings_of(self.shared.loaded), *source.warnings]
            if reader := self.reader:
                failed, status = self.failure or reader.error, self.refresh()
                live = {
                    "on_gap": self.shared.on_gap,
                    "clock": reader.clock,
                    "on_lag": reader.on_lag,
                    **{name: getattr(status, name) for name in COUNTED},
                    **({"error": str(failed)} if failed else {}),
                }
                warnings += reader.warnings
            events = self.timeline.finish(self.status.time)
            events = self._with_wall_times(events, self._at) if self._at else events
            end = End(events, None if self.is_removed else source.duration, warnings, live)
        self.final_events = tuple(end.events)
        for outlet in self.outlets:
            outlet.close(end)

    def _spent(self) -> tuple[float, float]:
        """Return the wall time in seconds, and the CPU seconds per second of video of all sources in this time.

        Concurrent sources share threads, so the CPU time of a single source is unknown.
        """
        wall, used, decided = np.subtract(self.spent_at_end or self.shared.spent(), self._spent_before)
        return float(wall), float(used / decided) if decided else 0.0

    def _with_wall_times(self, events: list[ActionEvent], at: datetime) -> list[ActionEvent]:
        """Return events of one moment, `at` in wall-clock time, with the wall-clock times of their starts and ends."""
        dated_events = []
        for event in events:
            start = at - timedelta(seconds=event.time - event.start)
            if event.event == "started":
                self._starts[event.label] = start
            elif event.event == "ended":
                start = self._starts.pop(event.label, start)
            end = None if event.end is None else max(start, at - timedelta(seconds=event.time - event.end))
            dated_events.append(replace(event, at=at, start_at=start, end_at=end))
        return dated_events


class NetworkPool:
    """Threads that run the networks on the chunks of all sources; `changed` is notified when features are there.

    A batch has consecutive chunks of one file, as many as if the file ran alone, or one chunk of each of several live
    sources: the scores of a source never depend on the others.
    """

    def __init__(self, networks: Networks, changed: threading.Condition):
        self._twostream, self._workers, _ = networks.open()
        self._changed = changed
        self._pool, self._threads = self._twostream.open_pool(self._workers)
        # batches that were started, in their order, each with its features
        self._running: deque[tuple[list[NetworkInput], Future]] = deque()
        self._turn = 0  # the place of the source whose batch is next

    def close(self) -> None:
        """Wait for the batches that have started."""
        wait(rows for _, rows in self._running)
        if self._workers is None or self._pool is not self._workers.pool:
            self._pool.shutdown()

    def has_work(self, tracks: Sequence[Track]) -> bool:
        """Return whether there is something to `send` or to `collect`."""
        return bool(self._running and self._running[0][1].done()) or bool(self._next(tracks))

    def _next(self, tracks: Sequence[Track]) -> list[Track]:
        """Return the tracks for the next batch: a file, or live sources, shared by the free threads."""
        if len(self._running) > self._threads:
            return []
        turns = sorted(tracks, key=lambda track: (track.place < self._turn, track.place))
        ready = [track for track in turns if track.has_batch(self._twostream.batch)]
        if not ready or not ready[0].live:
            return ready[:1]
        ready = [track for track in ready if track.live]
        free = max(1, self._threads - len(self._running))
        return ready[: min(self._twostream.batch, -(-len(ready) // free))]

    def send(self, tracks: Sequence[Track]) -> None:
        """Start batches while there are free threads and chunks."""
        while chosen := self._next(tracks):
            self._turn = chosen[-1].place + 1
            batch = [sent for track in chosen for sent in track.take_chunks(self._twostream.batch)]
            self._running.append((batch, self._start(batch)))

    def _start(self, batch: Sequence[NetworkInput]) -> Future:
        try:
            rows = self._twostream.submit(self._pool, [chunk for _, chunk, _ in batch], self._workers)
        except Exception as error:
            rows = Future()
            rows.set_exception(error)

        def notify(_: Future) -> None:
            with self._changed:
                self._changed.notify_all()

        rows.add_done_callback(notify)
        return rows

    def collect(self) -> None:
        """Give the features that are there to their tracks, in the order in which the batches started."""
        while self._running and self._running[0][1].done():
            batch, rows = self._running.popleft()
            if error := rows.exception():
                tracks = list(dict.fromkeys(track for track, _, _ in batch))
                if len(tracks) > 1 and isinstance(error, Exception):  # run each by itself, to find the one that fails
                    failure_of(error, ", ".join(track.source.origin for track in tracks))
                    self._running.extendleft(([sent], self._start([sent])) for sent in reversed(batch))
                else:
                    tracks[0].pending -= len(batch)
                    tracks[0].fail(error)
                continue
            for (track, _, closed), row in zip(batch, rows.result(), strict=True):
                track.pending -= 1
                if not track.failure:
                    since, at = (closed.monotonic, closed.wall) if closed else (monotonic(), None)
                    track.ready.append((row, since, at))

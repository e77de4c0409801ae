"""The one loop over the chunks of all sources: from their queues through networks and model to decisions and sinks."""

import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import TOLERANCE
from lstr.extractors.run import FeatureRow
from lstr.extractors.stages import MODEL, torch_threads
from lstr.extractors.streams import PICTURES
from lstr.extractors.video.frames import Chunk, Gap
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import Decision, Opened, Outlet, SourceEvent, Status
from lstr.pipelines.detection.model import Networks, Streams, warnings_of_shape
from lstr.pipelines.detection.options import Limits
from lstr.pipelines.detection.source import Source
from lstr.pipelines.failures import failure_of
from lstr.pipelines.progress import Notice
from lstr.timeline import Event, Thresholds, Timeline

if TYPE_CHECKING:  # a file needs no reader of live sources, and few models use poses
    from lstr.extractors.video.live import LiveReader
    from lstr.pipelines.detection.people import PeopleTracker

SINK_TIMEOUT_S = 2.0  # for the queue of a sink after its source has ended, unless it needs all decisions
DECIDED_AHEAD = 1200  # decisions of a file, five minutes, that may wait until the files before it are reported
MOST_ARRIVALS = 240  # a minute of chunks: events are reported seconds after their start
REFRESH_S = 0.5  # after which statuses are renewed though nothing was decided
TOP = 3  # classes that a decision names
COUNTED = ("dropped", "unseen", "gaps", "frames", "decode_errors", "reconnects")  # counters of a live reader
NetworkInput = tuple["Track", Chunk, Any]  # and for a live source the moment at which the chunk was complete


class Track:
    """A source while it is decided, at its place in the model's state: its timeline, its status and its sinks."""

    def __init__(self, source: Source, session: "Loop", place: int):
        self.source, self.session, self.place = source, session, place
        self.id, self.live = source.id, source.live
        self.reader: LiveReader | None = source.chunks if source.live else None
        # in messages: path or address, after the id that the user chose
        self.title = f"{source.id} ({source.origin})" if source.named else source.origin
        # whether lines and messages name it, if it is live
        self.is_named = source.named or session.places > 1
        self.clock = session.loaded.clock
        self.timeline = Timeline(session.loaded.classes, session.rules, self.clock)
        self.status = Status(source.id, source.n_chunks, chunk_seconds=self.clock.seconds)
        self.outlets: list[Outlet] = []
        # chunks that went into the networks, and those that have not come out
        self.n_sent = self.pending = 0
        # features of its next chunks; when these were there, or complete of a live source, and in wall-clock time
        self.ready: deque[tuple[FeatureRow, float, datetime | None]] = deque()
        self.decisions: deque[Decision] = deque()  # not reported yet
        # whether its sinks are open, or closed; no more decisions are wanted; it could not be opened
        self.is_open = self.is_closed = self.is_removed = self.unreadable = False
        # the error of something that it gave to networks, model or sinks, and that of a sink that needs all decisions
        self.failure: BaseException | None = None
        self.sink_error: Exception | None = None
        self.final_events: tuple[Event, ...] = ()
        self.spent_before = session.spent()  # after its opening, which may build the networks
        # up to its last decision, because it may wait until the files before it are reported
        self.spent_at_end: tuple[float, float, float] | None = None
        self.close_time = 0.0
        self.next: int | None = None  # the chunk that follows the latest one
        self.gaps: list[Gap] = []  # before its oldest chunk that is ready
        self._n_warnings = 0  # that were reported
        self.shape: tuple[int, ...] = ()
        self.people: PeopleTracker | None = None  # of a model on poses
        self._starts: dict[str, datetime] = {}  # of active actions, in wall-clock time
        # ends of chunks, and when these arrived: a pipe may be faster than real time
        self._arrivals: deque[tuple[float, datetime]] = deque(maxlen=MOST_ARRIVALS)

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
        is_full = self.live and self.n_sent >= (self.session.limits.max_chunks or np.inf)
        return is_full or self.is_removed or self.is_closed or self.failure is not None

    @property
    def is_finished(self) -> bool:
        """Whether its last decision is made."""
        return not (self.pending or self.ready) and (self.stops or self.exhausted)

    @property
    def is_settled(self) -> bool:
        """Whether its sinks have ended, or are not waited for any longer."""
        late = monotonic() - self.close_time > SINK_TIMEOUT_S
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
            if self.shape != chunk.frames.shape:  # the networks may see less of it
                self.shape = chunk.frames.shape
                height, width = self.shape[1:3]
                self.source.warnings += warnings_of_shape(self.session.loaded, width, height)
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
        try:
            row = next(rows, None)
        except Exception as error:
            self.fail(error)
            row = None
        if row is None:
            self.source.rows = None
        else:
            self.ready.append((row, monotonic(), None))

    def decide(self, scores: NDArray[np.float32]) -> None:
        """Decide on the oldest chunk that is ready from the model's scores (1 + n_ahead, C)."""
        row, since, at = self.ready.popleft()
        gaps, self.gaps = self.gaps, []
        latency_ms = (monotonic() - since) * 1000
        now, later, classes, clock = scores[0], scores[1:], self.session.loaded.classes, self.clock
        ahead = [(clock.length(h + 1), classes[chunk.argmax()], float(chunk.max())) for h, chunk in enumerate(later)]
        top = [(classes[c], float(now[c])) for c in np.argsort(-now)[:TOP]]
        try:
            events = self.timeline.push(row.end_time, now, later)
        except Exception as error:  # scores that are not from 0 to 1
            self.fail(error, drop_ready=True)
            return
        if at:
            self._arrivals.append((row.end_time, at))
            arrival = self._arrival
            gaps = [replace(g, start_at=arrival(clock.at(g.first)), end_at=arrival(clock.at(g.end))) for g in gaps]
            events = self.with_wall_times(events)
        decision = Decision(
            row.index, row.end_time, *top[0], top, latency_ms, events, now, ahead, gaps, at, self.id, clock
        )
        if self.people:
            decision = self.people.add_to(decision, row, self.shape)
        self.decisions.append(decision)
        self.session.n_decided += 1

    def report(self) -> Iterator[SourceEvent]:
        """Hand its decisions to its sinks, and report them. Raises the error of a sink that needs all decisions."""
        if self.unreadable:
            return
        yield from self.notices()
        if not self.is_open:
            yield self.session.open_sinks(self)
        while self.decisions and (self.live or not self.is_removed):
            decision = self.decisions.popleft()
            self.status.time, self.status.decided = decision.time, self.status.decided + 1
            self.status.latencies_ms.append(decision.latency_ms)
            for outlet in self.outlets:
                outlet.take(decision)
            yield decision
        yield from self.notices()

    def notices(self) -> Iterator[Notice]:
        """Yield new warnings, news of its reader, and errors of its sinks. Raises as `Session.report_sink`."""
        name = f"{self.id}: " if self.live and self.is_named else ""
        new = self.source.warnings[self._n_warnings :]  # some are known only as frames come
        self._n_warnings += len(new)
        yield from (Notice(f"{name}{text}") for text in new)
        if self.reader:  # a camera may be disconnected several times
            yield from (Notice(f"{name}{text}", repeats=True) for text in self.reader.news())
        for outlet in self.outlets:
            if outlet.error and not outlet.is_reported:
                yield self.session.report_sink(self, outlet)

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

    def _arrival(self, seconds: float) -> datetime:
        """Return when a moment of a live source arrived, by the chunks around it: a pipe may outrun real time."""
        assert self.reader and self.reader.began
        before, earlier = 0.0, self.reader.began
        for end, at in self._arrivals:
            if end >= seconds - TOLERANCE:
                left = max(0.0, end - seconds)
                return at - min(timedelta(seconds=left), (at - earlier) * (left / (end - before)))
            before, earlier = end, at
        return earlier

    def with_wall_times(self, events: list[Event]) -> list[Event]:
        """Return events of the latest decision on a live source with their wall-clock times."""
        dated_events = []
        for event in events:
            start = self._arrival(event.start)
            if event.event == "started":
                self._starts[event.label] = start
            elif event.event == "ended":
                start = self._starts.pop(event.label, start)
            end = None if event.end is None else max(start, self._arrival(event.end))
            dated_events.append(replace(event, at=self._arrivals[-1][1], start_at=start, end_at=end))
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
        """Return whether `advance` would do something."""
        return (bool(self._running) and self._running[0][1].done()) or bool(self._next(tracks))

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

    def advance(self, tracks: Sequence[Track]) -> None:
        """Start batches while there are free threads and chunks, and give their features to the tracks, in order."""
        while chosen := self._next(tracks):
            self._turn = chosen[-1].place + 1
            batch = [sent for track in chosen for sent in track.take_chunks(self._twostream.batch)]
            self._running.append((batch, self._start(batch)))
        while self._running and self._running[0][1].done():
            batch, rows = self._running.popleft()
            if error := rows.exception():
                failed = list(dict.fromkeys(track for track, _, _ in batch))
                if len(failed) > 1 and isinstance(error, Exception):  # run each by itself, to find the one that fails
                    failure_of(error, ", ".join(track.source.origin for track in failed))
                    self._running.extendleft(([sent], self._start([sent])) for sent in reversed(batch))
                else:
                    failed[0].pending -= len(batch)
                    failed[0].fail(error)
                continue
            for (track, _, closed), row in zip(batch, rows.result(), strict=True):
                track.pending -= 1
                if not track.failure:
                    since, at = closed or (monotonic(), None)
                    row = track.people.inside(row, track.shape) if track.people else row
                    track.ready.append((row, since, at))

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


class Loop:
    """The loop of a `Session`, which opens and ends the sources."""

    # methods of `Session`, with their documentation
    open_waiting: Callable[[], Iterator[SourceEvent]]
    open_sinks: Callable[[Track], Opened]
    report_sink: Callable[[Track, Outlet], Notice]
    close: Callable[..., None]
    settle: Callable[[Track], Iterator[SourceEvent]]
    spent: Callable[[], tuple[float, float, float]]

    def __init__(self, loaded: Checkpoint, places: int, rules: Thresholds | Mapping[str, Thresholds], limits: Limits):
        self.loaded, self.places, self.rules, self.limits = loaded, places, rules, limits
        self.changed = threading.Condition()
        """Notified when something happens to a source."""
        self.alive = monotonic()
        """When the loop last ran, on the monotonic clock."""
        self.waiting: deque[Source] = deque()
        self.tracks: list[Track] = []
        """Sources at their places, in the order in which they were opened."""
        self.n_decided = 0
        self.streams: Streams | None = None
        self.pool: NetworkPool | None = None

    def events(self) -> Generator[SourceEvent, None, None]:
        """Decide on the sources until all have ended. A decision of a file comes when its sinks have it.

        A source without a decision leaves no files. Raises as `Networks.open`.
        """
        if not self.loaded.exported:
            with torch_threads():
                pass  # a thread that never set it would let the libraries below torch take all cores
        tracks = self.tracks
        try:
            while tracks or self.waiting:
                if self.waiting and len(tracks) < self.places:
                    yield from self.open_waiting()
                with self.changed:
                    self.changed.wait_for(lambda: not tracks or self._has_work(), REFRESH_S)
                self.alive = monotonic()
                for track in tracks:
                    track.refresh()
                    track.take_row()
                if self.pool:
                    self.pool.advance(tracks)
                # a step costs little more for several streams than for one, and least where they are neighbours
                while live := sorted((t for t in tracks if t.live and t.ready), key=lambda track: track.place):
                    self._step(live)
                for track in tracks:
                    while track.ready:  # alone, so that the scores of a file do not depend on other files
                        self._step([track])
                    if track.is_finished:
                        track.spent_at_end = track.spent_at_end or self.spent()
                for track in self._reported():
                    try:
                        yield from track.report()
                        if track.is_finished:
                            self.close(track, None if track.live else track.error)
                    except Exception as error:  # of a sink that needs all decisions
                        track.failure = track.failure or error
                        self.close(track, error)
                    if track.is_closed and track.is_settled:
                        yield from self.settle(track)
        except BaseException as error:  # Ctrl-C too, and a caller that takes no more events
            for track in [track for track in tracks if not track.live]:
                self.close(track, error)
                track.source.close()
            raise

    def _has_work(self) -> bool:
        """Return whether a turn of the loop would do something."""
        if self.pool and self.pool.has_work(self.tracks):
            return True
        return any(track.source.rows is not None and not track.stops for track in self.tracks) or any(
            track.is_settled if track.is_closed else track.is_finished or not track.is_open or track.decisions
            for track in self._reported()
        )

    def _reported(self) -> list[Track]:
        """Return the tracks that may yield events now: live ones, and the first file."""
        first = next((track for track in self.tracks if not track.live), None)
        return [track for track in self.tracks if track.live or track is first]

    def _step(self, tracks: Sequence[Track]) -> None:
        """Decide on the oldest ready chunk of each track."""
        streams = self.streams
        assert streams
        for track in tracks:
            chunk = track.ready[0][0].index
            if track.reader:
                track.gaps += track.reader.missing_before(chunk)
            elif track.next is not None and chunk > track.next:
                track.gaps.append(Gap(track.next, chunk, "unseen"))
            track.next = chunk + 1
        try:
            rows, inputs = [track.ready[0][0].features for track in tracks], []
            for names in (PICTURES, ("flow",)):
                parts = [np.stack([row[name] for row in rows]) for name in names if name in rows[0]]
                inputs.append(streams.as_input(np.concatenate(parts, axis=1)) if parts else None)
            scores = np.asarray(streams.step([track.place for track in tracks], *inputs))
        except Exception as error:
            MODEL.mark(error)
            if len(tracks) == 1:
                tracks[0].fail(error, drop_ready=True)
                return
            for track in tracks:  # a step for each, to find the one that fails
                self._step([track])
            return
        for track, part in zip(tracks, scores, strict=True):
            track.decide(part)

"""A session: the one loop that decides on files and cameras, which come and go while it runs."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic

from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import OutputError
from lstr.extractors.prefetch import Ahead
from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.live_input import Input
from lstr.extractors.video.live_link import QUIET
from lstr.extractors.video.live_reader import LiveOptions, LiveReader
from lstr.extractors.video.packet_ring import PacketSink
from lstr.extractors.video.zones import Zones
from lstr.pipelines.detection.events import Ended, SourceEvent, Undecided
from lstr.pipelines.detection.files import NO_FILES, OutputOptions
from lstr.pipelines.detection.live import LiveRows
from lstr.pipelines.detection.live_source import LiveSource
from lstr.pipelines.detection.networks import NetworkOptions, Networks
from lstr.pipelines.detection.recorded import RecordedRun
from lstr.pipelines.detection.running import Deciding, Running
from lstr.pipelines.detection.sink import MakeSink
from lstr.pipelines.detection.sources import ALL, Limits, Recorded, Source, Unreadable
from lstr.pipelines.detection.status import Status
from lstr.pipelines.detection.streams import SharedStreams, Streams, open_streams
from lstr.pipelines.detection.warnings import warnings_of, warnings_of_source
from lstr.pipelines.failures import Failure, FailureLog, failure_of
from lstr.pipelines.progress import Failed, Notice
from lstr.timeline import Thresholds

OWN, AS_IT_IS = NetworkOptions(), LiveOptions()
REFRESH_SECONDS = 0.5  # after which statuses are renewed though nothing was decided

Event = SourceEvent | Notice


class Session:
    """Sources that are decided by one model; use it as a context manager, and take `events` in one thread.

    model: a checkpoint that is loaded. networks: what makes features of raw video, opened when the first source needs
    them. places: as many cameras, and as many files, are decided at once; others wait. `add` and `remove` may be called
    from any thread. A recorded source waits for whoever takes the events, a live one drops what comes too fast; the
    files come in their order. The failure of a source goes to `log`; without one its error is raised.
    `streams` are those of the model that outlive the session. `packets` says by a live source's id who gets the packets
    of its video, in the thread that reads them; `pictures` gets each chunk of a camera as it is read, with the source's
    id, in that thread too: it must not take long. `zones` says by a camera's id, at each chunk, outside which zones
    nothing moves for the networks; `pictures` gets the whole picture all the same.
    """

    def __init__(
        self,
        model: Checkpoint,
        networks: NetworkOptions | Networks = OWN,
        places: int = 1,
        *,
        thresholds: Thresholds | Mapping[str, Thresholds] | None = None,
        on_gap: str = "keep",
        limits: Limits = ALL,
        live: LiveOptions = AS_IT_IS,
        output: OutputOptions = NO_FILES,
        sinks: Sequence[MakeSink] = (),
        log: FailureLog | None = None,
        streams: SharedStreams | None = None,
        packets: Callable[[str], PacketSink | None] | None = None,
        pictures: Callable[[str, Chunk], None] | None = None,
        zones: Callable[[str], Zones] | None = None,
    ):
        self._pictures, self._zones = pictures, zones
        self.alive = monotonic()
        """When the loop last went round for its live sources, on the monotonic clock."""
        self.deciding = Deciding(model, thresholds, on_gap, output, sinks, places > 1, kept=streams)
        self._networks = networks if isinstance(networks, Networks) else Networks(model, networks)
        self._owns_networks = self._networks is not networks
        self._places, self._limits, self._options, self._log = places, limits, live, log
        self._packets = packets
        self._changed = self.deciding.changed
        self._files: deque[tuple[str, Recorded | Source | Unreadable]] = deque()
        self._cameras: deque[tuple[str, Input]] = deque()
        self._runs: deque[RecordedRun | Unreadable] = deque()
        """Files in hand, in order; the first one is reported."""
        self._live: list[LiveSource] = []
        self._streams: Streams | None = None
        self._rows: LiveRows | None = None
        self._readers: list[LiveReader] = []

    def add(self, source: Input | Recorded | Source | Unreadable) -> str:
        """Decide on a source too, when a place is free; its id, which no other source has now."""
        with self._changed:
            taken = {*self._running(), *(name for name, _ in (*self._files, *self._cameras))}
            name, n = source.id, 1
            while name in taken:
                n += 1
                name = f"{source.id}~{n}"
            if isinstance(source, Input):
                self._cameras.append((name, source))
            else:
                self._files.append((name, source))
            self._changed.notify_all()
        return name

    def remove(self, source_id: str) -> bool:
        """Make no more decisions on a source; what it has until now is written. Raises KeyError.

        Whether an event tells its end, Ended, Undecided or Failed: one that waited is over at once, without an event.
        """
        with self._changed:
            running = self._running()
            is_running = source_id in running
            if is_running:
                running[source_id].left = True
            elif not any(self._drop(waiting, source_id) for waiting in (self._files, self._cameras)):
                raise KeyError(source_id)
            self._changed.notify_all()
        return is_running

    def read_by(self, live: LiveOptions) -> None:
        """Read the live sources that are opened from now on by these options."""
        self._options = live

    def status(self) -> dict[str, Status]:
        """Where each source stands that is decided now."""
        with self._changed:
            return {name: run.refresh() for name, run in self._running().items()}

    def events(self) -> Generator[Event, None, None]:
        """What happens, until there is no source left: the loop. Each decision of a file comes when its sinks have it.

        A source without a decision leaves no files. Raises as `Networks.open`.
        """
        files: Generator[Event, None, None] | None = None
        beside: Ahead[Event] | None = None  # files that no camera waits for
        taking: Iterator[Event] = iter(())
        try:
            while True:
                yield from self._begin()
                if files is None and self._files:
                    taking = files = self._recorded()
                if self._live:
                    if files and not beside:
                        beside = Ahead(files, 1, "files", self._changed)
                        taking = iter(beside)
                    yield from self._advance(beside)
                    if not (beside and beside.ready):
                        continue
                elif not files:
                    if self._files or self._cameras:
                        continue
                    return
                if event := next(taking, None):
                    yield event
                else:
                    files = beside = None
        finally:
            if beside:
                beside.close()
            elif files:
                files.close()

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        """The files of live sources are written where an exception ends it."""
        self._end_live(abandon=kind in (None, GeneratorExit))
        self._end_threads()
        if self._owns_networks:
            self._networks.close()

    def leave(self) -> Iterator[Event]:
        """Read no more of the live sources; what came of each, when its files are written. Afterwards none is added."""
        self._end_live()
        for source in [*self._live]:
            yield from self._settle(source)
        self._end_threads()

    def _end_threads(self) -> None:
        """Wait for what the networks compute, and for the readers together as long as for one."""
        if self._rows:
            self._rows.close()
        readers, self._readers = self._readers, []
        for reader in readers:
            reader.stop()
        ends = monotonic() + QUIET
        for reader in readers:
            reader.join(ends - monotonic())

    def _end_live(self, abandon: bool = False) -> None:
        """End the live sources, and wait for their sinks."""
        for source in self._live:
            if abandon:
                source.abandon()
            else:
                source.leave()
        with self._changed:
            while not all(source.settled for source in self._live):
                self._changed.wait(REFRESH_SECONDS)

    def _begin(self) -> list[Event]:
        """Open the cameras that wait, as far as places are free."""
        events: list[Event] = []
        while self._cameras and (free := {*range(self._places)} - {source.place for source in self._live}):
            name, given = self._cameras[0]
            twostream, workers, known = self._networks.open()
            if self._rows is None:
                self._streams = open_streams(self.deciding.loaded, self._places)
                twostream.prepare(1, twostream.batch)
                self._rows = LiveRows(twostream, workers, self._changed, self._limits.max_chunks)
            limits, warnings = self._limits, [*known, *warnings_of_source(self.deciding.loaded, name)]
            events += map(Notice, warnings)
            side, packets = twostream.recipe.long_side, self._packets and self._packets(name)
            seen = self._pictures and partial(self._pictures, name)
            zones = self._zones and partial(self._zones, name)
            span = (limits.first, limits.end)
            reader = LiveReader(given, side, self._options, self._changed, *span, packets, seen, zones)
            warnings = [*warnings_of(self.deciding.loaded), *warnings]
            source = LiveSource(name, given, reader, self.deciding, min(free), warnings)
            with self._changed:
                if not self._drop(self._cameras, name):
                    continue  # it was removed meanwhile
                self._live.append(source)
            self._readers = [*(one for one in self._readers if not one.ended), reader.__enter__()]
            events.append(source.open(source.since))
        return events

    def _advance(self, files: Ahead[Event] | None) -> Iterator[Event]:
        """Wait until there is something to do for the live sources, or `files` has an event, and do it."""
        rows, streams, most = self._rows, self._streams, self._limits.max_chunks
        assert rows and streams, "a source is live"
        with self._changed:
            self._changed.wait_for(lambda: self._has_work(rows, files), REFRESH_SECONDS)
        self.alive = monotonic()
        for source in self._live:
            source.refresh()
        rows.send([source for source in self._live if not source.over])
        while ready := rows.finished():
            for decided, decision in self.deciding.step(streams, ready):
                yield decided.take(decision)
        for source in [*self._live]:
            yield from source.troubles()
            if source.is_done(most):
                source.leave()
            if source.over and source.settled:
                yield from self._settle(source)
                streams.reset([source.place])

    def _has_work(self, rows: LiveRows, files: Ahead[Event] | None) -> bool:
        live = self._live
        if rows.has_work(live) or (files and files.ready):
            return True
        most = self._limits.max_chunks
        return any(one.settled if one.over else one.is_done(most) for one in live)

    def _settle(self, source: LiveSource) -> Iterator[Event]:
        """What came of a live source, an event at least: who follows it adds it again by that. Its place is free."""
        with self._changed:
            self._live.remove(source)
        yield from source.troubles()
        for outlet in source.outlets:
            if outlet.dropped:
                yield Notice(f"{outlet.dropped} decisions on {source.called} are not in {outlet.sink.name}: too slow.")
        if result := source.result:  # none where it was interrupted as it began
            timeline, page = result
            yield Ended(source.id, timeline, page, source.last)
        if error := source.error:
            yield self._failed(source.id, source.called, error, live=True)
        elif not result:
            yield Undecided(source.id)

    def _recorded(self) -> Generator[Event, None, None]:
        """The files in their order, each to its end; of videos the next ones make their decisions ahead."""
        runs, failure = self._runs, None
        try:
            while True:
                # stored features run alone: with the networks of a video behind them they would have other threads
                while not failure and self._files and len(runs) < self._places and (not runs or runs[-1].can_begin):
                    try:
                        self._open_file()
                    except Exception as error:
                        failure = error
                if not runs:
                    break
                run = runs[0]
                try:
                    yield from run.events()
                except Exception as error:
                    yield self._failed(run.id, run.origin, error)
                with self._changed:
                    runs.popleft()
            if failure:
                raise failure
        finally:
            for run in runs:
                run.end()
            runs.clear()

    def _open_file(self) -> None:
        """Open the next file, and begin with it where others wait behind it. Raises what ends the whole session."""
        name, given = self._files[0]
        try:
            opened = given.open(self._networks, self._limits) if isinstance(given, Recorded) else given
        except BaseException:
            self._drop(self._files, name)
            raise
        run = opened if isinstance(opened, Unreadable) else RecordedRun(name, opened, self.deciding)
        with self._changed:
            if not self._drop(self._files, name):
                return  # it was removed meanwhile
            self._runs.append(run)
        if self._places > 1 and isinstance(run, RecordedRun) and run.can_begin:
            run.begin()

    def _running(self) -> dict[str, Running]:
        return {one.id: one for one in (*self._runs, *self._live) if isinstance(one, Running)}

    def _drop(self, waiting: deque, source_id: str) -> bool:
        """Whether a source waited, which it does no more."""
        with self._changed:
            found = [entry for entry in waiting if entry[0] == source_id]
            for entry in found:
                waiting.remove(entry)
        return bool(found)

    def _failed(self, source_id: str, origin: str, error: BaseException, live: bool = False) -> Failed:
        """Its event. Raises the error without a log, and as `failure_of`; a full disk ends no live source."""
        if not isinstance(error, Exception):
            raise error
        full = live and isinstance(error, OutputError)
        failure = Failure(str(error), getattr(error, "hint", "")) if full else failure_of(error, origin)
        if self._log is None:
            raise error
        try:
            failed = self._log.add(source_id, origin, failure)
        except OutputError:
            if not full:
                raise
            failed = Failed(source_id, failure.reason, failure.hint)
            self._log.events.append(failed)
        return replace(failed, error=error)

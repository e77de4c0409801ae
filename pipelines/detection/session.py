"""A session: files and cameras that come and go while one loop decides on them."""

import resource
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from time import monotonic, perf_counter
from typing import TYPE_CHECKING

import numpy as np

from lstr.errors import OutputError, VideoError
from lstr.extractors.run import TwoStream
from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.inputs import Input, LiveOptions
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import (
    End,
    Ended,
    JsonLines,
    MakeSink,
    Opened,
    Outlet,
    Sink,
    SourceEvent,
    Status,
)
from lstr.pipelines.detection.loop import COUNTED, REFRESH_S, Loop, NetworkPool, Track
from lstr.pipelines.detection.model import Networks, Streams, warnings_of
from lstr.pipelines.detection.options import ALL, NO_FILES, Limits, OutputOptions
from lstr.pipelines.detection.outputs import TimelineFiles, dated
from lstr.pipelines.detection.source import LiveSource, Source
from lstr.pipelines.failures import Failure, FailureLog, failure_of
from lstr.pipelines.model_files.networks import origins_of_checkpoint, streams_of_checkpoint
from lstr.pipelines.progress import Failed, Notice
from lstr.timeline import Thresholds, iso, thresholds_of

if TYPE_CHECKING:  # a file needs no reader of live sources
    from lstr.extractors.video.live import LiveReader
    from lstr.extractors.video.reader import PacketSink
    from lstr.extractors.video.zones import Zones

DEFAULT_LIVE = LiveOptions()
TOO_SHORT = "use at least a quarter of a second of video after `--start`, or record it again."
STOP_S = 2.0  # FFmpeg may wait for longer than the readers of a session that ends


class Session(Loop, AbstractContextManager["Session"]):
    """Sources that are decided by one model; use it as a context manager, and take `events` in one thread.

    model: a loaded checkpoint. networks: what computes features of raw video, opened when a source first needs them.
    places: how many sources are decided at once; others wait for a place. `add` and `remove` may be called from any
    thread. A recorded source waits for the thread that takes the events, a live one drops what comes too fast; files
    are reported in their order. The failure of a source goes to `log`; without a log its error is raised. `packets`
    returns by a live source's id what gets the packets of its video, and `frames` gets each chunk of a camera with
    the camera's id, both in the thread that reads it. `zones` returns by a camera's id, for each chunk, outside which
    zones the networks see no motion, or of poses alone no person whose feet are there; `frames` gets whole frames.
    If `output` is None, there are no files and no timelines, and a source can run for weeks. `index` is the page over
    all videos, which each page links.
    """

    def __init__(
        self,
        model: Checkpoint,
        networks: Networks,
        places: int = 1,
        *,
        thresholds: Thresholds | Mapping[str, Thresholds] | None = None,
        limits: Limits = ALL,
        live: LiveOptions = DEFAULT_LIVE,
        output: OutputOptions | None = NO_FILES,
        index: Path | None = None,
        sinks: Sequence[MakeSink] = (),
        log: FailureLog | None = None,
        packets: "Callable[[str], PacketSink | None] | None" = None,
        frames: Callable[[str, Chunk], None] | None = None,
        zones: "Callable[[str], Zones] | None" = None,
    ):
        super().__init__(model, places, thresholds_of(model) if thresholds is None else thresholds, limits)
        self._networks, self._live, self._sinks, self._log = networks, live, sinks, log
        self._output, self._has_timelines, self._index = output or NO_FILES, output is not None, index
        self._packets, self._frames, self._zones = packets, frames, zones
        self._readers: list[LiveReader] = []

    def add(self, given: Input | Source) -> str:
        """Decide on a source too, when a place is free. Returns its id, which no other source has now."""
        with self.changed:
            ids = {*(track.id for track in self.tracks), *(source.id for source in self.waiting)}
            name, n = given.id, 1
            while name in ids:
                n += 1
                name = f"{given.id}~{n}"
            source = LiveSource(name, given, self._connect) if isinstance(given, Input) else given
            source.id = name
            self.waiting.append(source)
            self.changed.notify_all()
        return name

    def remove(self, source_id: str) -> bool:
        """Make no more decisions on a source; those made are written. Raises KeyError.

        Returns whether an event reports its end, Ended or Failed: a source that waited has none.
        """
        with self.changed:
            track = next((track for track in self.tracks if track.id == source_id), None)
            waiting = next((source for source in self.waiting if source.id == source_id), None)
            if track:
                track.is_removed = True
            elif waiting:
                self.waiting.remove(waiting)
            else:
                raise KeyError(source_id)
            self.changed.notify_all()
        return track is not None

    def status(self) -> dict[str, Status]:
        """Return the status of each source at a place."""
        with self.changed:
            return {track.id: track.refresh() for track in self.tracks}

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        """Write the files of live sources if an exception ends the session, and wait for its threads."""
        self._end_live(GeneratorExit() if kind in (None, GeneratorExit) else None)
        if self.pool:
            self.pool.close()
        for reader in self._readers:
            reader.stop()
        ends = monotonic() + STOP_S  # for all readers together
        for reader in self._readers:
            reader.join(ends - monotonic())

    def leave(self) -> Iterator[SourceEvent]:
        """End the live sources, and report each once its files are written. Then nothing may be added."""
        self._end_live()
        for track in [track for track in self.tracks if track.live]:
            yield from self.settle(track)

    def _end_live(self, error: BaseException | None = None) -> None:
        """Close the live sources, and wait for their sinks."""
        live = [track for track in self.tracks if track.live]
        for track in live:
            self.close(track, error)
        with self.changed:
            while not all(track.is_settled for track in live):
                self.changed.wait(REFRESH_S)

    def spent(self) -> tuple[float, float, float]:
        """Return wall seconds, processor seconds of all threads and ended children, and seconds of video decided."""
        used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        processor = sum(part.ru_utime + part.ru_stime for part in used)
        return perf_counter(), processor, self.n_decided * self.loaded.clock.seconds

    def open_waiting(self) -> Iterator[SourceEvent]:
        """Open waiting sources while places are free. Raises what ends the whole session."""
        while self.waiting and (free := {*range(self.places)} - {track.place for track in self.tracks}):
            source = self.waiting[0]
            before = [track for track in self.tracks if not track.live]
            # stored features run alone: the networks of a video next to them would change their threads, and scores
            if not source.live and before and not (before[-1].source.needs_networks and source.needs_networks):
                break
            failure = None
            try:
                source.open(self._networks, self.limits, self.changed)
            except Exception as error:
                if self._networks.error:
                    raise
                failure = error
            track = Track(source, self, min(free))
            if "pose" in streams_of_checkpoint(self.loaded):
                from lstr.pipelines.detection.people import PeopleTracker  # few models use poses

                track.people = PeopleTracker(self.loaded, partial(self._zones, source.id) if self._zones else tuple)
            if failure:
                track.unreadable = True
                track.fail(failure)
            elif source.chunks and self.pool is None:
                self.pool = NetworkPool(self._networks, self.changed)
            self.streams = self.streams or Streams(self.loaded, self.places)
            if track.reader:
                self._readers = [*(reader for reader in self._readers if not reader.ended), track.reader]
            with self.changed:
                if source not in self.waiting:  # it was removed meanwhile
                    source.close()
                    continue
                self.waiting.remove(source)
                self.tracks.append(track)
            if track.live:
                yield from track.notices()
                if not track.unreadable:
                    yield self.open_sinks(track)

    def _connect(self, name: str, address: Input, twostream: TwoStream) -> "LiveReader":
        from lstr.extractors.video.live import LiveReader

        packets = self._packets and self._packets(name)
        frames = self._frames and partial(self._frames, name)
        # of poses the zones are for feet, and the whole person is seen
        hides = streams_of_checkpoint(self.loaded) != ("pose",)
        zones = partial(self._zones, name) if self._zones and hides else None
        span = self.limits.span()
        long_side, seen = twostream.recipe.long_side, twostream.frames_seen
        return LiveReader(address, long_side, self._live, self.changed, *span, packets, frames, zones, seen)

    @cached_property
    def _origins(self) -> dict[str, str]:
        """The origins of the networks, for pages; finding them may read whole weights files."""
        return origins_of_checkpoint(self.loaded) if self._output.has_pages else {}

    def open_sinks(self, track: Track) -> Opened:
        """Open the sinks of a source. Raises the error of one that needs all decisions and is waited for."""
        source, output = track.source, self._output
        opened = Opened(
            track.id,
            track.status,
            self.loaded.classes,
            track.refresh if track.live else None,
            source.origin,
            source.video,
            dated(track.id, output.folder) if track.live and output.folder else "",
            source.named,
        )
        track.is_open = True
        track.status.total = source.n_chunks
        sinks: list[Sink] = []
        if self._has_timelines:  # first, because its result is the source's
            sinks.append(TimelineFiles(self.loaded, output, track.timeline.describe(), self._origins, self._index))
        if output.lines:
            sinks.append(JsonLines(output.lines, track.live and track.is_named, output.events_only))
        if output.folder and "jsonl" in output.formats:
            sinks.append(JsonLines(output.folder, events_only=output.events_only))
        for sink in (*sinks, *(make() for make in self._sinks)):
            track.outlets.append(Outlet(sink, self.changed if track.live else None))
            track.outlets[-1].open(opened)
        return opened

    def report_sink(self, track: Track, outlet: Outlet) -> Notice:
        """Report that a sink has failed. Raises as `failure_of`, except that a full disk ends no live source."""
        error = outlet.error
        assert error
        outlet.is_reported = True
        try:
            reason = failure_of(error, track.title).reason
        except OutputError as full:
            if not track.live:
                raise
            error, reason = full, str(full)
        if outlet.sink.needs_all:
            track.sink_error = track.sink_error or error
        return Notice(f"{reason} Detection on {track.title} continues without {outlet.sink.name}.")

    def close(self, track: Track, error: BaseException | None = None) -> None:
        """Read no more of a source and close its sinks, with its results unless there is an `error`.

        Raises as `open_sinks`.
        """
        if track.is_closed and error is None:
            return
        source = track.source
        if error is None and source.video and not (track.status.decided or track.is_removed or track.error):
            # its frames end before those that its header promises
            error = track.failure = VideoError(f"{source.origin} ended before the first decision.", TOO_SHORT)
        track.is_closed, track.close_time = True, monotonic()
        source.stop()
        end = End(error=error)
        if error is None:
            live, warnings = None, [*warnings_of(self.loaded), *source.warnings]
            if reader := track.reader:
                failed, status = track.failure or reader.error, track.refresh()
                live = {
                    **({"began": iso(reader.began)} if reader.began else {}),
                    "on_gap": "keep",  # the memory of the model
                    "clock": reader.clock,
                    "on_lag": reader.on_lag,
                    **{name: getattr(status, name) for name in COUNTED},
                    **({"error": str(failed)} if failed else {}),
                }
                warnings += reader.warnings
            events = track.timeline.finish(track.status.time)
            events = track.with_wall_times(events) if track.live and events else events
            events = track.people.with_people(events) if track.people else events
            # concurrent sources share threads, so the processor time is of all sources in the time of this one
            wall, used, decided = np.subtract(track.spent_at_end or self.spent(), track.spent_before)
            spent = float(wall), float(used / decided) if decided else 0.0
            end = End(events, None if track.is_removed else source.duration, warnings, live, spent)
        track.final_events = tuple(end.events)
        for outlet in track.outlets:
            outlet.close(end)

    def settle(self, track: Track) -> Iterator[SourceEvent]:
        """Report the result of a source, by an event at least if it is live. Its place is free.

        Raises the error of a source without a log, and as `failure_of`; a full disk ends no live source.
        """
        with self.changed:
            self.tracks.remove(track)
        if not track.live:
            track.source.close()
        if self.streams:
            self.streams.reset([track.place])
        yield from track.notices()
        for outlet in track.outlets:
            if outlet.dropped:
                yield Notice(
                    f"{outlet.dropped} decisions on {track.title} were dropped because {outlet.sink.name} was too slow."
                )
        result, error = None, track.error
        if track.live or not error:
            if self._has_timelines:
                result = track.outlets[0].result if track.outlets else None
            elif track.status.decided:
                result = {}, None
        if result or (track.live and error is None):
            timeline, page = result or ({}, None)  # without a result before the first decision
            yield Ended(track.id, timeline, page, track.final_events)
        if error is None:
            return
        if not isinstance(error, Exception):
            raise error
        is_full = track.live and isinstance(error, OutputError)
        failure = Failure(str(error), getattr(error, "hint", "")) if is_full else failure_of(error, track.title)
        if self._log is None:
            raise error
        try:
            failed = self._log.add(track.id, track.title, failure)
        except OutputError:
            if not is_full:
                raise
            failed = Failed(track.id, failure.reason, failure.hint)
            self._log.events.append(failed)
        yield replace(failed, error=error)

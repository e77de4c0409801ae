"""A session: the one loop that decides on files and cameras, which come and go while it runs."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import VideoError
from lstr.extractors.devices import CAPTURING
from lstr.extractors.run import FeatureRow
from lstr.extractors.stages import MODEL, torch_threads
from lstr.extractors.streams import MODEL_STREAMS
from lstr.extractors.video.frames import Chunk, Gap
from lstr.extractors.video.live_input import QUIET, Input
from lstr.extractors.video.live_reader import LiveOptions, LiveReader, Moment
from lstr.extractors.video.packet_ring import PacketSink
from lstr.extractors.video.zones import Zones
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import Ended, MakeSink, Status, Undecided
from lstr.pipelines.detection.model import Networks
from lstr.pipelines.detection.options import ALL, NO_FILES, Limits, NetworkOptions, OutputOptions
from lstr.pipelines.detection.source import LiveSource, Source
from lstr.pipelines.detection.track import Event, Shared, Track
from lstr.pipelines.failures import FailureLog, failure_of
from lstr.pipelines.progress import Notice
from lstr.timeline import Thresholds, thresholds_of

OWN, DEFAULT_LIVE = NetworkOptions(), LiveOptions()
REFRESH_SECONDS = 0.5  # after which statuses are renewed though nothing was decided
# A chunk on its way through the networks, and when a chunk of a live source was complete.
Taken = tuple[Track, Chunk, Moment | None]


class Session:
    """Sources that are decided by one model; use it as a context manager, and take `events` in one thread.

    Threads run the networks on the chunks of all sources. A batch has consecutive chunks of one file, as many as it
    would have alone, or one chunk of each of several live sources: the scores of a source never depend on the others.

    model: a loaded checkpoint. networks: what computes features of raw video, opened when a source first needs them.
    places: how many sources are decided at once; others wait for a place. `add` and `remove` may be called from any
    thread. A recorded source waits for the thread that takes the events, a live one drops what comes too fast; files
    are reported in their order. The failure of a source goes to `log`; without a log its error is raised. `packets`
    returns by a live source's id what gets the packets of its video, and `pictures` gets each chunk of a camera with
    the camera's id, both in the thread that reads it. `zones` returns by a camera's id, for each chunk, outside which
    zones the networks see no motion; `pictures` gets whole frames.
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
        live: LiveOptions = DEFAULT_LIVE,
        output: OutputOptions = NO_FILES,
        sinks: Sequence[MakeSink] = (),
        log: FailureLog | None = None,
        packets: Callable[[str], PacketSink | None] | None = None,
        pictures: Callable[[str, Chunk], None] | None = None,
        zones: Callable[[str], Zones] | None = None,
    ):
        rules = thresholds_of(model) if thresholds is None else thresholds
        self._shared = Shared(model, rules, on_gap, limits, output, sinks, named=places > 1)
        self._changed = self._shared.changed
        self.alive = monotonic()
        """When the loop last ran, on the monotonic clock."""
        self.live = live
        """How live sources are read; a change holds for those that are opened from then on."""
        self._networks = networks if isinstance(networks, Networks) else Networks(model, networks)
        self._owns_networks = self._networks is not networks
        self._places, self._log = places, log
        self._packets, self._pictures, self._zones = packets, pictures, zones
        self._waiting: deque[tuple[str, Input | Source]] = deque()
        self._tracks: list[Track] = []
        """Sources at their places, in the order in which they were opened."""
        self._streams: Streams | None = None
        self._pool: ThreadPoolExecutor | None = None
        """Threads that run the networks, opened with the first source that needs them."""
        self._flying: deque[tuple[list[Taken], Future]] = deque()
        """Batches that were started, in their order, each with its features."""
        self._turn = 0  # the place of the source whose batch is next
        self._readers: list[LiveReader] = []

    def add(self, source: Input | Source) -> str:
        """Decide on a source too, when a place is free. Returns its id, which no other source has now."""
        with self._changed:
            taken = {*(track.id for track in self._tracks), *(name for name, _ in self._waiting)}
            name, n = source.id, 1
            while name in taken:
                n += 1
                name = f"{source.id}~{n}"
            self._waiting.append((name, source))
            self._changed.notify_all()
        return name

    def remove(self, source_id: str) -> bool:
        """Make no more decisions on a source; those made are written. Raises KeyError.

        Returns whether an event reports its end, Ended, Undecided or Failed: a source that waited has none.
        """
        with self._changed:
            track = next((track for track in self._tracks if track.id == source_id), None)
            if track:
                track.left = True
            elif not self._drop(source_id):
                raise KeyError(source_id)
            self._changed.notify_all()
        return track is not None

    def _drop(self, source_id: str) -> bool:
        """Return whether a source was waiting, which it is no more."""
        with self._changed:
            found = next((entry for entry in self._waiting if entry[0] == source_id), None)
            if found:
                self._waiting.remove(found)
        return found is not None

    def status(self) -> dict[str, Status]:
        """Return the status of each source at a place."""
        with self._changed:
            return {track.id: track.refresh() for track in self._tracks}

    def events(self) -> Generator[Event, None, None]:
        """Decide on the sources until none is left. A decision of a file comes when its sinks have it.

        A source without a decision leaves no files. Raises as `Networks.open`.
        """
        if not self._shared.loaded.exported:
            with torch_threads():
                pass  # a thread that never set it would let the libraries below torch take all cores
        try:
            while True:
                yield from self._begin()
                if not self._tracks:
                    if not self._waiting:
                        return
                    continue
                with self._changed:
                    self._changed.wait_for(self._has_work, REFRESH_SECONDS)
                self.alive = monotonic()
                for track in self._tracks:
                    if track.live:
                        track.refresh()
                self._start_batches()
                self._collect_rows()
                self._decide()
                for track in self._reported():
                    try:
                        yield from track.report()
                        if track.is_done:
                            self._end(track)
                    except Exception as error:  # of a sink that needs all decisions
                        track.broken = track.broken or error
                        track.close(error)
                    if track.over and track.settled:
                        yield from self._settle(track)
        except BaseException as error:  # Ctrl-C too, and a caller that takes no more events
            for track in [track for track in self._tracks if not track.live]:
                track.close(error)
                track.source.close()
            raise

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, kind: type[BaseException] | None, *exception: object) -> None:
        """Write the files of live sources if an exception ends the session."""
        self._end_live(GeneratorExit() if kind in (None, GeneratorExit) else None)
        self._end_threads()
        if self._owns_networks:
            self._networks.close()

    def leave(self) -> Iterator[Event]:
        """End the live sources, and report each once its files are written. Then nothing may be added."""
        self._end_live()
        for track in [track for track in self._tracks if track.live]:
            yield from self._settle(track)
        self._end_threads()

    def _end_live(self, error: BaseException | None = None) -> None:
        """Close the live sources, and wait for their sinks."""
        live = [track for track in self._tracks if track.live]
        for track in live:
            track.close(error)
        with self._changed:
            while not all(track.settled for track in live):
                self._changed.wait(REFRESH_SECONDS)

    def _end_threads(self) -> None:
        """Wait for the batches that have started, and for all readers together as long as for one."""
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)
        readers, self._readers = self._readers, []
        for reader in readers:
            reader.stop()
        ends = monotonic() + QUIET
        for reader in readers:
            reader.join(ends - monotonic())

    def _begin(self) -> Iterator[Event]:
        """Open waiting sources while places are free. Raises what ends the whole session."""
        while self._waiting and (free := {*range(self._places)} - {track.place for track in self._tracks}):
            name, given = self._waiting[0]
            if isinstance(given, Source):
                source = given
            else:
                source = LiveSource(name, given, partial(self._connect, name, given))
            source.id = name
            before = [track for track in self._tracks if not track.live]
            # stored features run alone: the networks of a video next to them would change their threads, and scores
            if not source.live and before and not (before[-1].source.needs_networks and source.needs_networks):
                break
            failure = None
            try:
                source.open(self._networks, self._shared.limits, self._changed)
            except Exception as error:
                if self._networks.error:
                    self._drop(name)
                    raise
                failure = error
            track = Track(source, self._shared, min(free))
            if failure:
                track.unreadable = True
                track.fail(failure)
            elif source.chunks and self._pool is None:
                self._twostream, self._workers, _ = self._networks.open()
                self._pool, self._threads = self._twostream.open_pool(self._workers)
            self._streams = self._streams or Streams(self._shared.loaded, self._places)
            if track.reader:
                self._readers = [*(reader for reader in self._readers if not reader.ended), track.reader]
            with self._changed:
                if not self._drop(name):  # it was removed meanwhile
                    source.close()
                    continue
                self._tracks.append(track)
            if track.live:
                yield from track.warnings()
                if not track.unreadable:
                    yield track.open()

    def _connect(self, name: str, given: Input, long_side: int) -> LiveReader:
        packets = self._packets and self._packets(name)
        seen, zones = self._pictures and partial(self._pictures, name), self._zones and partial(self._zones, name)
        span = (self._shared.limits.first, self._shared.limits.end)
        return LiveReader(given, long_side, self.live, self._changed, *span, packets, seen, zones)

    def _reported(self) -> list[Track]:
        """Return the tracks whose events come now: live ones, and the first file."""
        first = next((track for track in self._tracks if not track.live), None)
        return [track for track in self._tracks if track.live or track is first]

    def _has_work(self) -> bool:
        if (self._flying and self._flying[0][1].done()) or self._next_batch():
            return True
        if any(track.source.rows is not None and not track.stops for track in self._tracks):
            return True
        return any(
            track.settled if track.over else track.is_done or not track.is_open or track.decisions
            for track in self._reported()
        )

    def _next_batch(self) -> list[Track]:
        """Return the tracks for the next batch: a file, or as many live sources as let free threads share the work."""
        if self._pool is None or len(self._flying) > self._threads:
            return []
        turns = sorted(self._tracks, key=lambda track: (track.place < self._turn, track.place))
        ready = [track for track in turns if track.has_batch(self._twostream.batch)]
        if not ready or not ready[0].live:
            return ready[:1]
        ready = [track for track in ready if track.live]
        free = max(1, self._threads - len(self._flying))
        return ready[: min(self._twostream.batch, -(-len(ready) // free))]

    def _start_batches(self) -> None:
        """Send chunks through the networks while there are free threads and chunks."""
        while chosen := self._next_batch():
            self._turn = chosen[-1].place + 1
            self._flying.append(self._start([t for track in chosen for t in track.take_chunks(self._twostream.batch)]))

    def _start(self, taken: list[Taken]) -> tuple[list[Taken], Future]:
        try:
            rows = self._twostream.submit(self._pool, [chunk for _, chunk, _ in taken], self._workers)
        except Exception as error:
            rows = Future()
            rows.set_exception(error)
        rows.add_done_callback(self._notify)
        return taken, rows

    def _notify(self, _: Future) -> None:
        with self._changed:
            self._changed.notify_all()

    def _collect_rows(self) -> None:
        """Give the features that are there to their tracks: of batches in their order, and one stored row of each."""
        while self._flying and self._flying[0][1].done():
            taken, rows = self._flying.popleft()
            if error := rows.exception():
                tracks = list(dict.fromkeys(track for track, _, _ in taken))
                if len(tracks) > 1 and isinstance(error, Exception):  # find the source at fault: each again, alone
                    failure_of(error, ", ".join(track.source.origin for track in tracks))
                    self._flying.extendleft([self._start([one]) for one in reversed(taken)])
                else:
                    tracks[0].pending -= len(taken)
                    tracks[0].fail(error)
                continue
            for (track, _, closed), row in zip(taken, rows.result(), strict=True):
                track.pending -= 1
                if not track.broken:
                    track.ready.append((row, *((closed.monotonic, closed.wall) if closed else (monotonic(), None))))
        for track in self._tracks:
            if track.source.rows is None or track.stops or track.ready or track.decisions:
                continue
            row = None
            try:
                row = next(track.source.rows, None)
            except Exception as error:
                track.fail(error)
            if row is None:
                track.source.rows = None
            else:
                track.ready.append((row, monotonic(), None))

    def _decide(self) -> None:
        """Step the model with each chunk that is ready, one of each live source at a time."""
        # a step costs little more for several streams than for one, and least where they are neighbours in the state
        while live := sorted((t for t in self._tracks if t.live and t.ready), key=lambda track: track.place):
            self._step(live)
        for track in self._tracks:
            while track.ready:  # alone, so that the scores of a file do not depend on other files
                self._step([track])
            if track.is_done:
                track.ended = track.ended or self._shared.spent()

    def _step(self, tracks: Sequence[Track]) -> None:
        """Decide on the oldest ready chunk of each track."""
        assert self._streams
        gaps = [track.gaps_before(track.ready[0][0].index) for track in tracks]
        away = [t.place for t, missing in zip(tracks, gaps, strict=True) if any(g.reason == "unseen" for g in missing)]
        if self._shared.on_gap == "reset" and away:
            self._streams.reset(away)
        self._score(tracks, gaps)

    def _score(self, tracks: Sequence[Track], gaps: Sequence[list[Gap]]) -> None:
        """Decide by the scores of one step for all tracks or, if that fails, of a step for each."""
        assert self._streams
        try:
            scores = self._streams.step([track.place for track in tracks], [track.ready[0][0] for track in tracks])
        except Exception as error:
            if len(tracks) == 1:
                tracks[0].fail(error, drop_ready=True)
                return
            for track, missing in zip(tracks, gaps, strict=True):
                self._score([track], [missing])
            return
        for track, missing, part in zip(tracks, gaps, scores, strict=True):
            track.decide(missing, part)

    def _end(self, track: Track) -> None:
        """Close the sinks of a track whose decisions are all reported. Raises the error of one that needs all."""
        source = track.source
        if source.video and not (track.status.decided or track.left or track.error):
            # its frames end before those that its header promises
            track.broken = VideoError(
                f"{source.origin} ended before the first decision.",
                "a decision takes a quarter of a second of video, after `--start`; start earlier, or record it again.",
            )
        track.close(None if track.live else track.error)

    def _settle(self, track: Track) -> Iterator[Event]:
        """Report the result of a source, by an event at least if it is live. Its place is free."""
        with self._changed:
            self._tracks.remove(track)
        if not track.live:
            track.source.close()
        if self._streams:
            self._streams.reset([track.place])
        yield from track.troubles()
        for outlet in track.outlets:
            if outlet.dropped:
                yield Notice(f"{outlet.dropped} decisions on {track.called} are not in {outlet.sink.name}: too slow.")
        result = track.result
        if result:  # none of a source that was interrupted before its first decision
            timeline, page = result
            yield Ended(track.id, timeline, page, track.last)
        if error := track.error:
            yield track.failed(error, self._log)
        elif not result and track.live:
            yield Undecided(track.id)


class Streams:
    """Places for several sources in one state of a model, by torch, or by ONNX Runtime for an exported model.

    On a GPU the step is captured, which takes as long as a dozen steps.
    """

    def __init__(self, loaded: Checkpoint, places: int = 1):
        # imported here: an exported model runs without torch
        if loaded.exported:
            from lstr import exported_streaming as streaming
        else:
            from lstr import streaming  # type: ignore[no-redef]
        self._streaming: Any = streaming
        self._model: Any = loaded.exported or loaded.model
        self._state = self._streaming.create(self._model, places)
        if not loaded.exported and self._streaming.can_capture(self._model):
            with CAPTURING:  # no network may be captured at the same time
                self._streaming.capture(self._model, self._state)

    def step(self, places: Sequence[int], rows: Sequence[FeatureRow]) -> NDArray[np.float32]:
        """Return scores (n, 1 + n_ahead, C) of the next chunk at n places, and of the chunks to come."""
        stacked = []
        for stream in MODEL_STREAMS:
            present = [features for row in rows if (features := getattr(row, stream)) is not None]
            stacked.append(np.stack(present) if present else None)
        with MODEL:
            return np.asarray(self._streaming.step_some(self._model, self._state, places, *stacked))

    def reset(self, places: Sequence[int]) -> None:
        """Forget every chunk at some places."""
        self._streaming.reset(self._state, places)

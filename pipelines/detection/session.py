"""A session: the one loop that decides on files and cameras, which come and go while it runs."""

from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import OutputError, VideoError
from lstr.extractors.devices import CAPTURING
from lstr.extractors.run import FeatureRow
from lstr.extractors.stages import MODEL, torch_threads
from lstr.extractors.streams import MODEL_STREAMS
from lstr.extractors.video.frames import Chunk, Gap
from lstr.extractors.video.inputs import Input, LiveOptions
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.decision import Ended, MakeSink, Status, Undecided
from lstr.pipelines.detection.model import Networks
from lstr.pipelines.detection.options import ALL, NO_FILES, Limits, NetworkOptions, OutputOptions
from lstr.pipelines.detection.source import LiveSource, Source
from lstr.pipelines.detection.track import Event, NetworkPool, Shared, Track
from lstr.pipelines.failures import Failure, FailureLog, failure_of
from lstr.pipelines.progress import Failed, Notice
from lstr.timeline import Thresholds, thresholds_of

if TYPE_CHECKING:  # a file needs no reader of live sources
    from lstr.extractors.video.live import LiveReader
    from lstr.extractors.video.reader import PacketSink
    from lstr.extractors.video.zones import Zones

DEFAULT_NETWORKS, DEFAULT_LIVE = NetworkOptions(), LiveOptions()
STOP_S = 2.0  # FFmpeg may wait for longer than the readers of a session that ends
TOO_SHORT = "use at least a quarter of a second of video after `--start`, or record it again."
REFRESH_SECONDS = 0.5  # after which statuses are renewed though nothing was decided


class Session:
    """Sources that are decided by one model; use it as a context manager, and take `events` in one thread.

    model: a loaded checkpoint. networks: what computes features of raw video, opened when a source first needs them.
    places: how many sources are decided at once; others wait for a place. `add` and `remove` may be called from any
    thread. A recorded source waits for the thread that takes the events, a live one drops what comes too fast; files
    are reported in their order. The failure of a source goes to `log`; without a log its error is raised. `packets`
    returns by a live source's id what gets the packets of its video, and `frames` gets each chunk of a camera with
    the camera's id, both in the thread that reads it. `zones` returns by a camera's id, for each chunk, outside which
    zones the networks see no motion; `frames` gets whole frames.
    """

    def __init__(
        self,
        model: Checkpoint,
        networks: NetworkOptions | Networks = DEFAULT_NETWORKS,
        places: int = 1,
        *,
        thresholds: Thresholds | Mapping[str, Thresholds] | None = None,
        on_gap: str = "keep",
        limits: Limits = ALL,
        live: LiveOptions = DEFAULT_LIVE,
        output: OutputOptions = NO_FILES,
        sinks: Sequence[MakeSink] = (),
        log: FailureLog | None = None,
        packets: "Callable[[str], PacketSink | None] | None" = None,
        frames: Callable[[str, Chunk], None] | None = None,
        zones: "Callable[[str], Zones] | None" = None,
    ):
        rules = thresholds_of(model) if thresholds is None else thresholds
        self._shared = Shared(model, rules, on_gap, limits, output, sinks, names_sources=places > 1)
        self.live = live
        """How live sources are read; a change holds for those that are opened from then on."""
        self.alive = monotonic()
        """When the loop last ran, on the monotonic clock."""
        self._networks = networks if isinstance(networks, Networks) else Networks(model, networks)
        self._owns_networks = self._networks is not networks
        self._places, self._log = places, log
        self._packets, self._frames, self._zones = packets, frames, zones
        self._waiting: deque[tuple[str, Input | Source]] = deque()
        self._tracks: list[Track] = []  # sources at their places, in the order in which they were opened
        self._streams: Streams | None = None
        self._pool: NetworkPool | None = None
        self._readers: list[LiveReader] = []

    def add(self, source: Input | Source) -> str:
        """Decide on a source too, when a place is free. Returns its id, which no other source has now."""
        with self._shared.changed:
            ids = {*(track.id for track in self._tracks), *(name for name, _ in self._waiting)}
            name, n = source.id, 1
            while name in ids:
                n += 1
                name = f"{source.id}~{n}"
            self._waiting.append((name, source))
            self._shared.changed.notify_all()
        return name

    def remove(self, source_id: str) -> bool:
        """Make no more decisions on a source; those made are written. Raises KeyError.

        Returns whether an event reports its end, Ended, Undecided or Failed: a source that waited has none.
        """
        with self._shared.changed:
            track = next((track for track in self._tracks if track.id == source_id), None)
            if track:
                track.is_removed = True
            elif not self._drop(source_id):
                raise KeyError(source_id)
            self._shared.changed.notify_all()
        return track is not None

    def _drop(self, source_id: str) -> bool:
        """Drop a waiting source; return whether it was waiting."""
        with self._shared.changed:
            entry = next((entry for entry in self._waiting if entry[0] == source_id), None)
            if entry:
                self._waiting.remove(entry)
        return entry is not None

    def status(self) -> dict[str, Status]:
        """Return the status of each source at a place."""
        with self._shared.changed:
            return {track.id: track.refresh() for track in self._tracks}

    def events(self) -> Generator[Event, None, None]:
        """Decide on the sources until all have ended. A decision of a file comes when its sinks have it.

        A source without a decision leaves no files. Raises as `Networks.open`.
        """
        if not self._shared.loaded.exported:
            with torch_threads():
                pass  # a thread that never set it would let the libraries below torch take all cores
        try:
            while True:
                yield from self._open_waiting()
                if not self._tracks:
                    if not self._waiting:
                        return
                    continue
                with self._shared.changed:
                    self._shared.changed.wait_for(self._has_work, REFRESH_SECONDS)
                self.alive = monotonic()
                for track in self._tracks:
                    if track.live:
                        track.refresh()
                if self._pool:
                    self._pool.send(self._tracks)
                    self._pool.collect()
                for track in self._tracks:
                    track.take_row()
                self._decide()
                for track in self._reported():
                    try:
                        yield from track.report()
                        if track.is_finished:
                            if track.source.video and not (track.status.decided or track.is_removed or track.error):
                                # its frames end before those that its header promises
                                track.failure = VideoError(
                                    f"{track.source.origin} ended before the first decision.", TOO_SHORT
                                )
                            track.close(None if track.live else track.error)
                    except Exception as error:  # of a sink that needs all decisions
                        track.failure = track.failure or error
                        track.close(error)
                    if track.is_closed and track.is_settled:
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
        with self._shared.changed:
            while not all(track.is_settled for track in live):
                self._shared.changed.wait(REFRESH_SECONDS)

    def _end_threads(self) -> None:
        """Wait for the batches that have started, and for all readers together as long as for one."""
        if self._pool:
            self._pool.close()
        readers, self._readers = self._readers, []
        for reader in readers:
            reader.stop()
        ends = monotonic() + STOP_S
        for reader in readers:
            reader.join(ends - monotonic())

    def _open_waiting(self) -> Iterator[Event]:
        """Open waiting sources while places are free. Raises what ends the whole session."""
        while self._waiting and (free := {*range(self._places)} - {track.place for track in self._tracks}):
            name, entry = self._waiting[0]
            source = (
                entry if isinstance(entry, Source) else LiveSource(name, entry, partial(self._connect, name, entry))
            )
            source.id = name
            before = [track for track in self._tracks if not track.live]
            # stored features run alone: the networks of a video next to them would change their threads, and scores
            if not source.live and before and not (before[-1].source.needs_networks and source.needs_networks):
                break
            failure = None
            try:
                source.open(self._networks, self._shared.limits, self._shared.changed)
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
                self._pool = NetworkPool(self._networks, self._shared.changed)
            self._streams = self._streams or Streams(self._shared.loaded, self._places)
            if track.reader:
                self._readers = [*(reader for reader in self._readers if not reader.ended), track.reader]
            with self._shared.changed:
                if not self._drop(name):  # it was removed meanwhile
                    source.close()
                    continue
                self._tracks.append(track)
            if track.live:
                yield from track.warnings()
                if not track.unreadable:
                    yield track.open()

    def _connect(self, name: str, address: Input, long_side: int) -> "LiveReader":
        from lstr.extractors.video.live import LiveReader

        packets = self._packets and self._packets(name)
        frames, zones = self._frames and partial(self._frames, name), self._zones and partial(self._zones, name)
        span = (self._shared.limits.first, self._shared.limits.end)
        return LiveReader(address, long_side, self.live, self._shared.changed, *span, packets, frames, zones)

    def _reported(self) -> list[Track]:
        """Return the tracks that may yield events now: live ones, and the first file."""
        first = next((track for track in self._tracks if not track.live), None)
        return [track for track in self._tracks if track.live or track is first]

    def _has_work(self) -> bool:
        if self._pool and self._pool.has_work(self._tracks):
            return True
        if any(track.source.rows is not None and not track.stops for track in self._tracks):
            return True
        return any(
            track.is_settled if track.is_closed else track.is_finished or not track.is_open or track.decisions
            for track in self._reported()
        )

    def _decide(self) -> None:
        """Step the model with each chunk that is ready, one of each live source at a time."""
        # a step costs little more for several streams than for one, and least where they are neighbours in the state
        while live := sorted((t for t in self._tracks if t.live and t.ready), key=lambda track: track.place):
            self._step(live)
        for track in self._tracks:
            while track.ready:  # alone, so that the scores of a file do not depend on other files
                self._step([track])
            if track.is_finished:
                track.spent_at_end = track.spent_at_end or self._shared.spent()

    def _step(self, tracks: Sequence[Track]) -> None:
        """Decide on the oldest ready chunk of each track."""
        assert self._streams
        away = []
        batch: list[tuple[Track, list[Gap]]] = []
        for track in tracks:
            chunk = track.ready[0][0].index
            if track.reader:
                gaps = track.reader.missing_before(chunk)
            else:
                gaps = [Gap(track.next, chunk, "unseen")] if track.next is not None and chunk > track.next else []
                track.next = chunk + 1
            if any(gap.reason == "unseen" for gap in gaps):
                away.append(track.place)
            batch.append((track, gaps))
        if self._shared.on_gap == "reset" and away:
            self._streams.reset(away)
        batches = [batch]
        while batches:
            batch = batches.pop(0)
            try:
                rows = [track.ready[0][0] for track, _ in batch]
                scores = self._streams.step([track.place for track, _ in batch], rows)
            except Exception as error:
                if len(batch) == 1:
                    batch[0][0].fail(error, drop_ready=True)
                else:  # a step for each, to find the one that fails
                    batches = [[entry] for entry in batch]
                continue
            for (track, gaps), part in zip(batch, scores, strict=True):
                track.decide(gaps, part)

    def _settle(self, track: Track) -> Iterator[Event]:
        """Report the result of a source, by an event at least if it is live. Its place is free.

        Raises the error of a source without a log, and as `failure_of`; a full disk ends no live source.
        """
        with self._shared.changed:
            self._tracks.remove(track)
        if not track.live:
            track.source.close()
        if self._streams:
            self._streams.reset([track.place])
        yield from track.notices()
        for outlet in track.outlets:
            if outlet.dropped:
                yield Notice(
                    f"{outlet.dropped} decisions on {track.title} were dropped because {outlet.sink.name} was too slow."
                )
        result, error = None, track.error
        if track.live or not error:
            if self._shared.output.timeline:
                result = track.outlets[0].result if track.outlets else None
            elif track.status.decided:
                result = {}, None
        if result:  # none of a source that was interrupted before its first decision
            timeline, page = result
            yield Ended(track.id, timeline, page, track.final_events)
        if error is None:
            if track.live and not result:
                yield Undecided(track.id)
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


class Streams:
    """Places for several sources in one state of a model, by torch, or by ONNX Runtime for an exported model.

    On a GPU the step is captured, which takes as long as a dozen steps.
    """

    def __init__(self, loaded: Checkpoint, places: int = 1):
        self._as_input: Callable[[NDArray[np.float32]], Any] = np.asarray
        # imported here: an exported model runs without torch
        if loaded.exported:
            from lstr import exported as streaming
        else:
            import torch

            from lstr import streaming  # type: ignore[no-redef]

            self._as_input = torch.from_numpy
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
            stacked.append(self._as_input(np.stack(present)) if present else None)
        try:
            return np.asarray(self._streaming.step_streams(self._model, self._state, places, *stacked))
        except Exception as error:
            MODEL.mark(error)
            raise

    def reset(self, places: Sequence[int]) -> None:
        """Forget every chunk at some places."""
        self._streaming.reset(self._state, places)

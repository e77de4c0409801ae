"""Detection on live sources, several at once, which share the networks and the model's steps."""

import threading
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from time import monotonic

import numpy as np
import torch
from numpy.typing import NDArray

from extractors.addresses import shown
from extractors.errors import ExtractorError
from extractors.flow.workers import FlowWorkers, default_workers
from extractors.twostream import FeatureRow, TwoStream
from extractors.video.frames import Chunk
from extractors.video.live_input import Input
from extractors.video.live_reader import LiveOptions, LiveReader
from lstr import streaming
from lstr.checkpoint import Checkpoint
from lstr.streaming import StreamState
from lstr.timeline import Thresholds, Timeline
from pipelines.detection.decision import Decision, decision_of
from pipelines.detection.effort import Effort, Since
from pipelines.detection.events import Decided, Ended, Opened, SourceEvent, failed
from pipelines.detection.sources import ALL, Limits
from pipelines.detection.status import Status
from pipelines.detection.streams import open_streams
from pipelines.detection.writer import OutputOptions, SourceWriter
from pipelines.progress import Notice

REFRESH_SECONDS = 0.5  # after which statuses are renewed though nothing was decided
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

    @property
    def error(self) -> BaseException | None:
        """What ended it, if that was a failure."""
        return self.reader.error if self.over else None

    def refresh(self) -> Status:
        """Its status, as of now."""
        self.status.link = "ended" if self.over else self.reader.link
        self.status.waiting = self.reader.waiting
        for name in COUNTED:
            setattr(self.status, name, getattr(self.reader, name))
        return self.status

    def describe(self) -> dict:
        """How it was read and what came of it, as a timeline file has it."""
        error = self.reader.error
        return {
            "clock": self.reader.clock,
            "on_lag": self.reader.on_lag,
            **{name: getattr(self.refresh(), name) for name in COUNTED},
            **({"error": str(error)} if error else {}),
        }


@dataclass
class Batch:
    """Chunks of different sources on their way through the networks."""

    sources: list[LiveSource]
    closed: list[float]
    """When each chunk was, on the monotonic clock."""
    rows: Future


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


@dataclass(frozen=True)
class ChainOptions:
    """How the model steps on live sources."""

    precision: str = "float32"
    """As for `lstr.streaming.create`."""
    on_gap: str = "keep"
    """What it remembers after a source was away: `keep` all, or `reset`."""
    max_chunks: int | None = None
    """Decisions per source, at most."""


class LiveChain:
    """Networks and model for several sources at once; use it as a context manager. `decisions` is the causal loop.

    A chunk goes into the networks as soon as it is whole, with those of other sources that wait too, and a batch never
    holds two of one source: the scores of a source are those it has alone.
    """

    def __init__(
        self,
        sources: list[LiveSource],
        loaded: Checkpoint,
        twostream: TwoStream,
        workers: FlowWorkers | None,
        options: ChainOptions = ChainOptions(),
    ):
        self.sources, self.loaded, self.options = sources, loaded, options
        self.effort = Effort()
        self._twostream, self._workers = twostream, workers
        self._changed = sources[0].reader.changed
        self._places = {source.id: i for i, source in enumerate(sources)}
        self._state: StreamState = open_streams(loaded.model, len(sources), options.precision)
        cpu = torch.device(twostream.device).type == "cpu"
        self._threads = (workers.workers if workers else default_workers()) if cpu else 1
        self._largest = twostream.batch
        self._flying: deque[Batch] = deque()
        self._turn = 0

    def __enter__(self) -> "LiveChain":
        self._twostream.prepare(1, self._largest)
        self._pool = ThreadPoolExecutor(self._threads, "networks", torch.set_num_threads, (1,))
        return self

    def __exit__(self, *exception: object) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)

    def decisions(self) -> Iterator[tuple[LiveSource, Decision | Notice | None]]:
        """Each decision with its source, as they are made, and None when a source is over, until all are.

        A Notice, once, where a source lets one wait for the first. What ended a source is its `error`.
        """
        noticed = set()
        while not all(source.over for source in self.sources):
            with self._changed:
                self._changed.wait_for(self._has_work, REFRESH_SECONDS)
            for source in self.sources:
                source.refresh()
                if source.reader.note and source.id not in noticed:
                    noticed.add(source.id)
                    yield source, Notice(source.reader.note)
            while len(self._flying) <= self._threads and (ready := self._ready()):
                self._begin(ready)
            while finished := self._finished():
                yield from self._decide(finished)
            for source in self.sources:
                if not source.over and source.pending == 0 and self._is_done(source):
                    source.over = True
                    source.refresh()
                    yield source, None

    def _has_work(self) -> bool:
        if self._flying and self._flying[0].rows.done():
            return True
        if len(self._flying) <= self._threads and any(self._has_chunk(source) for source in self.sources):
            return True
        return any(not source.over and source.pending == 0 and self._is_done(source) for source in self.sources)

    def _has_chunk(self, source: LiveSource) -> bool:
        return source.reader.waiting > 0 and not self._is_full(source)

    def _is_full(self, source: LiveSource) -> bool:
        return self.options.max_chunks is not None and source.begun >= self.options.max_chunks

    def _is_done(self, source: LiveSource) -> bool:
        return self._is_full(source) or (source.reader.ended and source.reader.waiting == 0)

    def _ready(self) -> list[LiveSource]:
        """Sources to take a chunk of for the next batch: as many as let the free threads share the work."""
        n = len(self.sources)
        waiting = [s for i in range(n) if self._has_chunk(s := self.sources[(self._turn + i) % n])]
        free = max(1, self._threads - len(self._flying))
        ready = waiting[: min(self._largest, -(-len(waiting) // free))]
        if ready:
            self._turn = self._places[ready[-1].id] + 1
        return ready

    def _begin(self, ready: list[LiveSource]) -> None:
        """Send the oldest chunk of each of these sources through the networks."""
        taken = [_take(source) for source in ready]
        for source in ready:
            source.begun += 1
            source.pending += 1
            if self._is_full(source):
                source.reader.stop()
        chunks: list[Chunk] = [chunk for chunk, _ in taken]
        rows = self._twostream.submit(self._pool, chunks, self._workers)
        rows.add_done_callback(self._notify)
        self._flying.append(Batch(ready, [closed for _, closed in taken], rows))

    def _notify(self, _: Future) -> None:
        with self._changed:
            self._changed.notify_all()

    def _finished(self) -> list[tuple[LiveSource, float, FeatureRow]]:
        """What has come out of the networks, in the order of the state: of each source one chunk, its oldest."""
        taken: dict[str, tuple[LiveSource, float, FeatureRow]] = {}
        while self._flying and self._flying[0].rows.done():
            failed = taken and self._flying[0].rows.exception()  # what came before it is decided first
            if failed or any(source.id in taken for source in self._flying[0].sources):
                break
            batch = self._flying.popleft()
            parts = zip(batch.sources, batch.closed, batch.rows.result(), strict=True)
            taken |= {source.id: (source, closed, row) for source, closed, row in parts}
        # a step costs little more for several streams than for one, and least where they stand side by side
        return [taken[name] for name in sorted(taken, key=self._places.__getitem__)]

    def _decide(self, finished: list[tuple[LiveSource, float, FeatureRow]]) -> Iterator[tuple[LiveSource, Decision]]:
        """One step of the model for all these sources."""
        sources, rows = [source for source, _, _ in finished], [row for _, _, row in finished]
        gaps = [source.reader.missing_before(row.index) for source, _, row in finished]
        places = [self._places[source.id] for source in sources]
        if self.options.on_gap == "reset":
            away = [p for p, missing in zip(places, gaps, strict=True) if any(g.reason == "unseen" for g in missing)]
            streaming.reset(self._state, away)
        rgb, flow = (_stacked([row.features.get(stream) for row in rows]) for stream in ("rgb", "flow"))
        scores = streaming.step_some(self.loaded.model, self._state, places, rgb, flow).numpy()  # (n, 1 + n_ahead, C)
        for i, (source, closed, row) in enumerate(finished):
            source.pending -= 1
            latency_ms = (monotonic() - closed) * 1000
            decision = decision_of(self.loaded, source.timeline, row, scores[i], latency_ms, gaps[i])
            self.effort.count()
            source.status.decide(decision.time, latency_ms, int(self._state.chunks[places[i]]), self.loaded.config)
            yield source, decision


def _take(source: LiveSource) -> tuple[Chunk, float]:
    taken = source.reader.take()
    assert taken, "its chunk was waiting, and nobody else takes"
    return taken


def _stacked(features: list[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    """(n, D) of n chunks; None of a stream that the networks leave out."""
    present = [row for row in features if row is not None]
    return np.stack(present) if present else None


def run_live(
    chain: LiveChain, output: OutputOptions, warnings: Sequence[str] = (), keep_going: bool = True
) -> Generator[SourceEvent | Notice, None, dict[str, dict]]:
    """Detect on live sources, writing as it goes: each decision comes after its line is out. Returns timelines by id.

    The files of a source are written as soon as it is over, also where it failed or the run is interrupted; one
    without a decision has none. What ended the only source is raised, and any source's failure without `keep_going`.
    """
    timelines: dict[str, dict] = {}
    several = len(chain.sources) > 1
    with ExitStack() as stack:
        writers: dict[str, SourceWriter] = {}
        for source in chain.sources:
            writer = SourceWriter(
                source.id, source.origin, chain.loaded, source.timeline, output, Since(chain.effort), shared=several
            )
            writers[source.id] = stack.enter_context(writer)

        def finish(source: LiveSource) -> Iterator[Ended]:
            with closing(writers.pop(source.id)) as writer:
                if writer.decided:
                    live = {"on_gap": chain.options.on_gap, **source.describe()}
                    timelines[source.id] = writer.finish(warnings=warnings, live=live)
                    yield Ended(source.id, timelines[source.id], writer.page)

        try:
            for source in chain.sources:
                yield Opened(source.id, source.refresh(), chain.loaded.classes, source.refresh)
            for source, decision in chain.decisions():
                if isinstance(decision, Notice):
                    yield decision
                    continue
                if decision:
                    writers[source.id].take(decision)
                    yield Decided(source.id, decision)
                    continue
                yield from finish(source)
                if error := source.error:
                    if not (several and keep_going and isinstance(error, ExtractorError)):
                        raise error
                    yield failed(source.id, error)
        except GeneratorExit:
            raise
        except BaseException:  # Ctrl-C is how a camera is left
            for source in chain.sources:
                if source.id in writers:
                    for _ in finish(source):
                        pass
            raise
    return timelines

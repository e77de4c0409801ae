"""Detection on live sources, several at once, which share the networks and the model's steps."""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass
from time import monotonic

import numpy as np
import torch
from numpy.typing import NDArray

from lstr import streaming
from lstr.checkpoints.checkpoint import Checkpoint
from lstr.errors import LstrError
from lstr.extractors.errors import ExtractorError
from lstr.extractors.flow.workers import FlowWorkers, default_workers
from lstr.extractors.run import FeatureRow, TwoStream
from lstr.extractors.stages import MODEL, WRITE
from lstr.extractors.video.frames import Chunk
from lstr.pipelines.detection.decision import Decision, decision_of
from lstr.pipelines.detection.effort import Effort, Since
from lstr.pipelines.detection.events import Decided, Ended, Opened, SourceEvent
from lstr.pipelines.detection.live_source import LiveSource
from lstr.pipelines.detection.streams import open_streams
from lstr.pipelines.detection.writer import OutputOptions, SourceWriter
from lstr.pipelines.failures import FailureLog, UnforeseenError, failure_of
from lstr.pipelines.progress import Failed, Notice
from lstr.streaming import StreamState

REFRESH_SECONDS = 0.5  # after which statuses are renewed though nothing was decided


@dataclass
class Batch:
    """Chunks of different sources on their way through the networks."""

    sources: list[LiveSource]
    taken: list[tuple[Chunk, float]]
    """Of each source a chunk, and when that was closed on the monotonic clock."""
    rows: Future


Scored = tuple[LiveSource, float, FeatureRow, NDArray[np.float32]]
"""A source, when its chunk was closed, the chunk's features, and its scores."""


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
        return source.reader.waiting > 0 and not self._is_full(source) and not source.broken

    def _is_full(self, source: LiveSource) -> bool:
        return self.options.max_chunks is not None and source.begun >= self.options.max_chunks

    def _is_done(self, source: LiveSource) -> bool:
        ended = source.reader.ended and source.reader.waiting == 0
        return self._is_full(source) or source.broken is not None or ended

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
        self._flying.append(self._sent(ready, taken))

    def _sent(self, sources: list[LiveSource], taken: list[tuple[Chunk, float]]) -> Batch:
        try:
            rows = self._twostream.submit(self._pool, [chunk for chunk, _ in taken], self._workers)
        except Exception as error:
            rows = Future()
            rows.set_exception(error)
        rows.add_done_callback(self._notify)
        return Batch(sources, taken, rows)

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
            if error := batch.rows.exception():
                self._find_broken(batch, error)
                continue
            parts = zip(batch.sources, batch.taken, batch.rows.result(), strict=True)
            taken |= {source.id: (source, closed, row) for source, (_, closed), row in parts}
        # a step costs little more for several streams than for one, and least where they stand side by side
        return [taken[name] for name in sorted(taken, key=self._places.__getitem__)]

    def _find_broken(self, batch: Batch, error: BaseException) -> None:
        """Send the chunks of a batch that failed again, each alone; the source of one that was alone fails."""
        if not isinstance(error, Exception):
            raise error
        if len(batch.sources) > 1:
            failure_of(error, ", ".join(source.origin for source in batch.sources))
            pairs = zip(batch.sources, batch.taken, strict=True)
            self._flying.extendleft(reversed([self._sent([source], [taken]) for source, taken in pairs]))
            return
        batch.sources[0].pending -= 1
        batch.sources[0].fail(error)

    def _decide(self, finished: list[tuple[LiveSource, float, FeatureRow]]) -> Iterator[tuple[LiveSource, Decision]]:
        """One step of the model for all these sources; one whose chunk it cannot take fails."""
        for source, _, _ in finished:
            source.pending -= 1
        sound = [one for one in finished if not one[0].broken]
        gaps = {source.id: source.reader.missing_before(row.index) for source, _, row in sound}
        if self.options.on_gap == "reset":
            away = [self._places[i] for i, missing in gaps.items() if any(g.reason == "unseen" for g in missing)]
            streaming.reset(self._state, away)
        for source, closed, row, scores in self._scored(sound):
            latency_ms = (monotonic() - closed) * 1000
            try:
                decision = decision_of(self.loaded, source.timeline, row, scores, latency_ms, gaps[source.id])
            except Exception as error:
                source.fail(error)
                continue
            self.effort.count()
            seen = int(self._state.chunks[self._places[source.id]])
            source.status.decide(decision.time, latency_ms, seen, self.loaded.config)
            yield source, decision

    def _scored(self, finished: list[tuple[LiveSource, float, FeatureRow]]) -> Iterator[Scored]:
        """Each with its scores (1 + n_ahead, C): of all in one step, or where that fails of each in its own."""
        if not finished:
            return
        places, rows = [self._places[source.id] for source, _, _ in finished], [row for _, _, row in finished]
        try:
            with MODEL:
                rgb, flow = (_stacked([row.features.get(stream) for row in rows]) for stream in ("rgb", "flow"))
                scores = streaming.step_some(self.loaded.model, self._state, places, rgb, flow).numpy()
        except Exception as error:
            if len(finished) == 1:
                finished[0][0].fail(error)
            else:
                for one in finished:
                    yield from self._scored([one])
            return
        for (source, closed, row), of_one in zip(finished, scores, strict=True):
            yield source, closed, row, of_one


def _take(source: LiveSource) -> tuple[Chunk, float]:
    taken = source.reader.take()
    assert taken, "its chunk was waiting, and nobody else takes"
    return taken


def _stacked(features: list[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    """(n, D) of n chunks; None of a stream that the networks leave out."""
    present = [row for row in features if row is not None]
    return np.stack(present) if present else None


def run_live(
    chain: LiveChain, output: OutputOptions, warnings: Sequence[str] = (), log: FailureLog | None = None
) -> Generator[SourceEvent | Notice, None, dict[str, dict]]:
    """Detect on live sources, writing as it goes: each decision comes after its line is out. Returns timelines by id.

    The files of a source are written as soon as it is over, also where it failed or the run is interrupted; one
    without a decision has none. The failure of a source goes to `log`; what ended the only source is raised, and
    without `log` what ended any.
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
            try:
                with WRITE, closing(writers.pop(source.id)) as writer:
                    if not writer.decided:
                        return
                    live = {"on_gap": chain.options.on_gap, **source.describe()}
                    timelines[source.id] = writer.finish(warnings=warnings, live=live)
            except Exception as error:
                source.fail(error)
                return
            yield Ended(source.id, timelines[source.id], writer.page)

        try:
            for source in chain.sources:
                yield Opened(source.id, source.refresh(), chain.loaded.classes, source.refresh)
            for source, decision in chain.decisions():
                if isinstance(decision, Notice):
                    yield decision
                    continue
                if decision:
                    try:
                        with WRITE:
                            writers[source.id].take(decision)
                    except Exception as error:
                        source.fail(error)
                        continue
                    yield Decided(source.id, decision)
                    continue
                yield from finish(source)
                if source.error:
                    yield _failed(source, log, several)
        except GeneratorExit:
            raise
        except BaseException:  # Ctrl-C is how a camera is left
            for source in chain.sources:
                if source.id in writers:
                    for _ in finish(source):
                        pass
            raise
    return timelines


def _failed(source: LiveSource, log: FailureLog | None, several: bool) -> Failed:
    """The event of a source that has failed. Raises its error where it is the only one, and without `log`."""
    error = source.error
    assert error, "it has failed"
    if log is None or not isinstance(error, Exception):
        raise error
    event = log.add(source.id, source.origin, failure_of(error, source.origin))
    if several:
        return event
    if isinstance(error, ExtractorError | LstrError):
        raise error
    raise UnforeseenError(event.reason, event.hint) from error

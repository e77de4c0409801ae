"""Features of live sources, several at once: a chunk goes into the networks as soon as it is whole."""

import threading
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from lstr.extractors.flow.workers import FlowWorkers, default_workers
from lstr.extractors.run import TwoStream
from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.live_reader import Moment
from lstr.pipelines.detection.live_source import LiveSource
from lstr.pipelines.detection.running import Ready
from lstr.pipelines.failures import failure_of


@dataclass
class Batch:
    """Chunks of different sources on their way through the networks."""

    sources: list[LiveSource]
    taken: list[tuple[Chunk, Moment]]
    """One chunk of each source, and when that was closed."""
    rows: Future


class LiveRows:
    """Networks for the chunks of several sources at once; close it. `changed` is notified when features are there.

    A chunk goes into the networks with those of other sources that wait too, and a batch never holds two of one source:
    the scores of a source are those it has alone. `most` chunks are taken of each.
    """

    def __init__(
        self, twostream: TwoStream, workers: FlowWorkers | None, changed: threading.Condition, most: int | None = None
    ):
        self._twostream, self._workers, self._changed, self._most = twostream, workers, changed, most
        self._threads = (workers.workers if workers else default_workers()) if twostream.device == "cpu" else 1
        self._largest = twostream.batch
        self._flying: deque[Batch] = deque()
        self._turn = 0
        self._pool = ThreadPoolExecutor(self._threads, "networks", twostream.begin_thread)

    def close(self) -> None:
        """Wait for what is on its way."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def has_work(self, sources: Iterable[LiveSource]) -> bool:
        """Whether there is something to `send`, or `finished`."""
        if self._flying and self._flying[0].rows.done():
            return True
        return len(self._flying) <= self._threads and any(source.has_chunk(self._most) for source in sources)

    def send(self, sources: list[LiveSource]) -> None:
        """Send the oldest chunks of sources that wait through the networks, as far as these have threads."""
        while len(self._flying) <= self._threads and (ready := self._ready(sources)):
            taken = [_take(source) for source in ready]
            for source in ready:
                source.begun += 1
                source.pending += 1
                if source.is_full(self._most):
                    source.reader.stop()
            self._flying.append(self._sent(ready, taken))

    def finished(self) -> list[Ready]:
        """What has come out of the networks, in the order of the places: of each source one chunk, its oldest."""
        taken: dict[int, Ready] = {}
        while self._flying and self._flying[0].rows.done():
            failed = taken and self._flying[0].rows.exception()  # what came before it is decided first
            if failed or any(source.place in taken for source in self._flying[0].sources):
                break
            batch = self._flying.popleft()
            if error := batch.rows.exception():
                self._find_broken(batch, error)
                continue
            for source, (_, closed), row in zip(batch.sources, batch.taken, batch.rows.result(), strict=True):
                source.pending -= 1
                if not source.broken:
                    gaps = source.reader.missing_before(row.index)
                    taken[source.place] = Ready(source, source.place, row, closed.monotonic, gaps, closed.wall)
        # a step costs little more for several streams than for one, and least where they stand side by side
        return [taken[place] for place in sorted(taken)]

    def _ready(self, sources: list[LiveSource]) -> list[LiveSource]:
        """Sources to take a chunk of for the next batch: as many as let the free threads share the work."""
        turns = sorted(sources, key=lambda source: (source.place < self._turn, source.place))
        waiting = [source for source in turns if source.has_chunk(self._most)]
        free = max(1, self._threads - len(self._flying))
        ready = waiting[: min(self._largest, -(-len(waiting) // free))]
        if ready:
            self._turn = ready[-1].place + 1
        return ready

    def _sent(self, sources: list[LiveSource], taken: list[tuple[Chunk, Moment]]) -> Batch:
        try:
            for source, (chunk, _) in zip(sources, taken, strict=True):
                source.meet(chunk)
            rows = self._twostream.submit(self._pool, [chunk for chunk, _ in taken], self._workers)
        except Exception as error:
            rows = Future()
            rows.set_exception(error)
        rows.add_done_callback(self._notify)
        return Batch(sources, taken, rows)

    def _notify(self, _: Future) -> None:
        with self._changed:
            self._changed.notify_all()

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


def _take(source: LiveSource) -> tuple[Chunk, Moment]:
    taken = source.reader.take()
    assert taken, "its chunk was waiting, and nobody else takes"
    return taken

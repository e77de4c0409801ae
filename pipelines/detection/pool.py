"""The pool of threads that run the networks for all sources of a session."""

import threading
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass

from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.live_reader import Moment
from lstr.pipelines.detection.networks import Networks
from lstr.pipelines.detection.track import Track
from lstr.pipelines.failures import failure_of


@dataclass
class Batch:
    """Chunks on their way through the networks: several of one file, or one of each of several live sources."""

    taken: list[tuple[Track, Chunk, Moment | None]]
    rows: Future


class NetworkPool:
    """Threads that run the networks on the chunks of all sources; `changed` is notified when features are there.

    A batch has consecutive chunks of one file, as many as it would have alone, or one chunk of each of several live
    sources: the scores of a source never depend on the others.
    """

    def __init__(self, networks: Networks, changed: threading.Condition):
        self._twostream, self._workers, _ = networks.open()
        self._changed = changed
        self._pool, self._threads = self._twostream.open_pool(self._workers)
        self._flying: deque[Batch] = deque()
        self._turn = 0

    def close(self) -> None:
        """Wait for the batches that have started."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def has_work(self, tracks: list[Track]) -> bool:
        """Return whether there is something to `send` or to `collect`."""
        return bool(self._flying and self._flying[0].rows.done()) or bool(self._next(tracks))

    def _next(self, tracks: list[Track]) -> list[Track]:
        """Return the tracks for the next batch: a file, or as many live sources as let free threads share the work."""
        if len(self._flying) > self._threads:
            return []
        turns = sorted(tracks, key=lambda track: (track.place < self._turn, track.place))
        ready = [track for track in turns if track.has_batch(self._twostream.batch)]
        if not ready or not ready[0].live:
            return ready[:1]
        ready = [track for track in ready if track.live]
        free = max(1, self._threads - len(self._flying))
        return ready[: min(self._twostream.batch, -(-len(ready) // free))]

    def send(self, tracks: list[Track]) -> None:
        """Start batches while there are free threads and chunks."""
        while chosen := self._next(tracks):
            self._turn = chosen[-1].place + 1
            taken = []
            for track in chosen:
                assert track.source.chunks
                wanted = track.source.batch or self._twostream.batch
                for _ in range(min(wanted, track.source.chunks.waiting)):
                    taken.append((track, *track.source.take()))
                    track.begun += 1
                    track.pending += 1
                if track.is_full:
                    track.source.stop()
            self._flying.append(self._started(taken))

    def _started(self, taken: list[tuple[Track, Chunk, Moment | None]]) -> Batch:
        try:
            rows = self._twostream.submit(self._pool, [chunk for _, chunk, _ in taken], self._workers)
        except Exception as error:
            rows = Future()
            rows.set_exception(error)
        rows.add_done_callback(self._notify)
        return Batch(taken, rows)

    def _notify(self, _: Future) -> None:
        with self._changed:
            self._changed.notify_all()

    def collect(self) -> None:
        """Give the features that are there to their tracks, in the order in which the batches started."""
        while self._flying and self._flying[0].rows.done():
            batch = self._flying.popleft()
            if error := batch.rows.exception():
                tracks = list(dict.fromkeys(track for track, _, _ in batch.taken))
                if len(tracks) > 1 and isinstance(error, Exception):  # find the source at fault: each again, alone
                    failure_of(error, ", ".join(track.source.origin for track in tracks))
                    self._flying.extendleft([self._started([one]) for one in reversed(batch.taken)])
                else:
                    tracks[0].pending -= len(batch.taken)
                    tracks[0].fail(error)
                continue
            for (track, _, closed), row in zip(batch.taken, batch.rows.result(), strict=True):
                track.pending -= 1
                if not track.broken:
                    track.add_row(row, closed)

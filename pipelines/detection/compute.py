"""What computes for all sources of a session: threads that run the networks, and the state of the model."""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.devices import CAPTURING
from lstr.extractors.run import FeatureRow
from lstr.extractors.stages import MODEL
from lstr.extractors.streams import MODEL_STREAMS
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.model import Networks
from lstr.pipelines.detection.track import Taken, Track
from lstr.pipelines.failures import failure_of


class NetworkPool:
    """Threads that run the networks on the chunks of all sources; `changed` is notified when features are there.

    A batch has consecutive chunks of one file, as many as it would have alone, or one chunk of each of several live
    sources: the scores of a source never depend on the others.
    """

    def __init__(self, networks: Networks, changed: threading.Condition):
        self._twostream, self._workers, _ = networks.open()
        self._changed = changed
        self._pool, self._threads = self._twostream.open_pool(self._workers)
        self._flying: deque[tuple[list[Taken], Future]] = deque()
        """Batches that were started, in their order, each with its features."""
        self._turn = 0  # the place of the source whose batch is next

    def close(self) -> None:
        """Wait for the batches that have started."""
        wait(rows for _, rows in self._flying)
        if self._workers is None or self._pool is not self._workers.pool:
            self._pool.shutdown()

    def has_work(self, tracks: Sequence[Track]) -> bool:
        """Return whether there is something to `send` or to `collect`."""
        return bool(self._flying and self._flying[0][1].done()) or bool(self._next(tracks))

    def _next(self, tracks: Sequence[Track]) -> list[Track]:
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

    def send(self, tracks: Sequence[Track]) -> None:
        """Start batches while there are free threads and chunks."""
        while chosen := self._next(tracks):
            self._turn = chosen[-1].place + 1
            taken = [one for track in chosen for one in track.take_chunks(self._twostream.batch)]
            self._flying.append((taken, self._start(taken)))

    def _start(self, taken: Sequence[Taken]) -> Future:
        try:
            rows = self._twostream.submit(self._pool, [chunk for _, chunk, _ in taken], self._workers)
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
        while self._flying and self._flying[0][1].done():
            taken, rows = self._flying.popleft()
            if error := rows.exception():
                tracks = list(dict.fromkeys(track for track, _, _ in taken))
                if len(tracks) > 1 and isinstance(error, Exception):  # find the source at fault: each again, alone
                    failure_of(error, ", ".join(track.source.origin for track in tracks))
                    self._flying.extendleft(([one], self._start([one])) for one in reversed(taken))
                else:
                    tracks[0].pending -= len(taken)
                    tracks[0].fail(error)
                continue
            for (track, _, closed), row in zip(taken, rows.result(), strict=True):
                track.pending -= 1
                if not track.broken:
                    since, at = (closed.monotonic, closed.wall) if closed else (monotonic(), None)
                    track.ready.append((row, since, at))


class Streams:
    """Places for several sources in one state of a model, by torch, or by ONNX Runtime for an exported model.

    On a GPU the step is captured, which takes as long as a dozen steps.
    """

    def __init__(self, loaded: Checkpoint, places: int = 1):
        self._given: Callable[[NDArray[np.float32]], Any] = np.asarray
        # imported here: an exported model runs without torch
        if loaded.exported:
            from lstr import exported as streaming
        else:
            import torch

            from lstr import streaming  # type: ignore[no-redef]

            self._given = torch.from_numpy
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
            stacked.append(self._given(np.stack(present)) if present else None)
        with MODEL:
            return np.asarray(self._streaming.step_streams(self._model, self._state, places, *stacked))

    def reset(self, places: Sequence[int]) -> None:
        """Forget every chunk at some places."""
        self._streaming.reset(self._state, places)

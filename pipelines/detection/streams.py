"""Streams of a model for the sources of a session: all that a session asks of torch is here."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from lstr import streaming
from lstr.extractors.devices import CAPTURING
from lstr.extractors.prefetch import torch_threads
from lstr.extractors.run import FeatureRow
from lstr.extractors.stages import MODEL
from lstr.extractors.streams import MODEL_STREAMS
from lstr.models.kind import Model
from lstr.streaming import StreamState


class Streams:
    """Places for so many sources in one state of the model, captured where it is on a GPU, for a dozen steps' time.

    precision is as for `lstr.streaming.create`; with `like` they share what never changes.
    """

    def __init__(self, model: Model, places: int = 1, precision: str = "float32", like: "Streams | None" = None):
        self._model = model
        of_like = like._state if like else None
        self._state: StreamState = streaming.create(model, places, of_like, precision)
        if streaming.can_capture(model):
            with CAPTURING:  # networks are captured too, of which the model knows nothing
                streaming.capture(model, self._state)

    def step(self, places: Sequence[int], rows: Sequence[FeatureRow]) -> NDArray[np.float32]:
        """Scores (n, 1 + n_ahead, C) of the next chunk of n places, and of the chunks to come, from its features."""
        with MODEL:
            if len(self._state.chunks) == 1:
                return streaming.step_ahead(self._model, self._state, rows[0].rgb, rows[0].flow).numpy()[None]
            rgb, flow = (_stacked([getattr(row, stream) for row in rows]) for stream in MODEL_STREAMS)
            return streaming.step_some(self._model, self._state, places, rgb, flow).numpy()

    def reset(self, places: Sequence[int] | None = None) -> None:
        """Forget every chunk of some places, or of all."""
        streaming.reset(self._state, places)

    def seen(self, place: int) -> int:
        """Chunks that a place remembers, or has seen and let go."""
        return int(self._state.chunks[place])


class SharedStreams:
    """Streams that recorded sources take one after the other; as many are made as are in use at once."""

    def __init__(self, model: Model, precision: str = "float32"):
        self._model, self._precision = model, precision
        self._lock = Lock()
        self._first: Streams | None = None
        self._free: list[Streams] = []

    @contextmanager
    def one(self) -> Iterator[Streams]:
        """A stream before its first chunk, nobody else's until the end."""
        with self._lock:
            stream = self._free.pop() if self._free else None
            if stream is None:
                stream = Streams(self._model, 1, self._precision, self._first)
                self._first = self._first or stream
            else:
                stream.reset()
        with torch_threads():  # the libraries below torch take all cores in a thread that has not asked it before
            yield stream
        with self._lock:  # not after a failure, of which nobody knows what it left
            self._free.append(stream)


def _stacked(features: list[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    """(n, D) of n chunks; None of a stream that the networks leave out."""
    present = [row for row in features if row is not None]
    return np.stack(present) if present else None

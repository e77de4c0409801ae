"""Streams of a model for the sources of a job, captured where it is on a GPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

from lstr import streaming
from lstr.extractors.devices import CAPTURING
from lstr.models.kind import Model
from lstr.streaming import StreamState


def open_streams(
    model: Model, n_streams: int = 1, precision: str = "float32", like: StreamState | None = None
) -> StreamState:
    """As `lstr.streaming.create`; on a GPU the steps are captured, for the time of a dozen of them."""
    state = streaming.create(model, n_streams, like, precision)
    if streaming.can_capture(model):
        with CAPTURING:  # networks are captured too, of which the model knows nothing
            streaming.capture(model, state)
    return state


class SharedStreams:
    """Streams that recorded sources take one after the other; as many are made as are in use at once."""

    def __init__(self, model: Model, precision: str = "float32"):
        self._model, self._precision = model, precision
        self._lock = Lock()
        self._first: StreamState | None = None
        self._free: list[StreamState] = []

    @contextmanager
    def one(self) -> Iterator[StreamState]:
        """A stream before its first chunk, nobody else's until the end."""
        with self._lock:
            state = self._free.pop() if self._free else None
            if state is None:
                state = open_streams(self._model, precision=self._precision, like=self._first)
                self._first = self._first or state
            else:
                streaming.reset(state)
        yield state
        with self._lock:  # not after a failure, of which nobody knows what it left
            self._free.append(state)

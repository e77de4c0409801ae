"""Streams of a model for the sources of a session, computed by torch, or by ONNX Runtime for an exported model."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import Lock
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from lstr.checkpoints.loaded import Checkpoint
from lstr.exported import streaming
from lstr.exported.streaming import ExportedStep
from lstr.extractors.devices import CAPTURING
from lstr.extractors.prefetch import torch_threads
from lstr.extractors.run import FeatureRow
from lstr.extractors.stages import MODEL
from lstr.extractors.streams import MODEL_STREAMS

if TYPE_CHECKING:  # it brings torch
    from lstr.models.kind import Model
    from lstr.streaming import StreamState


class Streams(Protocol):
    """Places for so many sources in one state of a model."""

    def step(self, places: Sequence[int], rows: Sequence[FeatureRow]) -> NDArray[np.float32]:
        """Scores (n, 1 + n_ahead, C) of the next chunk of n places, and of the chunks to come, from its features."""

    def reset(self, places: Sequence[int] | None = None) -> None:
        """Forget every chunk of some places, or of all."""


def stacked(rows: Sequence[FeatureRow]) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
    """What a model takes as rgb and as flow of n chunks, (n, D) each; None of a stream that the networks leave out."""
    rgb, flow = ([getattr(row, stream) for row in rows] for stream in MODEL_STREAMS)
    return _joined(rgb), _joined(flow)


def _joined(features: list[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    present = [row for row in features if row is not None]
    return np.stack(present) if present else None


class TorchStreams(Streams):
    """Places in the state of a model of torch, captured where it is on a GPU, for a dozen steps' time.

    With `like` they share what never changes.
    """

    def __init__(self, model: "Model", places: int = 1, like: "TorchStreams | None" = None):
        from lstr import streaming

        self._streaming, self._model = streaming, model
        self._state: StreamState = streaming.create(model, places, like._state if like else None)
        if streaming.can_capture(model):
            with CAPTURING:  # networks are captured too, of which the model knows nothing
                streaming.capture(model, self._state)

    def step(self, places: Sequence[int], rows: Sequence[FeatureRow]) -> NDArray[np.float32]:
        """See Streams."""
        with MODEL:
            if len(self._state.chunks) == 1:
                scores = self._streaming.step_ahead(self._model, self._state, rows[0].rgb, rows[0].flow)
                return scores.numpy()[None]
            return self._streaming.step_some(self._model, self._state, places, *stacked(rows)).numpy()

    def reset(self, places: Sequence[int] | None = None) -> None:
        """See Streams."""
        self._streaming.reset(self._state, places)


class ExportedStreams(Streams):
    """Places in the state of an exported model."""

    def __init__(self, step: ExportedStep, places: int = 1):
        self._step = step
        self._state = streaming.create(step, places)

    def step(self, places: Sequence[int], rows: Sequence[FeatureRow]) -> NDArray[np.float32]:
        """See Streams."""
        with MODEL:
            return streaming.step_some(self._step, self._state, places, *stacked(rows))

    def reset(self, places: Sequence[int] | None = None) -> None:
        """See Streams."""
        streaming.reset(self._step, self._state, places)


def open_streams(loaded: Checkpoint, places: int = 1, like: Streams | None = None) -> Streams:
    """Places for so many sources in one state of a model; with `like` they share what never changes."""
    if loaded.exported:
        return ExportedStreams(loaded.exported, places)
    return TorchStreams(loaded.model, places, like if isinstance(like, TorchStreams) else None)


class SharedStreams:
    """Streams that recorded sources take one after the other; as many are made as are in use at once."""

    def __init__(self, loaded: Checkpoint):
        self._loaded = loaded
        self._lock = Lock()
        self._first: Streams | None = None
        self._free: list[Streams] = []

    @contextmanager
    def one(self) -> Iterator[Streams]:
        """A stream before its first chunk, nobody else's until the end."""
        with self._lock:
            stream = self._free.pop() if self._free else None
            if stream is None:
                stream = open_streams(self._loaded, 1, self._first)
                self._first = self._first or stream
            else:
                stream.reset()
        # the libraries below torch take all cores in a thread that has not asked it before
        with nullcontext() if self._loaded.exported else torch_threads():
            yield stream
        with self._lock:  # not after a failure, of which nobody knows what it left
            self._free.append(stream)

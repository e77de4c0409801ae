"""Streams that are made when a source needs them: of torch, or of an exported model in ONNX Runtime."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from lstr.checkpoints.loaded import Checkpoint
from lstr.exported import streaming
from lstr.exported.streaming import ExportedStep
from lstr.extractors.prefetch import torch_threads
from lstr.extractors.run import FeatureRow
from lstr.extractors.stages import MODEL
from lstr.pipelines.detection.streams import Streams, stacked


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

    def seen(self, place: int) -> int:
        """See Streams."""
        return int(self._state.chunks[place])


def open_streams(loaded: Checkpoint, places: int = 1, like: Streams | None = None) -> Streams:
    """Places for so many sources in one state of a model; with `like` they share what never changes."""
    if loaded.exported:
        return ExportedStreams(loaded.exported, places)
    from lstr.pipelines.detection.torch_streams import TorchStreams

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

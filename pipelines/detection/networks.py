"""What computes: the networks for raw video, built when needed, and the streams of the model."""

import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.devices import CAPTURING, choose_device
from lstr.extractors.flow.workers import FlowWorkers, flow_workers
from lstr.extractors.prefetch import torch_threads
from lstr.extractors.run import FeatureRow, TwoStream
from lstr.extractors.runtime_choice import run_on
from lstr.extractors.stages import MODEL
from lstr.extractors.streams import MODEL_STREAMS
from lstr.loaded_checkpoint import Checkpoint
from lstr.pipelines.detection.checkpoint import processor_of
from lstr.pipelines.detection.options import NetworkOptions
from lstr.pipelines.model_files.checkpoint_recipe import networks_of

DEFAULT = NetworkOptions()
# The networks for raw video, the workers for optical flow if it needs any, and warnings.
OpenNetworks = tuple[TwoStream, FlowWorkers | None, list[str]]


class Networks:
    """The networks of a model for raw video, built when a source first needs them; close them."""

    def __init__(self, loaded: Checkpoint, options: NetworkOptions = DEFAULT):
        self.loaded, self.options = loaded, options
        self._stack, self._lock = ExitStack(), threading.Lock()
        self._made: OpenNetworks | None = None
        self.error: BaseException | None = None
        """Why they cannot be built, which is not the error of a source."""

    @property
    def is_open(self) -> bool:
        """Whether they are built."""
        return self._made is not None

    def open(self) -> OpenNetworks:
        """Return the networks, built now if needed. Raises as `open_networks`."""
        with self._lock:
            if self._made is None:
                self.error = None
                try:
                    self._made = self._stack.enter_context(open_networks(self.loaded, self.options))
                except BaseException as error:
                    self.error = error
                    raise
            return self._made

    def close(self) -> None:
        """Free their memory and threads."""
        self._stack.close()
        self._made = None


@contextmanager
def open_networks(loaded: Checkpoint, networks: NetworkOptions = DEFAULT) -> Iterator[OpenNetworks]:
    """Build the networks for raw video, the workers for optical flow, and warnings.

    Raises as `networks_of`, FlowError where this machine lacks the backend, and NetworkRuntimeError for a runtime
    that was named and cannot be used.
    """
    device = processor_of(loaded.path, networks.device) if loaded.exported else choose_device(networks.device)
    twostream, warnings = networks_of(loaded, networks.weights, device, networks.algorithm, networks.allow_mismatch)
    twostream = run_on(twostream, networks.runtime, networks.flow_threads)
    twostream.open()
    if device != "cpu":
        twostream.prepare(1, twostream.batch)  # graphs are captured before any thread uses the GPU
    # the model decides while networks and flow compute the next chunks, so it must leave them their cores
    with (
        nullcontext() if loaded.exported else torch_threads(1),
        flow_workers(twostream.recipe.algorithm, networks.flow_threads, networks.flow_backend, device) as pool,
    ):
        yield twostream, pool, [*warnings, *twostream.warnings, *(pool.warnings if pool else ())]


class Streams:
    """Places for several sources in one state of a model, by torch, or by ONNX Runtime for an exported model.

    On a GPU the step is captured, which takes as long as a dozen steps.
    """

    def __init__(self, loaded: Checkpoint, places: int = 1):
        # imported here: an exported model runs without torch
        if loaded.exported:
            from lstr import exported_streaming as streaming
        else:
            from lstr import streaming  # type: ignore[no-redef]
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
            stacked.append(np.stack(present) if present else None)
        with MODEL:
            return np.asarray(self._streaming.step_some(self._model, self._state, places, *stacked))

    def reset(self, places: Sequence[int]) -> None:
        """Forget every chunk at some places."""
        self._streaming.reset(self._state, places)

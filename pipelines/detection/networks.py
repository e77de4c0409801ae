"""The networks that make features of raw video for a model: how they are made, and when."""

import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import ConfigError
from lstr.extractors.devices import choose_device
from lstr.extractors.flow.workers import ALGORITHMS, BACKENDS, FlowWorkers, flow_workers
from lstr.extractors.prefetch import torch_threads
from lstr.extractors.run import TwoStream
from lstr.extractors.streams import STREAMS
from lstr.pipelines.detection.checkpoint import processor_of
from lstr.pipelines.networks.checkpoint_recipe import networks_of
from lstr.pipelines.networks.converted import run_on
from lstr.pipelines.weights.published import named_weights
from lstr.settings import check_range


@dataclass(frozen=True)
class NetworkOptions:
    """How the networks for raw video are made; `algorithm` and `allow_mismatch` as for `networks_of`."""

    weights: Mapping[str, str | None] = field(default_factory=dict)
    """Files or folders by stream; those of others are found where the model's file or run has them."""
    flow_threads: int | None = None
    """Threads of optical flow; None is one per core."""
    flow_backend: str = "auto"
    device: str | None = None
    algorithm: str | None = None
    allow_mismatch: bool = False
    runtime: str = "auto"
    """What computes the networks: auto, torch, openvino or onnxruntime."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a number of threads, an algorithm or a backend that is none."""
        check_range(self, least={"flow_threads": 1}, choices={"algorithm": ALGORITHMS, "flow_backend": BACKENDS})

    @classmethod
    def of(
        cls, networks: "NetworkOptions | Mapping[str, Any] | str | Path | None", streams: Collection[str]
    ) -> "NetworkOptions":
        """The options that a caller writes shorter: weights of all `streams`, or a mapping.

        Weights are a folder that `lstr finetune` left, a file, or the name of fetched ones. A mapping has them as
        `rgb`, `flow` and so on, and other options by name. Raises ConfigError for another name, and as `named_weights`.
        """
        if networks is None:
            return cls()
        if isinstance(networks, NetworkOptions):
            return replace(networks, weights=named_weights(networks.weights, streams))
        options: dict[str, Any] = dict(networks) if isinstance(networks, Mapping) else dict.fromkeys(streams, networks)
        weights = {stream: options.pop(stream) for stream in STREAMS if stream in options}
        known = [option.name for option in fields(cls)]
        for name in options:
            if name not in known:
                words = ", ".join((*STREAMS, *known))
                raise ConfigError(f"Networks have no option {name!r}.", f"it is one of {words}.")
        paths = named_weights(options.pop("weights", None), streams)
        paths |= named_weights({stream: name for stream, name in weights.items() if name}, streams)
        return cls(weights=paths, **options)


OpenNetworks = tuple[TwoStream, FlowWorkers | None, list[str]]
"""The networks for raw video, the threads for its flow if there is any, and what to warn of."""


class Networks:
    """The networks of a model for raw video, which are made when a source first needs them; close them."""

    def __init__(self, loaded: Checkpoint, options: NetworkOptions = NetworkOptions()):
        self.loaded, self.options = loaded, options
        self._stack, self._lock = ExitStack(), threading.Lock()
        self._made: OpenNetworks | None = None

    @property
    def is_open(self) -> bool:
        """Whether they are made."""
        return self._made is not None

    def open(self) -> OpenNetworks:
        """They, made now if they are not. Raises as `open_networks`."""
        with self._lock:
            if self._made is None:
                self._made = self._stack.enter_context(open_networks(self.loaded, self.options))
            return self._made

    def close(self) -> None:
        """Free what they take."""
        self._stack.close()
        self._made = None


@contextmanager
def open_networks(loaded: Checkpoint, networks: NetworkOptions = NetworkOptions()) -> Iterator[OpenNetworks]:
    """The networks for raw video, the threads for its flow if there is any, and what to warn of.

    Raises as `networks_of`, FlowError where this machine lacks the backend, and NetworkRuntimeError for a runtime that
    was named and cannot be used.
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

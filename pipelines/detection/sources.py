"""What decisions are made on: videos and stored features, as feature rows that fit a checkpoint."""

import math
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, fields
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import ConfigError
from lstr.extractors.devices import choose_device
from lstr.extractors.errors import VideoError
from lstr.extractors.flow.workers import FlowWorkers, flow_workers
from lstr.extractors.prefetch import closed_after, torch_threads
from lstr.extractors.run import FeatureRow, TwoStream
from lstr.extractors.video.file_reader import decoder_beside, open_chunks, probe_chunks
from lstr.extractors.video.frames import CHUNK_SECONDS, Chunk, chunks_of
from lstr.extractors.video.inputs import find_videos
from lstr.pipelines.detection.checkpoint import warnings_of_source
from lstr.pipelines.failures import failure_of
from lstr.pipelines.features.folder import FeatureFolder, is_feature_folder, open_features
from lstr.pipelines.networks.checkpoint_recipe import check_recipe, networks_of
from lstr.pipelines.networks.converted import run_on
from lstr.pipelines.weights.published import find_weights
from lstr.timeline import TOLERANCE


@dataclass(frozen=True)
class NetworkOptions:
    """How the networks for raw video are made; `algorithm` and `allow_mismatch` as for `networks_of`."""

    rgb_weights: str | None = None
    flow_weights: str | None = None
    flow_threads: int | None = None
    """Threads of optical flow; None is one per core."""
    flow_backend: str = "auto"
    device: str | None = None
    algorithm: str | None = None
    allow_mismatch: bool = False
    runtime: str = "auto"
    """What computes the networks: auto, torch, openvino or onnxruntime."""

    @classmethod
    def of(
        cls, networks: "NetworkOptions | Mapping[str, Any] | str | Path | None", streams: Iterable[str]
    ) -> "NetworkOptions":
        """The options that a caller writes shorter: weights of all `streams`, or a mapping.

        Weights are a folder that `lstr finetune` left, a file, or the name of fetched ones. A mapping has them as
        `rgb` and `flow`, and other options by name. Raises ConfigError for another name, and as `find_weights`.
        """
        if networks is None or isinstance(networks, NetworkOptions):
            return networks or cls()
        options = dict(networks) if isinstance(networks, Mapping) else dict.fromkeys(streams, networks)
        weights = {stream: options.pop(stream) for stream in ("rgb", "flow") if stream in options}
        known = [option.name for option in fields(cls)]
        for name in options:
            if name not in known:
                raise ConfigError(f"Networks have no option {name!r}.", f"it is one of rgb, flow, {', '.join(known)}.")
        paths = {f"{stream}_weights": find_weights(str(path), stream) for stream, path in weights.items() if path}
        return cls(**{**options, **paths})


@dataclass(frozen=True)
class Source:
    """A recorded source to detect on: its id, where it came from, its length, and its feature rows in order."""

    id: str
    origin: str
    video: Path | None
    """The file to show beside the timeline; None for stored features."""
    duration: float
    n_chunks: int
    rows: Iterable[FeatureRow]
    warnings: list[str] = field(default_factory=list)
    """What a reader of its scores must know."""


@dataclass(frozen=True)
class Unreadable:
    """A source that cannot be opened, why, and where it is; in a session its turn comes too."""

    id: str
    error: Exception
    origin: str = ""

    can_begin = True

    def events(self) -> NoReturn:
        """Raises its error."""
        raise self.error

    def end(self) -> None:
        """Nothing of it was begun."""


@dataclass(frozen=True)
class Limits:
    """Which chunks are decided: from `start` on, for `duration`, in seconds of the source, and `max_chunks` at most."""

    start: float = 0.0
    duration: float | None = None
    max_chunks: int | None = None

    @property
    def first(self) -> int:
        """The chunk in which `start` lies."""
        return math.floor(self.start / CHUNK_SECONDS + TOLERANCE)

    @property
    def end(self) -> int | None:
        """The chunk before which `duration` is over; None without one."""
        if self.duration is None:
            return None
        return max(self.first + 1, math.ceil((self.start + self.duration) / CHUNK_SECONDS - TOLERANCE))

    def of(self, n_chunks: int, name: str) -> range:
        """Those of a source of `n_chunks`. Raises VideoError where there is none."""
        chosen = range(self.first, n_chunks if self.end is None else min(n_chunks, self.end))[: self.max_chunks]
        if not chosen:
            raise VideoError(
                f"{name} ends after {n_chunks * CHUNK_SECONDS:g} s, before [[start={self.start:g}]].",
                "start earlier; `lstr info` says how long a video is.",
            )
        return chosen


ALL = Limits()

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


@dataclass(frozen=True)
class Recorded:
    """A recorded source that is opened when its turn comes; `origin` is where it is."""

    id: str
    origin: str

    def open(self, networks: Networks, limits: Limits) -> Source | Unreadable:
        """Raises what no other source would survive either: as `open_networks`, and `failure_of`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Video(Recorded):
    """A video file."""

    def open(self, networks: Networks, limits: Limits) -> Source | Unreadable:
        path = Path(self.origin)
        with _opening(self) as opened:
            if not networks.is_open:
                limits.of(probe_chunks(path).n_chunks, self.origin)  # networks take seconds: not for what is no video
        if not opened:
            twostream, workers, warnings = networks.open()
            with _opening(self) as opened:
                long_side = twostream.recipe.long_side
                video, reader, _ = open_chunks(path, long_side, decoder=decoder_beside(twostream.device))
                chosen = limits.of(video.n_chunks, self.origin)
                chunks = _first_of(chunks_of(reader.frames(long_side), chosen.start), len(chosen))
                duration = video.duration if chosen.stop == video.n_chunks else chosen.stop * CHUNK_SECONDS
                known = [*warnings, *warnings_of_source(networks.loaded, self.id, path)]
                rows = twostream.rows(chunks, workers)
                opened.append(Source(self.id, self.origin, path, duration, len(chosen), rows, known))
        return opened[0]


@dataclass(frozen=True)
class Stored(Recorded):
    """A video of a feature folder; `warnings` are those of its folder."""

    folder: FeatureFolder
    warnings: Sequence[str] = ()

    def open(self, networks: Networks, limits: Limits) -> Source | Unreadable:
        with _opening(self) as opened:
            rgb, flow = self.folder.load(self.id)
            chosen = limits.of(len(rgb), self.origin)
            rows = (
                FeatureRow(k, (k + 1) * CHUNK_SECONDS, *(np.array(array[k], np.float32) for array in (rgb, flow)))
                for k in chosen
            )
            known = [*self.warnings, *warnings_of_source(networks.loaded, self.id)]
            opened.append(Source(self.id, self.origin, None, chosen.stop * CHUNK_SECONDS, len(chosen), rows, known))
        return opened[0]


def _first_of(chunks: Iterator[Chunk], n: int) -> Iterator[Chunk]:
    with closed_after(chunks) as source:
        yield from islice(source, n)


def find_recorded(paths: Iterable[str | Path]) -> tuple[list[Path], dict[str, Path]]:
    """The feature folders among paths, and by id the videos that the others are or hold. Raises as `find_videos`."""
    named = [Path(path) for path in paths]
    features = [path for path in named if is_feature_folder(path)]
    return features, find_videos(path for path in named if path not in features)


def recorded_sources(
    features: Iterable[Path], videos: Mapping[str, Path], loaded: Checkpoint, allow_mismatch: bool = False
) -> list[Recorded]:
    """Of each feature folder its videos, then the videos, in order. Raises RecipeError for features of another one."""
    sources: list[Recorded] = []
    for path in features:
        folder = open_features(path)
        warnings = check_recipe(loaded, folder.recipe, path, allow_mismatch)
        sources += [Stored(name, f"{folder.path}:{name}", folder, warnings) for name in folder.ids()]
    return [*sources, *(Video(name, str(path)) for name, path in videos.items())]


@contextmanager
def _opening(source: Recorded) -> Iterator[list[Source | Unreadable]]:
    """A list for a source, which is Unreadable where opening it fails. Raises as `failure_of`."""
    opened: list[Source | Unreadable] = []
    try:
        yield opened
    except Exception as error:
        failure_of(error, source.origin)
        opened.append(Unreadable(source.id, error, source.origin))


@contextmanager
def open_networks(loaded: Checkpoint, networks: NetworkOptions = NetworkOptions()) -> Iterator[OpenNetworks]:
    """The networks for raw video, the threads for its flow if there is any, and what to warn of.

    Raises as `networks_of`, FlowError where this machine lacks the backend, and NetworkRuntimeError for a runtime that
    was named and cannot be used.
    """
    weights, device = (networks.rgb_weights, networks.flow_weights), choose_device(networks.device)
    twostream, warnings = networks_of(loaded, *weights, device, networks.algorithm, networks.allow_mismatch)
    twostream = run_on(twostream, networks.runtime, networks.flow_threads)
    twostream.open()
    if device != "cpu":
        twostream.prepare(1, twostream.batch)  # graphs are captured before any thread uses the GPU
    # the model decides while networks and flow compute the next chunks, so it must leave them their cores
    with (
        torch_threads(1),
        flow_workers(twostream.recipe.algorithm, networks.flow_threads, networks.flow_backend, device) as pool,
    ):
        yield twostream, pool, [*warnings, *twostream.warnings, *(pool.warnings if pool else ())]

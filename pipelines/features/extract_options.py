"""What `lstr extract` takes, typed: the options of a whole extraction, and the part of them that each process needs."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from lstr.errors import ConfigError
from lstr.extractors.flow.workers import Backend
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS, Preset
from lstr.files.remote import Place
from lstr.pipelines.features.recipes import StoredRecipe
from lstr.settings import Count, Positive, check_fields


@dataclass(frozen=True)
class WorkerConfig:
    """What each process that extracts needs; it can be pickled. Recipe and calibration are the feature folder's own."""

    output: Place
    """The feature folder."""
    weights: Mapping[str, str | None] = field(default_factory=dict)
    """A file or a weights folder by stream; the weights of a stream without one are random."""
    device: str | None = None
    """Where the networks run; None for the GPU, else the CPU."""
    threads: Positive | None = None
    """Threads of optical flow, and on a CPU as many of the networks on the same cores; None for one per core."""
    flow_backend: Backend = "auto"
    runtime: str = "auto"
    """What computes the networks: auto, torch, openvino or onnxruntime."""
    allow_damaged: bool = False
    """Keep of a damaged video what precedes the damage, instead of failing it."""
    without: Count | None = None
    """The fold that the networks of every video lack, 0 for the networks of all; None for those that lack the video."""
    cache: Path | None = None
    """A folder of `lstr.pipelines.features.chunk_cache`, whose chunks and flow are taken instead of computed."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a number of threads or a choice that is none."""
        check_fields(self)

    @property
    def sources(self) -> WeightSources:
        """The weights, without any calibration."""
        return WeightSources(self.weights)


@dataclass(frozen=True)
class ExtractOptions(WorkerConfig):
    """Options of an extraction. Without `threads`, the machine's cores are shared out among the processes."""

    recipe: Preset | StoredRecipe = PRESETS["faithful"]
    precision: Literal["float32", "bf16"] | None = None
    """Precision of the networks: float32, bf16, or None for that of the folder, if new that of the recipe."""
    calibrate: Path | None = None
    """A label file or a list of videos, which give random networks their batch-norm statistics."""
    workers: Positive | None = None
    """Processes that share videos, cores and GPUs, or videos at a time on a cluster; None for what suits it."""
    engine: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    """Address of the Ray cluster; None for $RAY_ADDRESS, else the one running here, else this machine alone."""

    def __post_init__(self) -> None:
        """Raises ConfigError for a number of processes or threads, or a choice, that is none, and for a cluster that
        nothing runs on."""
        super().__post_init__()
        if self.ray_address and self.engine != "ray":
            raise ConfigError("ray_address is for the engine ray.", "add --set engine=ray, or leave out ray_address.")

    def for_workers(self, device: str, threads: int) -> WorkerConfig:
        """What each process needs, now that its device and its threads are known."""
        known = {f.name: getattr(self, f.name) for f in fields(WorkerConfig)}
        return WorkerConfig(**(known | {"device": device, "threads": threads}))

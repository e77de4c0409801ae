"""An extraction: its options, the outcome of each video, and how it resumes."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

from lstr.errors import ConfigError
from lstr.extractors.flow.workers import Backend
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS, Preset
from lstr.extractors.stages import closed_after
from lstr.extractors.video.frames import CHUNK_SECONDS
from lstr.files.remote import Place
from lstr.pipelines.failures import Failure, FailureLog
from lstr.pipelines.features.output_folder import OutputFolder, map_in_threads
from lstr.pipelines.features.recipes import StoredRecipe
from lstr.pipelines.progress import Notice, Progress
from lstr.settings import Count, Positive, check_fields


@dataclass(frozen=True)
class WorkerConfig:
    """What each process that extracts needs; it can be pickled. Recipe and calibration are the feature folder's own."""

    output: Place
    """The feature folder"""
    weights: Mapping[str, str | None] = field(default_factory=dict)
    """A file or a weights folder by stream; the weights of a stream without one are random"""
    device: str | None = None
    """Device of the networks; None for the GPU, else the CPU"""
    threads: Positive | None = None
    """Threads of optical flow, and on a CPU as many of the networks on the same cores; None for one per core"""
    flow_backend: Backend = "auto"
    runtime: str = "auto"
    """Runtime of the networks: auto, torch, openvino or onnxruntime"""
    allow_damaged: bool = False
    """Keep what precedes the damage of a damaged video, instead of failing it"""
    without: Count | None = None
    """The fold that the networks of every video lack, 0 for the networks of all; None for those that lack the video"""
    cache: Path | None = None
    """A folder of `chunk_cache`, whose chunks and flow are taken instead of computed"""

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that is not valid."""
        check_fields(self)

    @property
    def sources(self) -> WeightSources:
        """The weights, without any calibration."""
        return WeightSources(self.weights)


@dataclass(frozen=True)
class ExtractOptions(WorkerConfig):
    """Options of an extraction. Without `threads`, its processes share the machine's cores."""

    recipe: Preset | StoredRecipe = PRESETS["faithful"]
    precision: Literal["float32", "bf16"] | None = None
    """Precision of the networks; None for that of the folder, or of the recipe if the folder is new"""
    calibrate: Path | None = None
    """A label file or a list of videos, which give random networks their batch-norm statistics"""
    workers: Positive | None = None
    """Processes, or videos at a time on a cluster; None for what suits it"""
    engine: Literal["local", "ray"] = "local"
    ray_address: str | None = None
    """Address of the Ray cluster; None for $RAY_ADDRESS, else the one running here, else this machine alone"""

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that is not valid."""
        super().__post_init__()
        if self.ray_address and self.engine != "ray":
            raise ConfigError("ray_address is for the engine ray.", "add --set engine=ray, or leave out ray_address.")

    def for_workers(self, device: str, threads: int) -> WorkerConfig:
        """Return what each process needs, now that its device and its threads are known."""
        known = {f.name: getattr(self, f.name) for f in fields(WorkerConfig)}
        return WorkerConfig(**(known | {"device": device, "threads": threads}))


@dataclass(frozen=True)
class Outcome:
    """The outcome of one video: `done`, `kept` (finished before) or `failed` with a reason and a hint.

    The reason of a done video says how much of a damaged file was kept; otherwise it is empty.
    """

    id: str
    source: Place
    state: str
    chunks: int = 0
    seconds: float = 0.0
    """From opening the video to its record"""
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds each stage worked, as in the record"""
    reason: str = ""
    hint: str = ""
    note: str = ""
    """A warning"""
    traceback: str = ""
    """The traceback of an unexpected error"""

    @classmethod
    def failed(cls, video_id: str, source: Place, failure: Failure) -> "Outcome":
        """Return the outcome of a video that cannot be extracted."""
        return cls(video_id, source, "failed", **asdict(failure))


@dataclass
class Summary:
    """Counts the outcomes of a run as they come."""

    started: float = field(default_factory=perf_counter)
    counts: Counter[str] = field(default_factory=Counter)
    chunks: int = 0
    stages: dict[str, float] = field(default_factory=dict)
    """Seconds each stage worked, in all threads and processes together"""
    failed: list[Outcome] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one video."""
        self.counts[outcome.state] += 1
        if outcome.state == "failed":
            self.failed.append(outcome)
        elif outcome.state == "done":
            self.chunks += outcome.chunks
            for name, seconds in outcome.stages.items():
                self.stages[name] = self.stages.get(name, 0.0) + seconds

    def to_dict(self) -> dict[str, Any]:
        """Return it as a JSON object; speeds are only of what was done in this run."""
        seconds = perf_counter() - self.started
        return {
            **{state: self.counts[state] for state in ("done", "kept", "failed")},
            "chunks": self.chunks,
            "seconds": round(seconds, 3),
            "chunks_per_second": round(self.chunks / seconds, 3),
            "realtime_factor": round(self.chunks * CHUNK_SECONDS / seconds, 3),
            "stages": {
                name: {"thread_seconds": round(spent, 3), "chunks_per_thread_second": round(self.chunks / spent, 2)}
                for name, spent in self.stages.items()
                if spent > 0
            },
            "failures": [{"id": o.id, "source": str(o.source), "reason": o.reason} for o in self.failed],
        }


# Extracts videos {id: source} in any order and anywhere, and yields an Outcome of each as it ends. Closing the iterator
# ends everything that it started; what was finished is kept.
Engine = Callable[[Mapping[str, Place]], Iterator[Progress | Notice | Outcome]]


def resume(
    videos: Mapping[str, Place], folder: OutputFolder, engine: Engine
) -> Generator[Progress | Notice | Outcome, None, None]:
    """Extract each video that is not done; one bad video does not stop the rest.

    Yields one Outcome per video, and what else the engine yields. `videos.jsonl` and `failed.jsonl` are compiled at
    the end, also after an interruption; an unexpected error leaves its traceback in logs/ID.log.
    """
    folder.sweep()
    log, over, to_do = FailureLog(folder.path), [], {}
    try:
        for (video_id, source), record in map_in_threads(lambda video: folder.done_record(*video), videos.items()):
            if record:
                over.append(video_id)
                yield Outcome(video_id, source, "kept", record["chunks"])
            else:
                to_do[video_id] = source
        with closed_after(engine(to_do)) as events:
            for event in events:
                if isinstance(event, Outcome):
                    over.append(event.id)
                    if event.state == "failed":
                        failure = Failure(event.reason, event.hint, event.traceback)
                        event = replace(event, hint=log.add(event.id, event.source, failure).hint)
                yield event
    finally:
        folder.compile()
        log.finish(over)

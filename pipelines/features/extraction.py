"""An extraction: its options, its plan, the outcome of each video, and how it resumes."""

import os
import shutil
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import torch

from lstr.errors import ConfigError, OutputError, brief
from lstr.extractors.flow.workers import Backend, choose_backend
from lstr.extractors.networks.network import RESNET50, find_network
from lstr.extractors.presets import PRESETS, Preset
from lstr.extractors.recipe import Recipe
from lstr.extractors.stages import PROBE, closed_after
from lstr.extractors.video.frames import CHUNK_SECONDS
from lstr.extractors.video.inputs import announced_seconds
from lstr.extractors.video.probe import probe
from lstr.files.atomic import check_writable, sweep
from lstr.files.names import fault_of
from lstr.files.remote import Place, RemoteFile
from lstr.labels.video_ids import HINT
from lstr.pipelines.failures import Failure, FailureLog, failure_of, read_failures
from lstr.pipelines.features.output_folder import OutputFolder, map_in_threads, open_output
from lstr.pipelines.features.recipes import StoredRecipe
from lstr.pipelines.progress import Notice, Progress
from lstr.settings import Count, Positive, check_fields

RECORD_BYTES = 2048  # of one video
FLOAT_BYTES = 4
# Per process, whose threads share one lock of Python. Two cores, where a second process was measured to gain nothing,
# get one process; more cores were not measured.
CORES = 4
PROCESS_MEMORY_BYTES = 2 * 2**30  # 1.2 GiB were measured
MEMORY_INFO = Path("/proc/meminfo")
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


@dataclass(frozen=True)
class ExtractOptions:
    """Options of an extraction. Without `threads`, its processes share the machine's cores."""

    output: Place
    """The feature folder"""
    weights: Mapping[str, str | None] = field(default_factory=dict)
    """A file or a weights folder by stream; the weights of a stream without one are random"""
    device: str | None = None
    """Device of the networks; None for the GPU, else the CPU"""
    threads: Positive | None = None
    """Threads of optical flow, and on a CPU the same number of the networks; None for one per core"""
    flow_backend: Backend = "auto"
    runtime: str = "auto"
    """Runtime of the networks: auto, torch, openvino or onnxruntime"""
    allow_damaged: bool = False
    """Keep what precedes the damage of a damaged video, instead of failing it"""
    without: Count | None = None
    """The fold that the networks of every video lack, 0 for the networks of all; None for those that lack the video"""
    cache: Path | None = None
    """A folder of `chunk_cache`, whose chunks and flow are taken instead of computed"""
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
        check_fields(self)
        if self.ray_address and self.engine != "ray":
            raise ConfigError("ray_address is for the engine ray.", "add --set engine=ray, or leave out ray_address.")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one video: `done`, `kept` (finished before) or `failed` with a reason and a hint.

    The reason of a done video says how much of a damaged file was kept; otherwise it is empty.
    """

    id: str
    source: Place
    state: str
    chunks: int = 0
    # From opening the video to its record
    seconds: float = 0.0
    # Seconds each stage worked, as in the record
    stages: dict[str, float] = field(default_factory=dict)
    reason: str = ""
    hint: str = ""
    # A warning
    note: str = ""
    # The traceback of an unexpected error
    traceback: str = ""


@dataclass
class Summary:
    """The counts of the outcomes of a run."""

    started: float = field(default_factory=perf_counter)
    counts: Counter[str] = field(default_factory=Counter)
    chunks: int = 0
    # Seconds each stage worked, in all threads and processes together
    stages: dict[str, float] = field(default_factory=dict)
    failed: list[Outcome] = field(default_factory=list)

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
    if isinstance(folder.path, Path):
        sweep(folder.path)  # the temporary files of killed runs
    log, over, to_do = FailureLog(folder.path), [], {}
    try:
        for (video_id, source), record in map_in_threads(lambda video: folder.find_record(*video), videos.items()):
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


@dataclass(frozen=True)
class Share:
    """Processes, and threads of each; a single process is the job's own, which starts no other."""

    processes: int
    threads: int


@dataclass(frozen=True)
class PlannedVideo:
    """One video: whether it is `done`, `to do` or `unreadable`, and why it failed before, if it did."""

    id: str
    source: Place
    state: str
    seconds: float = 0.0
    chunks: int = 0
    reason: str = ""
    failed_before: str = ""


@dataclass(frozen=True)
class Plan:
    """All videos of an extraction, and what the rest of it costs."""

    output: Place
    videos: tuple[PlannedVideo, ...]
    # Bytes of all streams' features, per chunk
    row_bytes: int
    # Seconds of one core that a chunk took in the videos that are done; None before the first one
    rate: float | None
    share: Share

    def of(self, state: str) -> list[PlannedVideo]:
        """Return the videos in a state."""
        return [video for video in self.videos if video.state == state]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a JSON object.

        Hours are of video, seconds and bytes are estimates of the time and disk that the rest takes, and
        `failed_before` counts videos that are not done. Times and disks that are not known are None.
        """
        chunks, free = sum(video.chunks for video in self.of("to do")), None
        if not isinstance(self.output, RemoteFile):
            folders = (self.output, *self.output.absolute().parents)
            free = shutil.disk_usage(next(folder for folder in folders if folder.exists())).free
        cores = self.share.processes * self.share.threads
        return {
            "output": str(self.output),
            "files": len(self.videos),
            "hours": sum(video.seconds for video in self.videos) / 3600,
            "done": len(self.of("done")),
            "to_do": len(self.of("to do")),
            "unreadable": len(self.of("unreadable")),
            "failed_before": sum(bool(video.failed_before) for video in self.videos if video.state != "done"),
            "hours_to_do": sum(video.seconds for video in self.of("to do")) / 3600,
            "chunks_to_do": chunks,
            "seconds": None if self.rate is None else chunks * self.rate / cores,
            "bytes": chunks * self.row_bytes + len(self.of("to do")) * RECORD_BYTES,
            "free_bytes": free,
            "processes": self.share.processes,
            "threads": self.share.threads,
            "videos": [{**asdict(video), "source": str(video.source)} for video in self.videos],
        }


def make_plan(
    videos: Mapping[str, Place], options: ExtractOptions, device: str, sharing: Callable[[int], Share]
) -> Plan:
    """Look at every video and at what is done of it; of those to do the packets are read, elsewhere the header.

    `sharing` returns the share of processes and threads for a number of videos. The time follows from the videos that
    are done on a device of this kind. Raises OutputError for an id that is not a valid file name, and if the output
    cannot be written; FlowError for a flow backend that is missing.
    """
    for video_id in videos:
        if fault := fault_of(video_id):
            raise OutputError(f"The video id {brief(video_id)} is {fault}.", HINT)
    output, recipe = options.output, options.recipe
    if recipe.algorithm:
        choose_backend(recipe.algorithm, options.flow_backend, options.device or "cpu")
    # Failures of earlier runs only inform: each video without features is tried again.
    folder = open_output(output)
    failures = {failure["id"]: failure["reason"] for failure in read_failures(output)} if folder else {}

    def look(video: tuple[str, Place]) -> tuple[PlannedVideo, dict[str, Any]]:
        video_id, source = video
        before = failures.get(video_id, "")
        if record := folder.find_record(video_id, source) if folder else None:
            return PlannedVideo(video_id, source, "done", record["duration"], record["chunks"]), record
        if isinstance(source, RemoteFile):
            # Packets, which are exact, would mean to download the whole file; the header may be wrong.
            seconds = announced_seconds(source)
            chunks = int(seconds / CHUNK_SECONDS)
            return PlannedVideo(video_id, source, "to do", seconds, chunks, failed_before=before), {}
        try:
            with PROBE:
                probed = probe(source)
        except Exception as error:
            reason = failure_of(error, source).reason
            return PlannedVideo(video_id, source, "unreadable", reason=reason, failed_before=before), {}
        return PlannedVideo(video_id, source, "to do", probed.duration, probed.n_chunks, failed_before=before), {}

    looks = [found for _, found in map_in_threads(look, videos.items())]
    made_by = folder.recipe if folder else recipe.recipe if isinstance(recipe, StoredRecipe) else recipe
    n_left = sum(video.state != "done" for video, _ in looks)
    # records of earlier versions do not say how many threads worked
    timed = [record for _, record in looks if "threads" in record and record["device"] == device]
    chunks = sum(record["chunks"] for record in timed)
    rate = sum(record["seconds"]["total"] * record["threads"] for record in timed) / chunks if chunks else None
    if isinstance(output, Path) and n_left:
        check_writable(output)
    return Plan(output, tuple(video for video, _ in looks), row_bytes(made_by), rate, sharing(n_left))


def widths_of(recipe: Preset | Recipe) -> dict[str, int]:
    """Return the features per chunk by stream; those of ResNet-50 if a width is not known before a network is built."""
    return {
        stream: getattr(part, "dim", None) or (find_network(part.network) or RESNET50).width
        for stream, part in recipe.parts.items()
    }


def row_bytes(recipe: Preset | Recipe) -> int:
    """Return the bytes of one chunk's features."""
    return FLOAT_BYTES * sum(widths_of(recipe).values())


def count_gpus(device: str) -> int:
    """Return how many GPUs a device is: all for `cuda`, one for `cuda:N`, none for `cpu`."""
    return torch.cuda.device_count() if device == "cuda" else int(device != "cpu")


def share(
    n_videos: int, cores: int, gpus: int, memory: int, processes: int | None = None, threads: int | None = None
) -> Share:
    """Return how `n_videos` share a machine with `memory` free bytes; `processes` and `threads` are those requested.

    One process per GPU, because several would take turns on it, and not more than videos, cores, or memory for them.
    """
    if processes is None:
        processes = gpus or max(1, cores // (threads or CORES))
        processes = min(processes, cores, max(1, memory // PROCESS_MEMORY_BYTES))
    processes = max(1, min(processes, n_videos))
    return Share(processes, threads or max(1, cores // processes))


def free_memory() -> int:
    """Return the bytes of memory that are free here, or that the container may have."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # all of it, where nothing says what is free
    if MEMORY_INFO.exists():
        lines = dict(line.split(":") for line in MEMORY_INFO.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    with suppress(OSError, ValueError):  # without a limit the file says "max", or is missing
        free = min(free, int(MEMORY_LIMIT.read_text()))
    return free

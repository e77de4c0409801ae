"""Options, plan, outcomes and resumption of an extraction."""

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

from lstr.errors import OutputError, brief
from lstr.extractors.flow.workers import choose_backend
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

RECORD_BYTES = 2048  # per video
FLOAT_BYTES = 4
# Cores per process, because the threads of a process share Python's global lock. On two cores a second process was no
# faster in measurements; more cores were not measured.
CORES = 4
PROCESS_MEMORY_BYTES = 2 * 2**30  # measured: 1.2 GiB
MEMORY_INFO = Path("/proc/meminfo")
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of the container


@dataclass(frozen=True)
class ExtractOptions:
    """Options of an extraction. Without `threads`, its processes divide the cores of the machine."""

    output: Place
    """The feature folder"""
    weights: Mapping[str, str | None] = field(default_factory=dict)
    """A file or a weights folder by stream; streams without one get random weights"""
    device: str | None = None
    """Device of the networks; None for the GPU, else the CPU"""
    threads: Positive | None = None
    """Threads of optical flow, and on a CPU the same number of the networks; None for one per core"""
    runtime: str = "auto"
    """Runtime of the networks: auto, torch, openvino or onnxruntime"""
    allow_damaged: bool = False
    """Keep the part of a damaged video before the damage, instead of reporting a failure"""
    without: Count | None = None
    """Compute all videos with the networks trained without this fold (0: with all videos); None: chosen by video"""
    cache: Path | None = None
    """A folder of `chunk_cache`; cached chunks and flow are used instead of computed"""
    recipe: Preset | StoredRecipe = PRESETS["faithful"]
    precision: Literal["float32", "bf16"] | None = None
    """Precision of the networks; None for the precision of the folder, or of the recipe if the folder is new"""
    calibrate: Path | None = None
    """A label file, whose training videos give random networks batch-norm statistics"""
    workers: Positive | None = None
    """Number of processes, or of simultaneous videos on a cluster; None chooses it"""
    engine: Literal["local", "ray"] = "local"
    """`ray` uses the cluster at $RAY_ADDRESS, else one that runs on this machine, else only this machine"""

    def __post_init__(self) -> None:
        check_fields(self)


@dataclass(frozen=True)
class Outcome:
    """The outcome of one video: `done`, `kept` (finished before) or `failed` with a reason and a hint.

    For a `done` video, the reason is empty or states how much of a damaged file was kept.
    """

    id: str
    source: Place
    state: str
    chunks: int = 0
    seconds: float = 0.0  # time from opening the video to writing its record
    stages: dict[str, float] = field(default_factory=dict)  # working time of each stage in seconds, as in the record
    reason: str = ""
    hint: str = ""
    note: str = ""  # a warning
    traceback: str = ""  # the traceback of an unexpected error


@dataclass
class Summary:
    """The counts of the outcomes of a run."""

    started: float = field(default_factory=perf_counter)
    counts: Counter[str] = field(default_factory=Counter)
    chunks: int = 0
    # Working time of each stage in seconds, in all threads and processes together
    stages: dict[str, float] = field(default_factory=dict)
    failed: list[Outcome] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON object; speeds include only the videos of this run."""
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


# A function that extracts videos {id: source} in any order and place, and yields an Outcome of each. Closing the
# iterator ends all its processes and threads; finished videos are kept.
Engine = Callable[[Mapping[str, Place]], Iterator[Progress | Notice | Outcome]]


def resume(
    videos: Mapping[str, Place], folder: OutputFolder, engine: Engine
) -> Generator[Progress | Notice | Outcome, None, None]:
    """Extract each video that is not done; the failure of one video does not stop the others.

    Yields one Outcome per video, and the other events of the engine. `videos.jsonl` and `failed.jsonl` are written at
    the end, also after an interruption; the traceback of an unexpected error is in logs/ID.log.
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


# Numbers of processes, and of threads per process; a single process means that no other is started
Share = tuple[int, int]


@dataclass(frozen=True)
class PlannedVideo:
    """A video of a plan: `done`, `to do` or `unreadable`, and the reason of an earlier failure."""

    id: str
    source: Place
    state: str
    seconds: float = 0.0
    chunks: int = 0
    reason: str = ""
    failed_before: str = ""


@dataclass(frozen=True)
class Plan:
    """All videos of an extraction, with an estimate of the remaining time and disk space."""

    output: Place
    videos: tuple[PlannedVideo, ...]
    row_bytes: int  # bytes of the features of all streams, per chunk
    rate: float | None  # core seconds per chunk in the finished videos; None without finished videos
    share: Share

    def of(self, state: str) -> list[PlannedVideo]:
        return [video for video in self.videos if video.state == state]

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as a JSON object.

        Hours are the duration of videos; seconds and bytes are estimates of the remaining time and disk space, None if
        unknown; `failed_before` counts only unfinished videos.
        """
        chunks, free = sum(video.chunks for video in self.of("to do")), None
        if not isinstance(self.output, RemoteFile):
            folders = (self.output, *self.output.absolute().parents)
            free = shutil.disk_usage(next(folder for folder in folders if folder.exists())).free
        processes, threads = self.share
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
            "seconds": None if self.rate is None else chunks * self.rate / (processes * threads),
            "bytes": chunks * self.row_bytes + len(self.of("to do")) * RECORD_BYTES,
            "free_bytes": free,
            "processes": processes,
            "threads": threads,
            "videos": [{**asdict(video), "source": str(video.source)} for video in self.videos],
        }


def make_plan(
    videos: Mapping[str, Place], options: ExtractOptions, device: str, sharing: Callable[[int], Share]
) -> Plan:
    """Make the plan of an extraction: check the state of every video, and read its packets, or the header if remote.

    `sharing` returns the processes and threads for a number of videos. The time is estimated from finished videos on
    the same type of device. Raises OutputError for an id that is not a valid file name, and if the output cannot be
    written; FlowError for a missing flow backend.
    """
    for video_id in videos:
        if fault := fault_of(video_id):
            raise OutputError(f"The video id {brief(video_id)} is {fault}.", HINT)
    output, recipe = options.output, options.recipe
    if recipe.algorithm:
        choose_backend(recipe.algorithm, device=options.device or "cpu")
    # Failures of earlier runs are only information: each video without features is tried again.
    folder = open_output(output)
    failures = {failure["id"]: failure["reason"] for failure in read_failures(output)} if folder else {}

    def look(video: tuple[str, Place]) -> tuple[PlannedVideo, dict[str, Any]]:
        video_id, source = video
        if record := folder.find_record(video_id, source) if folder else None:
            return PlannedVideo(video_id, source, "done", record["duration"], record["chunks"]), record
        planned = PlannedVideo(video_id, source, "to do", failed_before=failures.get(video_id, ""))
        if isinstance(source, RemoteFile):
            # Packets are exact, but need a download of the whole file; the header may be wrong.
            seconds = announced_seconds(source)
            return replace(planned, seconds=seconds, chunks=int(seconds / CHUNK_SECONDS)), {}
        try:
            with PROBE:
                probed = probe(source)
        except Exception as error:
            return replace(planned, state="unreadable", reason=failure_of(error, source).reason), {}
        return replace(planned, seconds=probed.duration, chunks=probed.n_chunks), {}

    looks = [found for _, found in map_in_threads(look, videos.items())]
    made_by = folder.recipe if folder else recipe.recipe if isinstance(recipe, StoredRecipe) else recipe
    n_left = sum(video.state != "done" for video, _ in looks)
    timed = [record for _, record in looks if record.get("device") == device]
    chunks = sum(record["chunks"] for record in timed)
    rate = sum(record["seconds"]["total"] * record["threads"] for record in timed) / chunks if chunks else None
    if isinstance(output, Path) and n_left:
        check_writable(output)
    return Plan(output, tuple(video for video, _ in looks), row_bytes(made_by), rate, sharing(n_left))


def widths_of(recipe: Preset | Recipe) -> dict[str, int]:
    """Return the features per chunk by stream; a width that is unknown without building the network is ResNet-50's."""
    return {
        stream: getattr(part, "dim", None) or (find_network(part.network) or RESNET50).width
        for stream, part in recipe.parts.items()
    }


def row_bytes(recipe: Preset | Recipe) -> int:
    """Return the size of one chunk's features in bytes."""
    return FLOAT_BYTES * sum(widths_of(recipe).values())


def count_gpus(device: str) -> int:
    """Return the number of GPUs for a device name: all for `cuda`, one for `cuda:N`, none for `cpu`."""
    return torch.cuda.device_count() if device == "cuda" else int(device != "cpu")


def share(
    n_videos: int, cores: int, gpus: int, memory: int, processes: int | None = None, threads: int | None = None
) -> Share:
    """Return processes and threads for `n_videos` on a machine with `memory` free bytes.

    There is one process per GPU, because several would take turns on it, and not more than videos, cores and memory
    allow. `processes` and `threads` are the requested numbers.
    """
    if processes is None:
        processes = gpus or max(1, cores // (threads or CORES))
        processes = min(processes, cores, max(1, memory // PROCESS_MEMORY_BYTES))
    processes = max(1, min(processes, n_videos))
    return processes, threads or max(1, cores // processes)


def free_memory() -> int:
    """Return the available memory of this machine in bytes, limited by the container."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # total memory, if the free memory is unknown
    if MEMORY_INFO.exists():
        lines = dict(line.split(":") for line in MEMORY_INFO.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    with suppress(OSError, ValueError):  # without a limit the file contains "max", or is missing
        free = min(free, int(MEMORY_LIMIT.read_text()))
    return free

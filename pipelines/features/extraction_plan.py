"""What an extraction would do, before it does it: how much is left, how long it takes, how much disk it needs.

And by how many processes and threads: as many as the machine feeds, and no more than it has cores.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch

from lstr.extractors.flow.workers import default_workers
from lstr.extractors.networks.network import Cost
from lstr.extractors.networks.table import RESNET50, known_network
from lstr.extractors.presets import Preset
from lstr.extractors.recipe import Recipe
from lstr.extractors.stages import PROBE
from lstr.extractors.video.frames import CHUNK_SECONDS
from lstr.extractors.video.inputs import announced_seconds
from lstr.extractors.video.probe import probe
from lstr.files.remote import Place, RemoteFile
from lstr.pipelines.failures import failure_of, read_failures
from lstr.pipelines.features.recipes import StoredRecipe
from lstr.pipelines.features.remote_folder import open_folder
from lstr.pipelines.features.resume import together

RECORD_BYTES = 2048
FLOAT_BYTES = 4
CORES = 4  # per process, whose threads share one lock of Python; chosen so that two cores, where a second process was
# measured to gain nothing, get one, and not measured on more
MEMORY = 2 * 2**30  # bytes per process; 1.2 were measured
MEMORY_INFO = Path("/proc/meminfo")
MEMORY_LIMIT = Path("/sys/fs/cgroup/memory.max")  # of a container


@dataclass(frozen=True)
class Machine:
    """What can be shared out."""

    cores: int
    gpus: int = 0
    memory: int = 2**63
    """Bytes that are free."""


@dataclass(frozen=True)
class Share:
    """How many processes, and how many threads each; a single process is the job's own, which starts no other."""

    processes: int
    threads: int

    def __str__(self) -> str:
        processes = f"{self.processes} processes × " if self.processes > 1 else ""
        return f"{processes}{self.threads} thread{'s' if self.threads > 1 else ''}"


@dataclass(frozen=True)
class PlannedVideo:
    """One video: `done`, `to do` or `unreadable`, its seconds and chunks, and why it failed before, if it did."""

    id: str
    source: Place
    state: str
    seconds: float = 0.0
    chunks: int = 0
    reason: str = ""
    failed_before: str = ""


@dataclass(frozen=True)
class Plan:
    """All videos of a job, and what the rest of it costs."""

    output: Place
    videos: tuple[PlannedVideo, ...]
    row_bytes: int
    """Bytes of both streams' features, per chunk."""
    rate: float | None
    """Seconds of one core that a chunk took in the videos that are done; None before the first one."""
    share: Share

    def of(self, state: str) -> list[PlannedVideo]:
        """The videos in a state."""
        return [video for video in self.videos if video.state == state]

    @property
    def chunks(self) -> int:
        """To do."""
        return sum(video.chunks for video in self.of("to do"))

    @property
    def seconds(self) -> float | None:
        """How long the job will take, about; None where that is not known."""
        if self.rate is None:
            return None
        return self.chunks * self.rate / (self.share.processes * self.share.threads)

    @property
    def bytes(self) -> int:
        """How much disk it will take, about."""
        return self.chunks * self.row_bytes + len(self.of("to do")) * RECORD_BYTES

    @cached_property
    def free_bytes(self) -> int | None:
        """On the disk of the output; None where it is elsewhere."""
        if isinstance(self.output, RemoteFile):
            return None
        return shutil.disk_usage(next(p for p in (self.output, *self.output.absolute().parents) if p.exists())).free

    def longest_first(self) -> dict[str, Place]:
        """{id: source} of all, so that at the end no process is left alone with a long video."""
        return {video.id: video.source for video in sorted(self.videos, key=lambda video: -video.chunks)}

    def to_dict(self) -> dict[str, Any]:
        """The plan as a JSON object; hours are of video, and what failed before is of the videos that are not done."""
        return {
            "output": str(self.output),
            "files": len(self.videos),
            "hours": sum(video.seconds for video in self.videos) / 3600,
            "done": len(self.of("done")),
            "to_do": len(self.of("to do")),
            "unreadable": len(self.of("unreadable")),
            "failed_before": sum(bool(video.failed_before) for video in self.videos if video.state != "done"),
            "hours_to_do": sum(video.seconds for video in self.of("to do")) / 3600,
            "chunks_to_do": self.chunks,
            "seconds": self.seconds,
            "bytes": self.bytes,
            "free_bytes": self.free_bytes,
            "processes": self.share.processes,
            "threads": self.share.threads,
            "videos": [{**asdict(video), "source": str(video.source)} for video in self.videos],
        }


def make_plan(
    videos: Mapping[str, Place],
    output: Place,
    recipe: Preset | StoredRecipe,
    device: str,
    sharing: Callable[[int], Share],
) -> Plan:
    """Look at every video and at what is done of it; of those to do the packets are read, elsewhere the header.

    `sharing` gives the share of processes and threads for a number of videos. The time is by the videos that are done
    on a device of this kind.
    """
    folder = open_folder(output)
    begun = folder.recipe if folder else None
    failures = {failure["id"]: failure["reason"] for failure in read_failures(output)} if folder else {}

    def look(video: tuple[str, Place]) -> tuple[PlannedVideo, dict[str, Any]]:
        video_id, source = video
        before = failures.get(video_id, "")
        record = folder.read_record(video_id) if folder and folder.is_done(video_id, source) else None
        if record:
            return PlannedVideo(video_id, source, "done", record["duration"], record["chunks"]), record
        if isinstance(source, RemoteFile):
            seconds = announced_seconds(source)
            return PlannedVideo(
                video_id, source, "to do", seconds, int(seconds / CHUNK_SECONDS), failed_before=before
            ), {}
        try:
            with PROBE:
                probed = probe(source)
        except Exception as error:
            reason = failure_of(error, source).reason
            return PlannedVideo(video_id, source, "unreadable", reason=reason, failed_before=before), {}
        return PlannedVideo(video_id, source, "to do", probed.duration, probed.n_chunks, failed_before=before), {}

    seen = [found for _, found in together(look, videos.items())]
    made_by = begun or (recipe.recipe if isinstance(recipe, StoredRecipe) else recipe)
    rate = measured_rate([record for _, record in seen], device)
    looked_at = tuple(planned for planned, _ in seen)
    n_left = sum(planned.state != "done" for planned in looked_at)
    return Plan(output, looked_at, row_bytes(made_by), rate, sharing(n_left))


def measured_rate(records: Sequence[Mapping[str, Any]], device: str) -> float | None:
    """Seconds of one core that a chunk took in some records' videos; None if none was made on this kind of device."""
    timed = [record for record in records if "threads" in record and record["device"] == device]
    chunks = sum(record["chunks"] for record in timed)
    return sum(record["seconds"]["total"] * record["threads"] for record in timed) / chunks if chunks else None


def widths_of(recipe: Preset | Recipe) -> dict[str, int]:
    """Features of a chunk by stream; of networks whose width is not known before they are built, ResNet-50's."""
    return {
        stream: getattr(part, "dim", None) or (known_network(part.network) or RESNET50).width
        for stream, part in recipe.parts.items()
    }


def cost_of(network: str) -> Cost:
    """What a network costs; one whose cost is not known before it is built, what ResNet-50 does."""
    return (known_network(network) or RESNET50).cost


def row_bytes(recipe: Preset | Recipe) -> int:
    """Bytes of one chunk's features."""
    return FLOAT_BYTES * sum(widths_of(recipe).values())


def this_machine(device: str) -> Machine:
    """The cores this process may use, the memory that is free, and the GPUs: all for `cuda`, and one for `cuda:N`."""
    gpus = torch.cuda.device_count() if device == "cuda" else int(device != "cpu")
    return Machine(default_workers(), gpus, free_memory())


def share(machine: Machine, n_videos: int, processes: int | None = None, threads: int | None = None) -> Share:
    """How to share a machine out for so many videos; `processes` and `threads` are those requested.

    One process per GPU: those of several would take turns on it. Never more than videos or cores, or than fit into
    memory.
    """
    if processes is None:
        processes = machine.gpus or max(1, machine.cores // (threads or CORES))
        processes = min(processes, machine.cores, max(1, machine.memory // MEMORY))
    processes = max(1, min(processes, n_videos))
    return Share(processes, threads or max(1, machine.cores // processes))


def free_memory() -> int:
    """Bytes of memory that are free here, or that the container may have."""
    free = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # all of it, where nothing says what is free
    if MEMORY_INFO.exists():
        lines = dict(line.split(":") for line in MEMORY_INFO.read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    with suppress(OSError, ValueError):  # without a limit the file says "max", or is missing
        free = min(free, int(MEMORY_LIMIT.read_text()))
    return free

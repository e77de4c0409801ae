"""Worker processes and threads for a machine: as many as it feeds, and no more than it has cores."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from lstr.extractors.flow.workers import default_workers

CORES = 4  # per process, whose threads share one lock of Python; chosen so that two cores, where a second process was
# measured to gain nothing, get one, and not measured on more
MEMORY = 2 * 2**30  # bytes per process; 1.2 were measured
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


def this_machine(device: str) -> Machine:
    """The cores this process may use, the memory that is free, and the GPUs where `device` is one."""
    return Machine(default_workers(), torch.cuda.device_count() if device.startswith("cuda") else 0, free_memory())


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
    free = 2**63
    if Path("/proc/meminfo").exists():
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = int(lines["MemAvailable"].split()[0]) * 1024
    with suppress(OSError, ValueError):  # without a limit the file says "max", or is missing
        free = min(free, int(MEMORY_LIMIT.read_text()))
    return free

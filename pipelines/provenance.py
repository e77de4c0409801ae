"""Provenance of results: versions, source revision, machine, command, memory."""

import os
import platform
import resource
import subprocess
import sys
from datetime import date
from pathlib import Path

import torch

from lstr.checkpoint import library_versions
from lstr.extractors.devices import about_processor

SOURCE = Path(__file__).resolve().parents[1]
STATUS = Path("/proc/self/status")


def about_machine(**versions: str) -> dict:
    """Return the machine, the time and the versions of libraries for a record; `versions` adds other libraries."""
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        **about_processor(),
        "platform": platform.platform(),
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "versions": library_versions() | versions,
        "date": date.today().isoformat(),
    }


def provenance(device: str, processes: int) -> dict:
    """Return everything that a result may depend on in addition to settings and data."""
    return {
        **about_machine(),
        "git": git_revision(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu",
        "threads": torch.get_num_threads(),
        "processes": processes,
        "command": sys.argv,
    }


def git_revision() -> dict | None:
    """Return the git revision of the sources, and whether there are local changes; None outside a checkout."""
    if not (SOURCE / ".git").exists():
        return None
    git = ["git", "--no-optional-locks"]  # if git is killed, a remaining lock would block the user's git commands
    try:
        revision, changed = (
            subprocess.run([*git, *words], cwd=SOURCE, capture_output=True, text=True, check=True, timeout=20).stdout
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {"revision": revision.strip(), "changed": bool(changed.strip())}


def peak_memory_mb(status: Path = STATUS) -> float:
    """Return the peak memory of this process, or of the process of a /proc/PID/status file, in MB (10^6 bytes)."""
    if status.exists():
        # Not `ru_maxrss`, which includes the memory of the parent process before exec.
        (kilobytes,) = (line.split()[1] for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(kilobytes) * 1024 / 1e6
    unit = 1 if sys.platform == "darwin" else 1024  # bytes per unit of ru_maxrss
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6

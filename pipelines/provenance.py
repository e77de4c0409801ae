"""What made a run: versions, source revision, machine, command."""

import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import torch

from lstr import __version__

SOURCE = Path(__file__).resolve().parents[1]


def provenance(device: str, processes: int) -> dict:
    """Everything besides settings and data that a result may hang on."""
    return {
        "versions": {
            "lstr": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "git": git_revision(),
        "machine": platform.platform(),
        "device": torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu",
        "threads": torch.get_num_threads(),
        "processes": processes,
        "command": sys.argv,
    }


def git_revision(source: Path = SOURCE) -> dict | None:
    """Revision of the sources and whether files differ from it; None outside a checkout of their own."""
    if not (source / ".git").exists():
        return None
    try:
        revision, changed = (
            subprocess.run(["git", *words], cwd=source, capture_output=True, text=True, check=True, timeout=20).stdout
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return {"revision": revision.strip(), "changed": bool(changed.strip())}


def make_reproducible() -> None:
    """Settings of cuBLAS that have to be there before the first CUDA call of a deterministic run."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def about_machine() -> dict:
    """What every record says of where and when it was made."""
    return {
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "instruction_set": torch.backends.cpu.get_cpu_capability(),
        "versions": {
            "lstr": __version__,
            "python": platform.python_version(),
            "torch": torch.__version__,
            "numpy": np.__version__,
        },
        "date": date.today().isoformat(),
    }

"""A wheel of this repository, which several files install."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import write_once

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(folder: Path, **environment: str) -> Path:
    """A wheel of the sources that are distributed of what is committed; of the files as they are without git."""
    command = ["git", "clone", "--quiet", ROOT, folder / "source"]
    if not (ROOT / ".git").exists() or subprocess.run(command, capture_output=True).returncode:
        ignored = shutil.ignore_patterns(".*", "*.so", "build", "demo", "*.egg-info", "__pycache__")
        shutil.copytree(ROOT, folder / "source", ignore=ignored, symlinks=True)
    code = f"from setuptools.build_meta import build_sdist; build_sdist({str(folder)!r})"
    subprocess.run([sys.executable, "-c", code], cwd=folder / "source", check=True, capture_output=True)
    (sources,) = folder.glob("*.tar.gz")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", folder, sources]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | environment)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def wheel(base) -> Path:
    """One wheel for all processes."""
    return write_once(base / "wheel", build_wheel)

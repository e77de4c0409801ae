"""What an installation ships, with a compiler and without one."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
pytestmark = pytest.mark.slow


def build_wheel(tmp_path: Path, **environment: str) -> set[str]:
    """Names in a wheel built from a copy of the sources."""
    ignored = shutil.ignore_patterns(".*", "*.so", "build", "demo", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, tmp_path / "source", ignore=ignored)
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", tmp_path, tmp_path / "source"]
    subprocess.run(command, check=True, capture_output=True, env=os.environ | environment)
    return set(zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist())


def test_a_wheel_holds_code_and_data_and_no_tests(tmp_path):
    names = build_wheel(tmp_path)
    assert {
        "pipelines/reports/web/report.html",
        "checkpoints/manifest.json",
        "lstr_cli/main.py",
        "extractors/flow/tvl1.py",
    } <= names
    assert not [n for n in names if n.startswith(("tests", "benchmarks"))]


def test_an_installation_without_a_compiler_succeeds(tmp_path):
    names = build_wheel(tmp_path, CC="no-such-compiler")
    assert "extractors/flow/tvl1.py" in names and not [n for n in names if n.endswith(".so")]

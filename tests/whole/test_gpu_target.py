"""`make test-gpu`: it collects where the test extras are missing, and is no success without a GPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).resolve().parents[2]
EXTRAS = (
    "ray onnxruntime onnx s3fs moto flask flask_cors xdist hypothesis playwright ruff mypy pympi webvtt "
    "jsonschema fontTools pyte"
).split()
BLOCK = f"""
from functools import partial
from importlib.machinery import PathFinder

def without_extras(find, name, *where):
    return None if name.split(".")[0] in {EXTRAS} else find(name, *where)

PathFinder.find_spec = partial(without_extras, PathFinder.find_spec)  # which pytest binds to nothing, as a function
"""


def make(*words: str, **env: str) -> subprocess.CompletedProcess:
    command = ["make", "test-gpu", *words]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, "PYTEST_ADDOPTS": "", **env}
    )


@pytest.mark.slow
def test_without_the_test_extras_every_gpu_test_is_collected(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(BLOCK)
    pytest_here = f"{sys.executable} -m pytest --collect-only"
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    made = make(f"PYTEST_GPU={pytest_here}", "LSTR_NEEDS_GPU=", PYTHONPATH=path, PYTEST_DISABLE_PLUGIN_AUTOLOAD="1")
    marked = {str(file.relative_to(ROOT)) for file in ROOT.glob("tests/**/test_*.py") if "mark.gpu" in file.read_text()}
    marked.remove(str(Path(__file__).relative_to(ROOT)))
    assert made.returncode == 0 and "error" not in made.stdout.lower(), made.stdout + made.stderr
    assert {line.partition(":")[0] for line in made.stdout.splitlines() if line.startswith("tests/")} == marked


@pytest.mark.skipif(torch.cuda.is_available(), reason="here is a GPU")
@pytest.mark.slow
def test_without_a_gpu_it_fails_with_a_sentence():
    made = make(f"PYTEST_GPU={sys.executable} -m pytest")
    assert made.returncode == 2 and "torch finds no GPU here" in made.stderr and "lstr doctor" in made.stderr

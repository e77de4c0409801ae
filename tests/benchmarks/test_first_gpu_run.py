"""The first run on a GPU: everything that it names exists, without a GPU too."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lstr_cli.main import cli
from tests.support.benchmarks import benchmark

ROOT = Path(__file__).resolve().parents[2]
first_gpu_run = benchmark("first_gpu_run")


@pytest.mark.parametrize("dry", [False, True])
def test_the_commands_of_its_steps_can_be_given(tmp_path, dry, monkeypatch):
    """Those on a GPU too, which a dry run does not give."""
    (tmp_path / "labels.json").touch()
    monkeypatch.setattr(first_gpu_run, "LABELS", tmp_path / "labels.json")
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "scene_00.mp4").touch()
    (tmp_path / "drawn").mkdir()
    parsed = 0
    for limit, command in first_gpu_run.commands(tmp_path, dry).values():
        words = list(map(str, command))
        assert limit > 0 and all(Path(word).is_file() for word in words if word.endswith(".py")), shlex.join(words)
        if "lstr_cli.main" in words:
            first, *rest = words[words.index("lstr_cli.main") + 1 :]
            cli.get_command(None, first).make_context(first, rest)
            parsed += 1
    assert parsed == (4 if dry else 8)


@pytest.mark.slow
def test_a_dry_run_measures_every_step(tmp_path):
    command = ["make", "gpu-run", f"GPU_PYTHON={sys.executable}", f"GPU_RUN=--dry-run -o {tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    results = json.loads((tmp_path / "results.json").read_text())
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert results.keys() == first_gpu_run.commands(tmp_path, True).keys()
    assert results["flow"]["record"]["native, 1 threads"] > 0 and results["networks"]["record"]

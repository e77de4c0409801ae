"""Scripts of benchmarks/: every row exists and means what it is called. How fast the machine is does not matter."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from lstr.kinds import KINDS
from lstr.pipelines.progress import Finished, Progress
from tests.support.benchmarks import benchmark
from tests.support.documents import parse
from tests.support.tiny_models import TINY

bench = benchmark("models")


def shapes(kinds):
    """Small sizes of kinds, each with what else its published size sets."""
    own = {"mat": {"groups": 2}}
    return tuple((kind, KINDS[kind].published_size.replace(**TINY, **own.get(kind, {}))) for kind in kinds)


@pytest.fixture(autouse=True)
def one_round(monkeypatch):
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "CHUNKS", 60)
    monkeypatch.setattr(bench, "CORES", (1,))


@pytest.mark.parametrize("kinds", [("rnn",), pytest.param(tuple(KINDS), marks=pytest.mark.slow)])
def test_every_kind_has_a_row(kinds):
    events = list(bench.bench_kinds(bench.KindsBench(kinds, seconds=0.001, shapes=shapes(["lstr", *kinds]))))
    assert isinstance(events[-1], Finished)
    record = json.loads(json.dumps(events[-1].result))
    assert tuple(record["kinds"]) == kinds
    for row in record["kinds"].values():
        assert row["parameters"] > 0 and row["multiply_adds"] > 0 and row["stream"]
        for speed in row["stream"].values():
            assert speed["steps_per_second"] > 0 and speed["processor_ms"] >= 0 and speed["ratio_to_lstr"] > 0
    steps = [event for event in events if isinstance(event, Progress)]
    assert steps[-1].done == steps[-1].total
    assert torch.get_num_threads() == 1, "as tests/conftest.py sets it"


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
            parse(words[words.index("lstr_cli.main") + 1 :])
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

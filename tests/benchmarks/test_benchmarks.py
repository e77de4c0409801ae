"""Scripts of benchmarks/: all rows are measured, and all commands exist. Speeds are not compared."""

import json
import shlex
import sys
from pathlib import Path

import first_gpu_run
import models as bench
import pytest
import torch

from lstr.kinds import KINDS
from lstr.pipelines.progress import Finished, Progress
from tests.support.documents import ROOT, parse
from tests.support.processes import run_process
from tests.support.tiny_models import TINY


@pytest.mark.parametrize("kinds", [("rnn",), pytest.param(tuple(KINDS), marks=pytest.mark.slow)])
def test_every_kind_of_model_is_measured(kinds, monkeypatch):
    for name, value in {"ROUNDS": 1, "CHUNKS": 60, "CORES": (1,)}.items():
        monkeypatch.setattr(bench, name, value)
    sizes = {kind: KINDS[kind].published_size.replace(**TINY) for kind in ("lstr", *kinds)}
    if "mat" in sizes:
        sizes["mat"] = sizes["mat"].replace(groups=2)
    events = list(bench.bench_kinds(bench.KindsBench(kinds, seconds=0.001, shapes=tuple(sizes.items()))))
    assert isinstance(events[-1], Finished)
    record = json.loads(json.dumps(events[-1].result))
    assert tuple(record["kinds"]) == kinds
    for row in record["kinds"].values():
        assert row["parameters"] > 0 and row["multiply_adds"] > 0 and row["stream"]
        for speed in row["stream"].values():
            assert speed["steps_per_second"] > 0 and speed["processor_ms"] >= 0 and speed["ratio_to_lstr"] > 0
    steps = [event for event in events if isinstance(event, Progress)]
    assert steps[-1].done == steps[-1].total
    assert torch.get_num_threads() == 1, "the value of tests/conftest.py is restored"


@pytest.mark.parametrize("dry", [False, True])
def test_commands_of_the_gpu_run_parse(tmp_path, dry, monkeypatch):
    monkeypatch.setattr(first_gpu_run, "LABELS", tmp_path / "labels.json")
    for folder in ("videos", "drawn"):
        (tmp_path / folder).mkdir()
    for file in ("labels.json", "videos/scene_00.mp4"):
        (tmp_path / file).touch()
    parsed = 0
    for limit, command in first_gpu_run.commands(tmp_path, dry).values():
        words = list(map(str, command))
        assert limit > 0 and all(Path(word).is_file() for word in words if word.endswith(".py")), shlex.join(words)
        if "lstr_cli" in words:
            parse(words[words.index("lstr_cli") + 1 :])
            parsed += 1
    assert parsed == (4 if dry else 8)


@pytest.mark.slow
def test_a_dry_gpu_run_measures_every_step(tmp_path):
    command = ["make", "gpu-run", f"GPU_PYTHON={sys.executable}", f"GPU_RUN=--dry-run -o {tmp_path}"]
    code, out, err = run_process(*command, cwd=ROOT)
    assert code == 0, out[-6000:] + err[-2000:]
    results = json.loads((tmp_path / "results.json").read_text())
    assert results.keys() == first_gpu_run.commands(tmp_path, True).keys()
    assert results["flow"]["record"]["native, 1 threads"] > 0 and results["networks"]["record"]

"""Scripts of benchmarks/: all rows are measured, all commands exist, and equal results of two commits are equal."""

import json
import shlex
import sys
from pathlib import Path

import equality
import equality_kinds
import first_gpu_run
import models as bench
import pytest
import torch

from lstr.kinds import KINDS, presets
from lstr.pipelines.progress import Finished, Progress
from tests.support.documents import ROOT, parse
from tests.support.processes import run_process
from tests.support.tiny_models import TINY


@pytest.mark.parametrize("kinds", [("rnn",), pytest.param(tuple(KINDS), marks=pytest.mark.slow)])
def test_every_kind_of_model_is_measured(kinds, monkeypatch):
    for name, value in {"ROUNDS": 1, "CHUNKS": 60, "CORES": (1,)}.items():
        monkeypatch.setattr(bench, name, value)
    own = {"mat": {"groups": 2}}  # its published groups are more than the slots of a tiny memory
    sizes = {kind: KINDS[kind].published_size.replace(**TINY, **own.get(kind, {})) for kind in ("lstr", *kinds)}
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


def test_every_kind_of_model_is_compared():
    known = presets() | {"small": presets()["rnn-small"]}  # its earlier name, which both commits accept
    compared = equality_kinds.PRESETS.items()
    assert {settings.get("model.kind", known[name].model.kind) for name, settings in compared} == set(KINDS)


def test_jobs_without_results_are_reported(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("open('a.txt', 'w').close()\nraise SystemExit('error: no')")
    items, reason = equality.run(equality.Job("a job", f"python {script}", "*.txt"), ROOT, tmp_path)
    assert list(items) == ["a job"] and "error: no" in reason
    items, reason = equality.run(equality.Job("a job", "python -c pass", "*.npy"), ROOT, tmp_path)
    assert items == {} and "*.npy" in reason


@pytest.mark.parametrize(
    "changes, code, expected",
    [
        ({}, 0, {"features": "equal", "evaluate": "equal"}),
        ({"about": {"torch": "2.16.0"}}, 0, {"torch": "note:"}),
        ({"failed": {"learn": "exit code 1"}}, 1, {"learn": "failed", "features": "equal"}),
        ({"items": {"features": {"a": "9"}, "evaluate": {"": "3"}}}, 1, {"features": "differs", "evaluate": "equal"}),
        ({"items": {"learn": {"": "5"}}}, 1, {"features": "differs", "evaluate": "differs", "learn": "differs"}),
    ],
    ids=str,
)
def test_compare_reports_each_item(tmp_path, capsys, changes, code, expected):
    plain = {"about": {"torch": "2.15.0"}, "failed": {}, "items": {"features": {"a": "1"}, "evaluate": {"": "3"}}}
    for name, record in (("before", plain), ("after", {**plain, **changes})):
        record = {"format": "lstr-equality/1", "commit": name, **record}
        (tmp_path / f"{name}.json").write_text(json.dumps(record))
    assert equality.main(["compare", str(tmp_path / "before.json"), str(tmp_path / "after.json")]) == code
    lines = [line.split() for line in capsys.readouterr().out.splitlines()[1:]]
    assert expected.items() <= {words[1].rstrip(":,"): words[0] for words in lines}.items()

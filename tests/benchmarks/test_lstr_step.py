"""The benchmark's record: every row exists and means what it is called. How fast the machine is does not matter."""

from __future__ import annotations

import json
import math
from dataclasses import fields, replace

import pytest
import torch

from lstr import streaming
from lstr.checkpoints import checkpoint
from lstr.errors import CheckpointError
from lstr.kinds import KINDS, configure, make_model
from lstr.models.lstr.config import ENCODERS, LSTRConfig
from lstr.pipelines.progress import Finished, Progress, result_of
from lstr.plans.long import Compressed
from lstr.plans.plan import needed
from tests.support.benchmarks import benchmark

bench = benchmark("lstr_step")

TINY = configure(
    rgb_dim=6, flow_dim=4, d_model=16, n_heads=2, d_feedforward=16, work_length=4, long_length=32, n0=3, n1=4
)
SECONDS = 0.01
HEADLINE = ("recompute", "stream", "stream_sliding", "batched_16")
SPEED = {"steps_per_second", "mean_ms", "p50_ms", "p95_ms", "ratio"}


@pytest.fixture(scope="module", autouse=True)
def short_runs():
    """Two turns a row: enough for the arithmetic."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ROUNDS", "FEW_ROUNDS"):
            patch.setattr(bench, name, 2)
        yield


@pytest.fixture(scope="module")
def events() -> list[Progress | Finished]:
    """What the record's run tells."""
    return []


@pytest.fixture(scope="module")
def record(events) -> dict:
    return result_of(bench.bench_lstr(bench.ModelBench(TINY, 5, SECONDS, threads=2)), events.append)


def check(record: dict, threads: int) -> None:
    """Every row of the documented record, each with positive finite numbers."""
    assert {"machine", "versions", "date", "threads", "device", "config", *HEADLINE} <= record.keys()
    assert record["device"] == "cpu" and record["threads"] == threads
    numbers = []
    for name in HEADLINE:
        assert record[name].keys() >= SPEED
        assert record[name]["p50_ms"] <= record[name]["p95_ms"]
        numbers += record[name].values()
    assert record["recompute"]["ratio"] == 1
    assert {"update_ms", "other_ms"} <= record["stream"].keys()
    assert {"singles_steps_per_second", "ratio_to_singles"} <= record["batched_16"].keys()
    for row in record["memory_length"].values():
        assert row.keys() == {"update_ms", "other_ms", "steps_per_second", "bytes_a_stream"}
        numbers += row.values()
    designs = record["designs"]
    assert {*ENCODERS, "average", "concatenation", *KINDS} - {"lstr"} <= designs.keys()
    for name, row in designs.items():
        assert {"parameters", "steps_per_second"} <= row.keys()
        assert ("recompute_steps_per_second" in row) == (name not in {*KINDS} - {"average"})  # an encoder here
        numbers += row.values()
    assert record["paper"] == {"stream_fps": 91.6, "device": "V100"}
    assert all(number > 0 and math.isfinite(number) for number in numbers)


@pytest.mark.long
def test_record(record):
    check(record, threads=2)
    assert json.loads(json.dumps(record)) == record
    assert configure(**record["config"]) == TINY and record["classes"] == 5
    assert list(record["memory_length"]) == ["4", "8", "16", "32", "64", "128"]
    sizes = [row["bytes_a_stream"] for row in record["memory_length"].values()]
    assert sizes == sorted(set(sizes))


def test_lengths_of_the_published_size():
    assert bench._lengths(configure()) == [256, 512, 1024, 2048, 4096, 8192]


@pytest.mark.long
def test_progress_ends_at_its_total_and_threads_are_put_back(record, events):
    assert record["threads"] == 2 and torch.get_num_threads() == 1  # tests/conftest.py sets it
    assert events[-1] == Finished(record)
    steps = [event for event in events if isinstance(event, Progress)]
    assert [step.done for step in steps] == list(range(1, steps[-1].total + 1))


def as_lstr(config) -> LSTRConfig:
    """An LSTR of the same sizes, whose plan says when a long memory changes."""
    known = {field.name: getattr(config, field.name) for field in fields(LSTRConfig) if hasattr(config, field.name)}
    return LSTRConfig(**known | {"kind": "lstr"})


@pytest.mark.parametrize("name", bench.designs(TINY))
def test_a_filled_state_has_its_memory_full(name):
    """Of every design, three streams of neighbouring ages; one in four updates at each step."""
    model = make_model(bench.designs(TINY)[name], 5).eval()
    state = bench.filled(streaming.create(model, 3))
    rgb, flow = torch.randn(3, 6), torch.randn(3, 4)
    updates = []
    for _ in range(8):
        plan = needed(Compressed.of(as_lstr(model.config))(state.chunks))
        assert {"absent", "changes.hidden", "fresh"}.isdisjoint(plan)
        updates.append(len(plan.get("changes.streams", ())))
        assert torch.isfinite(streaming.step(model, state, rgb, flow)).all()
    assert updates == [1, 0, 1, 1] * 2


def test_updates_are_told_from_other_steps():
    """Steps of 5 s when the memory changes, of 1 s otherwise; a sliding grid changes it at every chunk."""
    rounds = [[5.0, 1.0, 1.0, 1.0] * 2, [5.0, 1.0, 1.0, 1.0]]
    assert bench.by_kind(rounds, TINY) == {"update_ms": 5000, "other_ms": 1000}
    assert bench.by_kind(rounds, replace(TINY, grid="sliding")) == {"update_ms": 1000, "other_ms": None}


def test_one_disturbed_round_makes_neither_speed_nor_ratio():
    slow, fast = [[2.0], [2.0], [2.0]], [[1.0, 1.0], [1.0, 99.0], [1.0, 1.0]]
    assert bench.summary(fast)["steps_per_second"] == 1 and bench.ratio(slow, fast) == 2
    assert bench.summary(fast, n_streams=16)["steps_per_second"] == 16


def test_rows_take_turns_in_whole_bursts():
    order = []
    rows = {"a": bench.Row(lambda: order.append("a"), 4), "b": bench.Row(lambda: order.append("b"))}
    taken = bench.whole(bench.interleave(rows, 1e-9, 3, "cpu"))
    assert "".join(order) == "a" * 8 + "b" * 2 + ("a" * 4 + "b") * 3
    assert [len(times) for times in taken["a"]] == [4] * 3 and [len(times) for times in taken["b"]] == [1] * 3


@pytest.fixture(scope="module")
def tiny_checkpoint(tmp_path_factory):
    def save(config) -> str:
        path = tmp_path_factory.mktemp("tiny") / "model.pt"
        checkpoint.save(path, make_model(config, 3), ("background", "run", "jump"), None, {})
        return str(path)

    return save


@pytest.mark.long
def test_script(tiny_checkpoint, tmp_path, monkeypatch, capsys):
    path = tmp_path / "new folder" / "record.json"
    run(monkeypatch, path, "-c", tiny_checkpoint(TINY), "--seconds", SECONDS, "--threads", 1)
    record = json.loads(path.read_text())
    assert str(path) in capsys.readouterr().err
    check(record, threads=1)
    assert record["classes"] == 3 and record["config"]["d_model"] == 16
    assert [p.name for p in path.parent.iterdir()] == ["record.json"]


def run(monkeypatch, *words) -> None:
    monkeypatch.setattr("sys.argv", ["lstr_step.py", *map(str, words)])
    bench.main()


def test_mistakes():
    for shape in (configure("rnn", d_model=16), replace(TINY, long_length=0)):
        with pytest.raises(CheckpointError, match="no LSTR to measure"):
            list(bench.bench_lstr(bench.ModelBench(shape)))

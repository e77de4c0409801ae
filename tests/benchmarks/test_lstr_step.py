"""The benchmark's record: every row exists and means what it is called. How fast the machine is does not matter."""

from __future__ import annotations

import json
import math

import pytest
import torch

from lstr.kinds import KINDS, configure
from lstr.models.lstr import ENCODERS
from lstr.pipelines.progress import Finished, Progress, result_of
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


@pytest.mark.slow
def test_record(record):
    check(record, threads=2)
    assert json.loads(json.dumps(record)) == record
    assert configure(**record["config"]) == TINY and record["classes"] == 5
    assert list(record["memory_length"]) == ["4", "8", "16", "32", "64", "128"]
    sizes = [row["bytes_a_stream"] for row in record["memory_length"].values()]
    assert sizes == sorted(set(sizes))


@pytest.mark.slow
def test_progress_ends_at_its_total_and_threads_are_put_back(record, events):
    assert record["threads"] == 2 and torch.get_num_threads() == 1  # tests/conftest.py sets it
    assert events[-1] == Finished(record)
    steps = [event for event in events if isinstance(event, Progress)]
    assert [step.done for step in steps] == list(range(1, steps[-1].total + 1))

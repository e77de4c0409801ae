"""The benchmark's record: every row exists and means what it is called. How fast the machine is does not matter."""

from __future__ import annotations

import json
import math

import pytest
import torch

from lstr.kinds import KINDS, configure
from lstr.models.lstr import ENCODERS
from lstr.pipelines.progress import Finished, Progress
from tests.support.benchmarks import benchmark

bench = benchmark("lstr_step")

TINY = configure(
    rgb_dim=6, flow_dim=4, d_model=16, n_heads=2, d_feedforward=16, work_length=4, long_length=32, n0=3, n1=4
)
HEADLINE = ("recompute", "stream", "stream_sliding", "batched_16")


@pytest.mark.slow
def test_record(monkeypatch):
    """Every row of the documented record, each with positive finite numbers."""
    for name in ("ROUNDS", "FEW_ROUNDS"):
        monkeypatch.setattr(bench, name, 2)
    events = list(bench.bench_lstr(bench.ModelBench(TINY, 5, 0.01, threads=2)))
    record = events[-1].result
    assert isinstance(events[-1], Finished) and json.loads(json.dumps(record)) == record
    steps = [event for event in events if isinstance(event, Progress)]
    assert [step.done for step in steps] == list(range(1, steps[-1].total + 1))
    assert torch.get_num_threads() == 1, "as tests/conftest.py sets it"

    assert {"machine", "versions", "date", "threads", "device", "config", *HEADLINE} <= record.keys()
    assert (record["device"], record["threads"], record["classes"]) == ("cpu", 2, 5)
    assert configure(**record["config"]) == TINY
    numbers = [number for name in HEADLINE for number in record[name].values()]
    for name in HEADLINE:
        assert record[name].keys() >= {"steps_per_second", "mean_ms", "p50_ms", "p95_ms", "ratio"}
        assert record[name]["p50_ms"] <= record[name]["p95_ms"]
    assert record["recompute"]["ratio"] == 1 and {"update_ms", "other_ms"} <= record["stream"].keys()
    assert {"singles_steps_per_second", "ratio_to_singles"} <= record["batched_16"].keys()
    assert list(record["memory_length"]) == ["4", "8", "16", "32", "64", "128"]
    for row in record["memory_length"].values():
        assert row.keys() == {"update_ms", "other_ms", "steps_per_second", "bytes_a_stream"}
        numbers += row.values()
    sizes = [row["bytes_a_stream"] for row in record["memory_length"].values()]
    assert sizes == sorted(set(sizes))
    assert {*ENCODERS, "average", "concatenation", *KINDS} - {"lstr"} <= record["designs"].keys()
    for name, row in record["designs"].items():
        assert {"parameters", "steps_per_second"} <= row.keys()
        assert ("recompute_steps_per_second" in row) == (name not in {*KINDS} - {"average"})  # an encoder here
        numbers += row.values()
    assert record["paper"] == {"stream_fps": 91.6, "device": "V100"}
    assert all(number > 0 and math.isfinite(number) for number in numbers)

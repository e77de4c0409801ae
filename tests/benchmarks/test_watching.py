"""An hour of eight cameras, four of them odd, under the service: nothing grows, and each event is told once."""

import os
from argparse import Namespace

import pytest

from tests.support.benchmarks import benchmark

MINUTES = int(os.environ.get("LSTR_HOUR_MINUTES", "60"))
GROWTH = 1.05  # of memory, from the second part to the last


@pytest.mark.slow
def test_an_hour_of_odd_cameras(lstr, small_set, tmp_path):
    watching = benchmark("watching")
    assert lstr("pack", small_set.checkpoint.parent, "-o", tmp_path / "small.lstr")[0] == 0
    options = Namespace(
        model=tmp_path / "small.lstr",
        videos=sorted(small_set.videos.glob("*.mp4"))[:8],
        streams=8,
        minutes=MINUTES,
        every=max(1, MINUTES // 12),
        odd=True,
        log=tmp_path / "log",
    )
    record = watching.measure(options, tmp_path)
    parts = record["parts"]
    assert record["code"] == 0 and parts
    assert parts[-1]["memory_mb"] < GROWTH * parts[min(1, len(parts) - 1)]["memory_mb"], parts
    assert parts[-1]["files"] <= parts[0]["files"] + 8 and parts[-1]["threads"] <= parts[0]["threads"] + 8, parts
    assert record["told_new"] >= record["events"] - 8, "those that began at the very end may wait"
    assert record["told_twice"] == 0 and record["events"] > 8
    cameras = {kind: record["cameras"][name] for name, kind in record["odd"].items()}
    assert cameras["jumps"]["decided"] and cameras["resizes"]["decided"]
    if MINUTES > 5:
        assert cameras["restarts"]["reconnects"] and cameras["stalls"]["unseen"]

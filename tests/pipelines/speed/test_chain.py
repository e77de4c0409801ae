"""`lstr bench`: the whole chain's record, on a small real video."""

import json

import pytest

from lstr.pipelines.chain_speed import STAGES

CHUNKS = 10


@pytest.fixture(scope="module")
def video(small_set):
    return small_set.videos / "scene_00.mp4"


@pytest.mark.long
def test_the_record(lstr, video):
    code, out, err = lstr("bench", "--input", video, "--recipe", "smallest", "--set", f"chunks={CHUNKS}", "--json")
    assert code == 0, err
    record = json.loads(out)
    assert list(record["stages"]) == ["decode", "flow", "flow_features", "lstr"]
    stages, whole = record["stages"], record["end_to_end"]
    for name in stages:
        unit, amount = STAGES[name]
        assert stages[name]["unit"] == unit
        assert stages[name]["per_second"] == pytest.approx(amount * stages[name]["decisions_per_second"], rel=0.05)
    assert sum(stage["share"] for stage in stages.values()) == pytest.approx(1, abs=0.01)
    together = 1 / sum(1 / stage["decisions_per_second"] for stage in stages.values())
    assert whole["serial"]["decisions_per_second"] == pytest.approx(together, rel=0.02)
    overlapped = whole["overlapped"]
    assert overlapped["decisions"] == CHUNKS
    assert overlapped["realtime_factor"] == pytest.approx(overlapped["decisions_per_second"] / 4, rel=0.01)
    latency = overlapped["latency_ms"]
    assert 0 < latency["p50"] <= latency["p95"] <= latency["p99"]
    assert record["input"] == [{"name": "scene_00.mp4", "width": 96, "height": 64, "fps": 30.0}]
    assert record["paper"]["serial"] == 4.6 and record["peak_memory_mb"] > 100


def test_what_cannot_be_measured(lstr, tmp_path, sound_only, monkeypatch):
    code, _, err = lstr("bench", "--input", tmp_path / "none.mp4")
    assert code == 2 and "does not exist" in err and "hint:" in err
    code, _, err = lstr("bench", "--input", sound_only)
    assert code == 3 and "no video stream" in err
    monkeypatch.setenv("LSTR_FLOW_BACKEND", "native")
    code, _, err = lstr("bench", "--recipe", "fast", "--set", "recipe.flow_algorithm=dis")
    assert code == 1 and "no native kernel for dis" in err

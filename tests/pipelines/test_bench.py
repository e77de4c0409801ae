"""`lstr bench`: the record of a recipe, and the comparison of recipes."""

import json

import pytest

from lstr.extractors.networks.runtime import RUNTIMES, is_installed
from lstr.pipelines import bench
from tests.support.errors import assert_error

CHUNKS = 6


@pytest.fixture(scope="module")
def video(small_set):
    return small_set.videos / "scene_00.mp4"


@pytest.mark.long
def test_the_record_of_a_recipe_is_consistent(run, video):
    words = ("bench", "--input", video, "--recipe", "smallest", "--set", f"chunks={CHUNKS}", "--json")
    record = json.loads(run(*words)[0])
    assert list(record["stages"]) == ["decode", "flow", "flow_features", "lstr"]
    stages, whole = record["stages"], record["end_to_end"]
    for name in stages:
        unit, amount = bench.STAGES[name]
        assert stages[name]["unit"] == unit
        assert stages[name]["per_second"] == pytest.approx(amount * stages[name]["decisions_per_second"], rel=0.05)
    assert sum(stage["share"] for stage in stages.values()) == pytest.approx(1, abs=0.01)
    together = 1 / sum(1 / stage["decisions_per_second"] for stage in stages.values())
    assert whole["serial"]["decisions_per_second"] == pytest.approx(together, rel=0.02)
    overlapped, latency = whole["overlapped"], whole["overlapped"]["latency_ms"]
    assert overlapped["decisions"] == CHUNKS and 0 < latency["p50"] <= latency["p95"] <= latency["p99"]
    assert overlapped["realtime_factor"] == pytest.approx(overlapped["decisions_per_second"] / 4, rel=0.01)
    assert record["input"] == [{"name": "scene_00.mp4", "width": 96, "height": 64, "fps": 30.0}]
    assert record["paper"]["serial"] == 4.6 and record["peak_memory_mb"] > 100


@pytest.mark.slow
def test_every_installed_runtime_is_measured(run, video, monkeypatch):
    monkeypatch.setattr(bench, "RECIPES", {"live": "rnn-small"})
    monkeypatch.setattr(bench, "SECONDS", 0.1)
    record = json.loads(run("bench", "--input", video, "--json")[0])
    row = record["recipes"]["live"]
    assert [variant["runtime"] for variant in row["variants"]] == [name for name in RUNTIMES if is_installed(name)]
    cheapest = min(row["variants"], key=lambda variant: variant["processor_seconds_per_second"])
    assert row["best"]["runtime"] == cheapest["runtime"] and record["advice"]
    for variant in row["variants"]:
        parts = row["decode_ms"] + row["flow_ms"] + row["lstr_ms"] + variant["network_ms"]
        cost = variant["processor_seconds_per_second"]
        assert cost == pytest.approx(parts / 250, abs=2e-4)  # each part is rounded
        assert variant["real_time"] == pytest.approx(record["cores"] / cost, rel=1e-4 / cost)


def test_errors_name_the_cause(lstr, tmp_path, sound_only, monkeypatch):
    monkeypatch.setenv("LSTR_FLOW_BACKEND", "native")
    for words, code, text in (
        (("--input", tmp_path / "none.mp4"), 2, "none.mp4"),
        (("--input", sound_only), 3, "sound.mp4"),
        (("--set", "chunks=20"), 2, "--recipe"),
        (("--recipe", "fast", "--set", "recipe.flow_algorithm=dis"), 1, "dis"),
    ):
        assert_error(lstr("bench", *words), code, text)

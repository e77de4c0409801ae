"""`lstr bench` without more words: what to choose on this machine."""

import json

import pytest

from lstr.extractors import run
from lstr.extractors.networks.runtime import RUNTIMES, is_installed
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.twostream import build_twostream
from lstr.pipelines import recipe_speed as choice
from lstr.pipelines.chain_speed import first_chunks
from lstr.pipelines.recipe_speed import advice
from lstr.pipelines.scenes import SceneConfig, render_scenes
from tests.support.small_set import SMALL


@pytest.fixture(scope="module")
def scene(tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    render_scenes(folder, SceneConfig(2, 1, 12.0, 160, 120))
    return next((folder / "videos").glob("*.mp4"))


@pytest.mark.slow
def test_every_runtime_is_measured(lstr, scene, monkeypatch):
    monkeypatch.setattr(choice, "RECIPES", {"live": "rnn-small"})
    monkeypatch.setattr(choice, "SECONDS", 0.1)
    code, out, err = lstr("bench", "--input", scene, "--json")
    assert code == 0, err
    record = json.loads(out)
    row = record["recipes"]["live"]
    assert [one["runtime"] for one in row["variants"]] == [name for name in RUNTIMES if is_installed(name)]
    least = min(row["variants"], key=lambda one: one["processor_seconds_per_second"])
    assert row["best"]["runtime"] == least["runtime"] and record["advice"].startswith("For cameras learn with")
    for one in row["variants"]:
        parts = row["decode_ms"] + row["flow_ms"] + row["lstr_ms"] + one["network_ms"]
        cost = one["processor_seconds_per_second"]
        assert cost == pytest.approx(parts / 250, abs=2e-4)  # each part is rounded, which shows on a fast machine
        assert one["real_time"] == pytest.approx(record["cores"] / cost, rel=1e-4 / cost)
    assert row["best"]["latency_ms"]["p50"] > 0 and row["best"]["real_time_now"] > 0


def test_a_batch_larger_than_the_video_is_measured_on_what_there_is(small_set, monkeypatch):
    """On a GPU 64 images go through a network at a time, and fewer chunks are measured: it never ended."""
    monkeypatch.setitem(run.IMAGES, "cpu", 64)
    monkeypatch.setattr(choice, "SECONDS", 0.001)
    twostream = build_twostream(SMALL.narrowed(["rgb"]), WeightSources(), "cpu", "float32")
    chunks = list(first_chunks(small_set.videos / "scene_00.mp4", SMALL.long_side, 5))
    assert twostream.batch > len(chunks)
    assert choice._network_seconds(twostream, chunks, [None] * len(chunks)) > 0


def figures(real_time: float, cameras: int) -> dict:
    """A recipe's best variant."""
    return {"best": {"real_time": real_time, "cameras": cameras, "precision": "bf16", "runtime": "openvino"}}


def test_the_advice_names_the_recipe_nearest_to_the_published_one_that_keeps_up():
    for faithful, fast, words in (
        (1.8, 2.5, "--recipe faithful "),
        (0.8, 1.6, "--recipe fast "),
        (0.3, 0.7, "o recipe of published"),
    ):
        assert words in advice({"fast": figures(fast, 1), "faithful": figures(faithful, 0)}, 2)


def test_a_setting_of_another_measurement_is_named(lstr):
    code, _, err = lstr("bench", "--set", "chunks=20")
    assert code == 2 and "--set chunks" in err and "add --recipe" in err

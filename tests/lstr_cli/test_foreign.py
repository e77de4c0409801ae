"""The commands on features of other people: what is asked for, and what is said."""

import json

import numpy as np
import pytest

from tests.support.foreign_stores import TINY, write_set

SET = [word for name, value in {**TINY, "train.max_steps": "2"}.items() for word in ("--set", f"{name}={value}")]


@pytest.fixture
def waves(tmp_path):
    """A store at 7.5 rows a second, and its labels."""
    store, labels, _ = write_set(tmp_path, "npy", "7.5")
    return store, labels


def test_the_rate_is_asked_for_and_labels_are_checked_against_it(lstr, waves, tmp_path):
    store, labels = waves
    check = ("labels", "check", labels, store)
    for command in (("train", store, "--labels", labels, "-o", tmp_path / "run"), check):
        code, _, err = lstr(*command)
        assert code != 0 and "--set features.rate=7.5" in err.partition("hint: ")[2]
    for rate in ("7.5", "4"):
        code, out, _ = lstr(*check, "--set", f"features.rate={rate}", "--json")
        found = {finding["kind"] for finding in json.loads(out)["findings"]}
        assert code == 0 and ("another rate" in found) == (rate == "4") and ("past the end" not in found or rate == "4")


@pytest.mark.long
def test_from_features_to_a_model_file(lstr, waves, tmp_path):
    store, labels = waves
    run, model = tmp_path / "run", tmp_path / "wave.lstr"
    said = ["--set", "features.rate=7.5", "--set", "features.name=I3D"]
    code, _, err = lstr("train", store, "--labels", labels, "-o", run, *said, *SET)
    assert code == 0, err
    code, _, err = lstr("pack", run, "-o", model)
    assert code == 0, err
    code, out, err = lstr("info", model, "--json")
    assert code == 0 and json.loads(out)["store"]["rate"] == "15/2", err
    code, _, err = lstr("detect", store, "-m", model, "-o", tmp_path / "found")
    assert code == 0, err
    timeline = json.loads((tmp_path / "found" / "v4.json").read_text())
    assert timeline["clock"] == {"rate": "15/2"} and timeline["duration"] == 12.0
    assert np.load(tmp_path / "found" / "v4.scores.npy").shape == (90, 2)
    code, out, err = lstr("evaluate", model, store, "--labels", labels, "--subset", "testing", "--json")
    assert code == 0 and json.loads(out)["seconds_per_chunk"] == 2 / 15, err

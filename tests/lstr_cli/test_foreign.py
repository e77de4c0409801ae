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


def test_the_rate_is_asked_for_in_words_of_the_command(lstr, waves, tmp_path):
    store, labels = waves
    code, _, err = lstr("train", store, "--labels", labels, "-o", tmp_path / "run")
    assert code != 0 and "The rate of the features in" in err
    assert "hint: say it: --set features.rate=7.5" in err and "Traceback" not in err
    code, _, err = lstr("labels", "check", labels, store)
    assert code != 0 and "--set features.rate=7.5" in err


def test_labels_are_checked_against_features_at_their_rate(lstr, waves):
    store, labels = waves
    code, out, _ = lstr("labels", "check", labels, store, "--set", "features.rate=7.5", "--json")
    assert code == 0 and not [f for f in json.loads(out)["findings"] if f["kind"] in ("another rate", "past the end")]
    code, out, _ = lstr("labels", "check", labels, store, "--set", "features.rate=4", "--json")
    (found,) = (f for f in json.loads(out)["findings"] if f["kind"] == "another rate")
    assert "they are 7.5 a second instead of 4" in found["detail"]


@pytest.mark.long
def test_from_features_to_a_model_file(lstr, waves, tmp_path):
    store, labels = waves
    run, model = tmp_path / "run", tmp_path / "wave.lstr"
    said = ["--set", "features.rate=7.5", "--set", "features.name=I3D"]
    code, _, err = lstr("train", store, "--labels", labels, "-o", run, *said, *SET)
    assert code == 0, err
    assert "work memory of 6 chunks is 0.8 s at 7.5 a second" in err
    code, _, err = lstr("pack", run, "-o", model)
    assert code == 0, err
    code, out, err = lstr("info", model, "--json")
    assert code == 0 and json.loads(out)["store"]["rate"] == "15/2", err
    code, out, err = lstr("info", store, "--json")
    assert code == 0 and json.loads(out)["rate"] == "not stated" and json.loads(out)["chunks"] == 450, err
    code, _, err = lstr("detect", store, "-m", model, "-o", tmp_path / "found")
    assert code == 0, err
    timeline = json.loads((tmp_path / "found" / "v4.json").read_text())
    assert timeline["clock"] == {"rate": "15/2"} and timeline["duration"] == 12.0
    assert np.load(tmp_path / "found" / "v4.scores.npy").shape == (90, 2)
    words = ["evaluate", model, store, "--labels", labels, "--subset", "testing", "--json"]
    code, out, err = lstr(*words)
    assert code == 0 and json.loads(out)["seconds_per_chunk"] == 2 / 15, err
    code, _, err = lstr("export", model, "-o", tmp_path / "small.lstr")
    assert code != 0 and "trained on features from elsewhere" in err and "Traceback" not in err
    code, _, err = lstr("evaluate", model, store, "--labels", labels, "--choose-thresholds")
    assert code == 0, err

"""One table for a paper: the seeds of one training are a row of mean and deviation."""

import csv
import io
import json
import statistics

import pytest

from lstr import train
from tests.support.feature_set import TINY_SETTINGS, write_features


@pytest.fixture(scope="module")
def feature_set(tmp_path_factory):
    return write_features(tmp_path_factory.mktemp("set") / "features")


@pytest.fixture(scope="module")
def runs(feature_set, tmp_path_factory):
    """Two seeds of one training, and another training."""
    folder, paths = tmp_path_factory.mktemp("runs"), []
    for name, setting, value in (("a_seed1", "seed", "1"), ("b", "lr", "0.01"), ("a_seed2", "seed", "2")):
        settings = {**TINY_SETTINGS, "train.max_steps": "2", f"train.{setting}": value}
        given = {"preset": "lstr-small", "settings": settings, "device": "cpu"}
        paths.append(train(feature_set.features, feature_set.labels, folder / name, **given).checkpoint)
    return paths


@pytest.mark.long
def test_seeds_are_one_row(feature_set, runs, lstr):
    words = ("evaluate", *runs, feature_set.features, "--labels", feature_set.labels, "--subset", "validation")
    words += ("--set", "resamples=0")
    documents = json.loads(lstr(*words, "--json")[1])["checkpoints"]
    mAP = {one["name"]: one["lstr"]["mAP"] for one in documents}
    code, out, err = lstr(*words, "--to", "csv")
    assert code == 0, err
    one, other = csv.DictReader(io.StringIO(out))
    assert (one["checkpoint"], one["runs"], one["seeds"], other["checkpoint"]) == ("a", "2", "1 2", "b")
    both = [mAP["a_seed1"], mAP["a_seed2"]]
    assert float(one["mAP"]) == pytest.approx(statistics.fmean(both))
    assert float(one["mAP deviation"]) == pytest.approx(abs(both[0] - both[1]) / 2**0.5)
    assert float(other["mAP"]) == pytest.approx(mAP["b"]) and other["mAP deviation"] == ""
    for form in ("md", "latex"):
        assert f"{100 * statistics.fmean(both):.1f}" in lstr(*words, "--to", form)[1]


@pytest.mark.parametrize("more", [["--json"], ["--choose-thresholds"]])
def test_a_table_of_what_is_none_is_refused(more, lstr):
    code, out, err = lstr("evaluate", "a.lstr", "features", "--labels", "labels.json", "--to", "md", *more)
    assert (code, out) == (2, "") and "hint: " in err

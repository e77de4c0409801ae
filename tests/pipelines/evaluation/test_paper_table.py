"""One table of several runs: seeds of one training are a row of mean and deviation."""

import csv
import io
import json
import shutil
import statistics

import pytest
import torch

from lstr import train
from lstr.loaded_checkpoint import TENSORS
from lstr.pipelines.evaluation.paper_table import FIGURES, Row, write_rows
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
    assert f"| a | 2 | {100 * statistics.fmean(both):.1f} ± " in lstr(*words, "--to", "md")[1]
    assert r"\begin{tabular}{lrrrr}" in lstr(*words, "--to", "latex")[1]


def rows_in(out):
    return [(row["checkpoint"], row["runs"], row["mAP deviation"] != "") for row in csv.DictReader(io.StringIO(out))]


@pytest.mark.long
def test_a_run_counts_once(feature_set, runs, lstr, tmp_path):
    """A copy, or the same file again, would be a second run with a deviation of nothing."""
    first, _, second = runs
    copy = shutil.copy(first, tmp_path / "copy.pt")
    more = (feature_set.features, "--labels", feature_set.labels, "--subset", "validation", "--to", "csv")
    more += ("--set", "resamples=0")
    code, out, err = lstr("evaluate", first, copy, *more)
    assert code == 0 and rows_in(out) == [("checkpoint", "1", False)]
    assert "warning: copy is checkpoint again: the table has it once." in err
    code, out, _ = lstr("evaluate", first, copy, second, *more)
    assert code == 0 and [row[1:] for row in rows_in(out)] == [("2", True)]
    best = torch.load(first, weights_only=True)
    best[TENSORS] = {name: 2 * value if value.is_floating_point() else value for name, value in best[TENSORS].items()}
    torch.save(best, tmp_path / "best.pt")
    code, out, _ = lstr("evaluate", first, tmp_path / "best.pt", second, *more)
    assert code == 0 and [row[1:] for row in rows_in(out)] == [("2", True), ("1", False)]


@pytest.mark.parametrize("more", [["--json"], ["--choose-thresholds"]])
def test_a_table_of_what_is_none_is_refused(more, lstr):
    code, out, err = lstr("evaluate", "a.lstr", "features", "--labels", "labels.json", "--to", "md", *more)
    assert (code, out) == (2, "") and "--to makes a table" in err and "hint: " in err


def test_tables_escape_names_and_leave_out_what_is_not_known():
    rows = [
        Row("a_b|c & 50%", [0, 1], {**dict.fromkeys(FIGURES, [0.5, 0.6]), "event F1": [None, 0.5]}),
        Row("x", [None], dict.fromkeys(FIGURES, [0.123])),
    ]
    assert write_rows(rows, "md").splitlines()[2:] == [
        r"| a_b\|c & 50% | 2 | 55.0 ± 7.1 | 55.0 ± 7.1 | – |",
        "| x | 1 | 12.3 | 12.3 | 12.3 |",
    ]
    latex = write_rows(rows, "latex").splitlines()
    assert latex[4] == r"a\_b|c \& 50\% & 2 & 55.0 $\pm$ 7.1 & 55.0 $\pm$ 7.1 & -- \\"
    assert write_rows(rows, "csv").splitlines()[1].startswith("a_b|c & 50%,2,0 1,0.55,0.07")

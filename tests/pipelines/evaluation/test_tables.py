"""Tables of an evaluation: for the page, as CSV, and for a paper."""

import csv
import json
import statistics

import pytest

from lstr import train
from lstr.pipelines.evaluation.analysis import analyse, resample
from lstr.pipelines.evaluation.tables import class_tables, csv_rows, csv_text
from tests.support.browser import HOSTILE
from tests.support.feature_set import TINY_SETTINGS
from tests.support.scored import make_evaluation


def test_the_csv_and_the_page_have_every_class():
    """Of three videos with a detected kick in each of two, one missed action, and false alarms."""
    entry = make_evaluation()
    entry.document.update(analyse(entry, resample(entry, 50)))
    rows = list(csv.DictReader(csv_text(csv_rows([entry, make_evaluation(name="other")])).splitlines()))
    assert [(row["checkpoint"], row["class"]) for row in rows[2::3]] == [("run", "together"), ("other", "together")]
    for _, columns, lines in class_tables(entry.document):
        assert {len(line) for line in lines} == {len(columns)} and [line[0] for line in lines[:-1]] == ["kick", HOSTILE]
    together = rows[2]
    assert float(together["instances_mAP_0.5"]) == float(together["instances_mean"]) == 0.25
    assert float(together["instances_interval_mean_low"]) == entry.document["instances"]["interval"]["mean"][0]
    assert float(rows[0]["segments_F1_0.5"]) == pytest.approx(2 / 3) and rows[0]["segments_edit"]
    assert {f"starts_AP_{offset}" for offset in range(1, 11)} <= rows[0].keys()
    assert rows[5]["instances_interval_mean_low"] == ""


@pytest.mark.long
def test_runs_with_different_seeds_are_one_row_of_a_paper_table(feature_set, tmp_path, lstr):
    paths = []
    for name, setting in (("a_seed1", {"seed": "1"}), ("b", {"lr": "0.01"}), ("a_seed2", {"seed": "2"})):
        settings = TINY_SETTINGS | {f"train.{key}": value for key, value in {"max_steps": "2", **setting}.items()}
        where = (feature_set.features, feature_set.labels, tmp_path / name)
        paths.append(train(*where, preset="lstr-small", settings=settings, device="cpu").checkpoint)
    words = ("evaluate", *paths, feature_set.features, "--labels", feature_set.labels, "--subset", "validation")
    words += ("--set", "resamples=0")
    documents = json.loads(lstr(*words, "--json")[1])["checkpoints"]
    mAP = {document["name"]: document["lstr"]["mAP"] for document in documents}
    code, out, err = lstr(*words, "--to", "csv")
    assert code == 0, err
    seeds, single = csv.DictReader(out.splitlines())
    assert (seeds["checkpoint"], seeds["runs"], seeds["seeds"], single["checkpoint"]) == ("a", "2", "1 2", "b")
    values = [mAP["a_seed1"], mAP["a_seed2"]]
    assert float(seeds["mAP"]) == pytest.approx(statistics.fmean(values))
    assert float(seeds["mAP deviation"]) == pytest.approx(abs(values[0] - values[1]) / 2**0.5)
    assert float(single["mAP"]) == pytest.approx(mAP["b"]) and single["mAP deviation"] == ""
    for form in ("md", "latex"):
        assert f"{100 * statistics.fmean(values):.1f}" in lstr(*words, "--to", form)[1]


@pytest.mark.parametrize("option", ["--json", "--choose-thresholds"])
def test_a_paper_table_of_other_output_is_refused(option, lstr):
    code, out, err = lstr("evaluate", "a.lstr", "features", "--labels", "labels.json", "--to", "md", option)
    assert (code, out) == (2, "") and "hint: " in err

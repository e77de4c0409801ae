"""Instances, starts and segments as rows: for the page and the CSV."""

import csv

import pytest

from lstr.pipelines.evaluation.analysis import analyse, resample
from lstr.pipelines.evaluation.scoring import Evaluation
from lstr.pipelines.evaluation.tables import class_tables, csv_rows, csv_text
from tests.support.browser import HOSTILE
from tests.support.scored import make_evaluation


@pytest.fixture(scope="module")
def entry() -> Evaluation:
    """Three videos with one found kick each of two, and everything else wrong; with intervals."""
    made = make_evaluation()
    made.document.update(analyse(made, resample(made, 50)))
    return made


def test_the_csv_and_the_page_have_every_figure(entry):
    rows = list(csv.DictReader(csv_text(csv_rows([entry, make_evaluation(name="other")])).splitlines()))
    assert [(row["checkpoint"], row["class"]) for row in rows[2::3]] == [("run", "together"), ("other", "together")]
    for _, columns, of_page in class_tables(entry.document):
        assert all(len(row) == len(columns) for row in of_page) and [row[0] for row in of_page[:-1]] == [
            "kick",
            HOSTILE,
        ]
    together = rows[2]
    assert float(together["instances_mAP_0.5"]) == float(together["instances_mean"]) == 0.25
    assert float(together["instances_interval_mean_low"]) == entry.document["instances"]["interval"]["mean"][0]
    assert float(rows[0]["segments_F1_0.5"]) == pytest.approx(2 / 3) and rows[0]["segments_edit"]
    assert {f"starts_AP_{offset}" for offset in range(1, 11)} <= rows[0].keys()
    assert rows[5]["instances_interval_mean_low"] == ""

"""Instances, starts and segments as rows: for the page and the CSV."""

import csv

import pytest

from lstr.metrics.intervals import interval
from lstr.pipelines.evaluation.analysis import analyse, compare, resample
from lstr.pipelines.evaluation.scoring import Evaluation
from lstr.pipelines.evaluation.tables import class_tables, csv_rows, csv_text
from tests.support.browser import HOSTILE
from tests.support.scored import judged


@pytest.fixture(scope="module")
def entry() -> Evaluation:
    """Three videos with one found kick each of two, and everything else wrong; with intervals."""
    made = judged()
    made.document.update(analyse(made, resample(made, 50)))
    return made


def test_the_document_has_each_class_with_intervals(entry):
    document = entry.document
    kick = document["instances"]["per_class"]["kick"]
    assert (kick["labels"], kick["said"], kick["AP"]) == (2, 4, [0.5] * 5)  # all told with the same score
    assert document["instances"]["per_class"][HOSTILE]["mean"] == 0.0
    assert document["instances"]["mAP"] == [0.25] * 5 and document["instances"]["mean"] == 0.25
    low, high = document["instances"]["interval"]["mean"]
    assert low <= 0.25 <= high
    assert document["starts"]["per_class"]["kick"]["starts"] == 2 and len(document["starts"]["interval"]["mAP"]) == 10
    assert document["segments"]["per_class"]["kick"]["F1"] == [2 * 2 / (2 + 4)] * 3
    assert document["events"]["together"]["edges"]["0.5"]["recall"] == 2 / 3


def test_the_page_has_a_row_for_each_class(entry):
    tables = class_tables(entry.document)
    assert len(tables) == 5 and all(len(row) == len(columns) for _, columns, rows in tables for row in rows)
    for _, _, rows in tables:
        assert [row[0] for row in rows[:-1]] == ["kick", HOSTILE]


def test_the_csv_has_every_figure(entry):
    rows = list(csv.DictReader(csv_text(csv_rows([entry, judged(name="other")])).splitlines()))
    assert [(row["checkpoint"], row["class"]) for row in rows[2::3]] == [("run", "together"), ("other", "together")]
    together = rows[2]
    assert float(together["instances_mAP_0.5"]) == float(together["instances_mean"]) == 0.25
    assert float(together["instances_interval_mean_low"]) == entry.document["instances"]["interval"]["mean"][0]
    assert float(rows[0]["segments_F1_0.5"]) == pytest.approx(2 / 3) and rows[0]["segments_edit"]
    assert {f"starts_AP_{offset}" for offset in range(1, 11)} <= rows[0].keys()
    assert rows[5]["instances_interval_mean_low"] == ""


def test_checkpoints_are_compared_by_instances_too(entry):
    drawn = resample(entry, 50)
    (row,) = compare([entry] * 2, [drawn] * 2)
    assert row["instance mAP"] == {"new": 0.25, "old": 0.25, "difference": 0.0, "interval": [0.0, 0.0]}
    assert interval(drawn["instance mAP"]) == entry.document["instances"]["interval"]["mean"]

"""Checkpoints of several recipes, each on features of its own, compared on the same videos."""

import csv
import io
import json

import pytest

from lstr import checkpoint
from lstr.errors import LabelsError
from lstr.kinds import configure, make_model
from lstr.pipelines.evaluation.job import EvaluateOptions, evaluate
from lstr.pipelines.progress import Notice, result_of
from tests.support.feature_set import TINY, write_features

WIDTHS = {"wide": 6, "narrow": 4}


@pytest.fixture
def recipes(tmp_path):
    """Two checkpoints and two folders of the same videos, of other widths; by their names."""
    made = {}
    for name, width in WIDTHS.items():
        features = write_features(tmp_path / name / "features", width=width)
        model = make_model(configure(**TINY, rgb_dim=width, flow_dim=2, kind="rnn"), 3)
        checkpoint.save(tmp_path / name / "model.pt", model, ("Background", "A", "B"), None, {})
        made[name] = tmp_path / name / "model.pt", features.features, features.labels
    return made


def test_each_is_scored_on_features_of_its_own(recipes, lstr):
    (wide, of_wide, labels), (narrow, of_narrow, _) = recipes.values()
    more = ("--labels", labels, "--subset", "validation", "--set", "resamples=50")
    code, out, err = lstr("evaluate", wide, of_wide, narrow, of_narrow, *more, "--json")
    assert code == 0, err
    document = json.loads(out)
    alone = [json.loads(lstr("evaluate", *pair, *more, "--json")[1]) for pair in ((wide, of_wide), (narrow, of_narrow))]
    assert [one["lstr"]["mAP"] for one in document["checkpoints"]] == [one["lstr"]["mAP"] for one in alone]
    assert [one["name"] for one in document["checkpoints"]] == ["wide", "narrow"]
    assert len(document["comparison"]) == 1
    rows = [*csv.DictReader(io.StringIO(lstr("evaluate", wide, of_wide, narrow, of_narrow, *more, "--to", "csv")[1]))]
    assert [float(row["mAP"]) for row in rows] == [one["lstr"]["mAP"] for one in alone]


def test_a_checkpoint_before_all_folders_is_of_the_first(recipes, lstr):
    (wide, of_wide, labels), (narrow, of_narrow, _) = recipes.values()
    code, out, err = lstr("evaluate", wide, narrow, of_wide, of_narrow, "--labels", labels, "--subset", "validation")
    assert (code, out) == (4, "") and "hint: " in err


def test_what_not_all_have_is_left_out_and_said(recipes):
    (wide, of_wide, labels), (narrow, of_narrow, _) = recipes.values()
    for array in of_narrow.glob("*/v3.npy"):
        array.unlink()
    options = {"subset": "validation", "resamples": 0, "skip_missing": True, "device": "cpu"}
    events = list(evaluate(EvaluateOptions([wide], [of_wide], labels, beside=[([narrow], [of_narrow])], **options)))
    assert [one["videos"] for one in events[-1].result.document["checkpoints"]] == [1, 1]
    assert any("not all feature folders have them: v3" in event.text for event in events if isinstance(event, Notice))
    for array in of_wide.glob("*/v4.npy"):
        array.unlink()
    with pytest.raises(LabelsError, match="No labelled video has features in each of"):
        result_of(evaluate(EvaluateOptions([wide], [of_wide], labels, beside=[([narrow], [of_narrow])], **options)))

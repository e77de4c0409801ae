"""Per-frame evaluation and its two baselines."""

import json

import numpy as np
import pytest

from lstr.batch import predict
from lstr.checkpoint import load
from lstr.errors import CheckpointError, LabelsError
from lstr.metrics import per_frame
from pipelines.dataset import read_split, subset_of
from pipelines.evaluate import baseline_scores, evaluate


def test_it_is_the_metric_of_the_scores(small_set):
    split = read_split(small_set.features, small_set.labels, "training")
    loaded = load(small_set.checkpoint)
    result = evaluate(loaded, split, lambda *_: None)
    scores = np.concatenate([predict(loaded.model, v.features[:]).numpy() for v in split.videos])
    truth = np.concatenate([v.targets for v in split.videos])
    assert result["lstr"] == per_frame(scores, truth, loaded.classes)
    assert result["lstr"]["mAP"] > 0.9 > result["time_prior"]["mAP"] > result["chance"]["mAP"]
    assert (result["videos"], result["chunks"], result["random_weights"]) == (3, 60, True)


def test_chance_scores_a_class_as_often_as_it_is(small_set):
    split = read_split(small_set.features, small_set.labels, "training")
    chance = evaluate(load(small_set.checkpoint), split, lambda *_: None)["chance"]
    truth = np.concatenate([v.targets for v in split.videos])
    for label, entry in chance["per_class"].items():
        share = truth[:, split.labels.classes.index(label)].mean()
        assert entry["AP"] == pytest.approx(share) and entry["cAP"] == pytest.approx(0.5)


def test_baselines_see_the_training_subset_only(small_set, tmp_path):
    content = json.loads(small_set.labels.read_text())
    before = baseline_scores(read_split(small_set.features, small_set.labels, None).labels, [20])
    for video in content["database"].values():
        if video["subset"] == "testing":
            video["annotations"] = []
    changed = tmp_path / "labels.json"
    changed.write_text(json.dumps(content))
    after = baseline_scores(read_split(small_set.features, changed, None).labels, [20])
    assert all((a == b).all() for name in before for a, b in zip(before[name], after[name], strict=True))


def test_subsets(small_set):
    labels = read_split(small_set.features, small_set.labels, None).labels
    assert subset_of(labels, None) == "testing"
    with pytest.raises(LabelsError, match="no odd subset"):
        subset_of(labels, "odd")


def test_other_classes_are_refused(small_set, tmp_path):
    content = json.loads(small_set.labels.read_text())
    content["classes"] = [*content["classes"], "somersault"]
    (tmp_path / "labels.json").write_text(json.dumps(content))
    split = read_split(small_set.features, tmp_path / "labels.json", "testing")
    with pytest.raises(CheckpointError, match="only in the labels: somersault"):
        evaluate(load(small_set.checkpoint), split, lambda *_: None)

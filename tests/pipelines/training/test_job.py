"""The job of training, as Python calls it."""

import json

from lstr.checkpoint import load
from pipelines.progress import Finished, Notice
from pipelines.training.log import Step
from pipelines.training.train import Started, Trained, TrainOptions, planned_settings, train
from tests.support.feature_set import TINY_SETTINGS


def test_from_options_to_events(feature_set, tmp_path):
    """What it learns from, a Step per logged interval, and at last the files; then the same settings, planned."""
    settings = {**TINY_SETTINGS, "train.epochs": "2"}
    (feature_set.features / "weights.json").write_text(json.dumps({"rgb": str(tmp_path / "weights")}))
    options = TrainOptions(
        [feature_set.features], feature_set.labels, tmp_path / "run", "small", settings=settings, eval_every=1, seed=3
    )
    started, *steps, finished = (event for event in train(options) if not isinstance(event, Notice))
    assert started == Started(3, 192, 3, 2)
    assert steps and {type(step) for step in steps} == {Step}
    assert any(step.evaluation for step in steps) and steps[-1].step == steps[-1].steps
    assert finished == Finished(Trained(tmp_path / "run" / "best.pt", tmp_path / "run" / "curves.png"))
    loaded = load(finished.result.checkpoint)
    place = {"path": str(tmp_path / "weights"), "relative": "../weights"}
    assert loaded.extra["networks"] == {"rgb": place}, "where the networks of its features were"
    (planned,) = planned_settings(options)
    assert planned.result["train"] == loaded.extra["train"] and planned.result["train"]["seed"] == 3

"""The job of training, as Python calls it."""

import json
from dataclasses import replace
from shutil import rmtree

import pytest

from lstr.checkpoint import load
from lstr.errors import OutputError
from lstr.pipelines.progress import Finished, Notice, result_of
from lstr.pipelines.training.config import preset_for
from lstr.pipelines.training.run_folder import Step
from lstr.pipelines.training.train import Trained, TrainOptions, planned_settings, train
from tests.support.feature_set import TINY_SETTINGS


def test_from_options_to_events(feature_set, tmp_path):
    """What it learns from, a Step per logged interval, and at last the files; then the same settings, planned."""
    settings = {**TINY_SETTINGS, "train.epochs": "2"}
    (feature_set.features / "weights.json").write_text(json.dumps({"rgb": str(tmp_path / "weights")}))
    options = TrainOptions(
        [feature_set.features],
        feature_set.labels,
        tmp_path / "run",
        "rnn-small",
        settings={**settings, "train.seed": "3"},
        eval_every=1,
    )
    events = list(train(options))
    assert Notice("3 videos, 192 chunks, 3 classes", warning=False) in events
    *steps, finished = (event for event in events if not isinstance(event, Notice))
    assert steps and {type(step) for step in steps} == {Step}
    assert any(step.evaluation for step in steps) and steps[-1].step == steps[-1].steps
    assert finished == Finished(Trained(tmp_path / "run" / "best.pt", held_out=True))
    loaded = load(finished.result.checkpoint)
    place = {"path": str(tmp_path / "weights"), "relative": "../weights"}
    assert loaded.extra["networks"] == {"rgb": place}, "where the networks of its features were"
    (planned,) = planned_settings(options)
    assert planned.result["train"] == loaded.extra["train"] and planned.result["train"]["seed"] == 3


def test_a_run_that_was_stopped_before_its_first_save_begins_anew(feature_set, tmp_path):
    """`--resume`, as is advised after Ctrl-C, was refused with the opposite advice."""
    settings = {**TINY_SETTINGS, "train.epochs": "2", "train.log_every": "1", "train.save_seconds": "3600"}
    options = TrainOptions([feature_set.features], feature_set.labels, tmp_path / "run", "rnn-small", settings=settings)
    job = train(options)
    next(event for event in job if isinstance(event, Step))
    job.close()
    assert (tmp_path / "run").is_dir() and not (tmp_path / "run" / "resume.pt").exists()
    events = list(train(replace(options, resume=True)))
    assert any("holds no run to resume" in event.text for event in events if isinstance(event, Notice))
    assert (tmp_path / "run" / "resume.pt").exists()
    events = list(train(replace(options, resume=True)))
    assert not any("holds no run" in event.text for event in events if isinstance(event, Notice))


def test_a_folder_that_is_deleted_meanwhile_ends_the_run(feature_set, tmp_path):
    """It named a checkpoint at its end that was not there any more."""
    settings = {**TINY_SETTINGS, "train.epochs": "50", "train.log_every": "1"}
    job = train(
        TrainOptions([feature_set.features], feature_set.labels, tmp_path / "run", "rnn-small", settings=settings)
    )
    next(event for event in job if isinstance(event, Step))
    rmtree(tmp_path / "run")
    with pytest.raises(OutputError, match="run cannot be written .it was deleted while in use"):
        list(job)


def test_the_preset_that_nobody_names(feature_set, tmp_path):
    """`lstr-small` for minutes of video, the published size for the hours of THUMOS'14; a named one always."""
    defaults = [preset_for(n) for n in (4 * 300, 14_400, 14_401, 203_363)]
    assert defaults == ["lstr-small", "lstr-small", "thumos14", "thumos14"]
    assert preset_for(1200, kind="rnn") == "rnn-small"
    for settings, preset in (
        ({"model.kind": "rnn", "model.cell": "gru", "train.lr": "0.1"}, "rnn-small"),
        ({"model.kind": "lstr"}, "lstr-small"),
        ({"model.kind": "svm"}, "lstr-small"),
        ({"model.long_length": "64"}, "lstr-small"),
    ):
        assert preset_for(1200, settings) == preset, settings
        assert preset_for(14_401, settings) == "thumos14"
    assert (preset_for(14_400, {"model.kind": "woad"}), preset_for(14_401, {"model.kind": "woad"})) == (
        "woad-small",
        "woad-thumos14",
    )
    options = TrainOptions([feature_set.features], feature_set.labels, tmp_path / "run")
    planned = result_of(planned_settings(options))
    assert planned["preset"] == "lstr-small"
    short = replace(options, settings={"train.max_steps": "1", "model.d_model": "16"}, device="cpu")
    said = [event.text for event in train(short) if isinstance(event, Notice) and "preset" in event.text]
    assert len(said) == 1 and "lstr-small" in said[0] and "--preset rnn-small" in said[0], "which, and what did better"
    named = replace(options, preset="thumos14", settings={"model.d_model": "64"})
    assert result_of(planned_settings(named))["preset"] == "thumos14"

"""Training of a model: results, files and events, resumption, errors, and every kind and design."""

import itertools
import json
import os
from contextlib import closing
from dataclasses import replace
from itertools import islice
from shutil import rmtree

import numpy as np
import pytest
import torch

from lstr.checkpoint import load
from lstr.errors import CheckpointError, LstrError, OutputError
from lstr.kinds import KINDS
from lstr.pipelines.evaluation.scoring import Scoring, score_split
from lstr.pipelines.features.dataset import LabelledVideo, Split, TwoStreamArray, read_split
from lstr.pipelines.progress import Finished, Notice, result_of
from lstr.pipelines.training.model_run import ModelRun
from lstr.pipelines.training.run import Step
from lstr.pipelines.training.train import Trained, TrainOptions, planned_settings, train
from tests.support import training
from tests.support.detections import decisions_of, run_session, sources_of
from tests.support.errors import assert_error
from tests.support.feature_set import TINY_SETTINGS

EACH_STEP = {"train.batch_size": "2", "train.log_every": "1", "train.save_seconds": "0"}


@pytest.fixture
def options(feature_set, tmp_path):
    settings = {**TINY_SETTINGS, "train.epochs": "2", "train.log_every": "1"}
    about = {"features": [feature_set.features], "labels": feature_set.labels, "settings": settings}
    return TrainOptions(tmp_path / "run", "rnn-small", **about)


def train_tiny(split, changes, run, validation=None, resume=False):
    """Train a tiny model; return the steps and the tensors of the checkpoint."""
    steps = list(training.train_tiny(split, run, changes, validation, resume))
    return steps, load(run / "checkpoint.pt").model.state_dict()


def test_the_job_from_options_to_events(feature_set, options, tmp_path):
    """`planned_settings` returns the same settings without training."""
    (feature_set.features / "weights.json").write_text(json.dumps({"rgb": str(tmp_path / "weights")}))
    options = replace(options, settings={**options.settings, "train.seed": "3", "train.eval_every": "1"})
    *steps, finished = (event for event in train(options) if not isinstance(event, Notice))
    assert {type(step) for step in steps} == {Step} and steps[-1].step == steps[-1].steps and steps[-1].evaluation
    assert finished == Finished(Trained(tmp_path / "run" / "best.pt", held_out=True, takes_videos=False))
    loaded = load(finished.result.checkpoint)
    assert loaded.extra["networks"] == {"rgb": {"path": str(tmp_path / "weights"), "relative": "../weights"}}
    (planned,) = planned_settings(options)
    assert planned.result["train"] == loaded.extra["train"] and planned.result["train"]["seed"] == 3


def test_log_and_tensorboard_have_the_reported_values(split, validation, tmp_path):
    from tensorboardX.proto.event_pb2 import Event

    changes = {"train.eval_every": "1", "train.batch_size": "4", "train.log_every": "2"}
    steps, _ = train_tiny(split, changes, tmp_path, validation)
    unlogged = ("epochs", "evaluation", "stage")
    logged = [{name: value for name, value in vars(step).items() if name not in unlogged} for step in steps]
    assert training.read_log(tmp_path, unlogged) == logged
    assert all(s.grad_norm > 0 and s.rate > 0 and 0 <= s.waiting < 1 < s.memory_mb for s in steps)
    scalars: dict[str, dict[int, float]] = {}
    for path in (tmp_path / "tensorboard").iterdir():
        content, at = path.read_bytes(), 0
        while at < len(content):  # length (8 bytes), its checksum (4), event, its checksum (4)
            size = int.from_bytes(content[at : at + 8], "little")
            event = Event.FromString(content[at + 12 : at + 12 + size])
            for value in event.summary.value:
                scalars.setdefault(value.tag, {})[event.step] = value.simple_value
            at += size + 16
    for name, value in (("loss", "loss"), ("windows_per_second", "rate"), ("lr", "lr")):
        assert scalars[f"train/{name}"] == {s.step: pytest.approx(getattr(s, value)) for s in steps}
    assert scalars["validation/AP/A"][steps[-1].step] == pytest.approx(steps[-1].evaluation["per_class"]["A"])
    assert set(scalars["validation/mAP"]) == {s.step for s in steps if s.evaluation}


def test_a_run_resumes_only_with_the_same_settings_and_videos(split, tmp_path):
    train_tiny(split, {}, tmp_path)
    assert train_tiny(split, {"train.save_seconds": "99"}, tmp_path, resume=True)[0] == []  # does not affect the result
    fewer = Split(split.folder, split.labels, split.videos[:2])
    for videos, changes, resume, value in (
        (split, {}, False, "run"),
        (split, {"train.seed": "5"}, True, "train.seed"),
        (split, {"train.average": "0.5"}, True, r"train\.average"),
        (fewer, {}, True, "data.videos"),
    ):
        with pytest.raises(CheckpointError, match=value):
            train_tiny(videos, changes, tmp_path, resume=resume)
    with pytest.raises(CheckpointError, match=r"\b7\b.*\b6\b"):
        train_tiny(split, {"model.rgb_dim": "7"}, tmp_path / "wide")


def test_max_steps_ends_run_and_schedule(split, tmp_path):
    changes = {"train.max_steps": "5", "train.batch_size": "4", "train.log_every": "1", "train.epochs": "9"}
    steps, _ = train_tiny(split, changes, tmp_path)
    assert [s.step for s in steps] == [1, 2, 3, 4, 5] and steps[-1].steps == 5
    assert steps[-1].lr < 0.5 * max(s.lr for s in steps)


def with_ambiguous(split, rows, labels=(0, 0, 0, 1)):
    """Return the split with a class Ambiguous, and these targets for all chunks of `rows`."""
    videos = [replace(video, targets=np.pad(video.targets, ((0, 0), (0, 1)))) for video in split.videos]
    for video in videos:
        video.targets[rows] = labels
    return replace(split, labels=replace(split.labels, classes=(*split.labels.classes, "Ambiguous")), videos=videos)


def test_pieces_of_a_batch_make_the_same_step(split, tmp_path):
    """The loss is a mean over the batch, not over pieces: these hold 5, 5 and 3 windows, and ambiguous chunks."""
    split = with_ambiguous(split, slice(0, 10))
    changes = {"model.dropout": "0", "train.hide_long": "0", "train.batch_size": "13", "train.log_every": "1"}
    whole, expected = train_tiny(split, changes, tmp_path / "whole")
    pieces, weights = train_tiny(split, {**changes, "train.accumulate": "3"}, tmp_path / "pieces")
    assert len(whole) > 2 and [s.loss for s in whole] == pytest.approx([s.loss for s in pieces], abs=1e-5)
    assert [s.grad_norm for s in whole] == pytest.approx([s.grad_norm for s in pieces], abs=1e-4)
    assert all(torch.allclose(weights[name], expected[name], atol=1e-4) for name in weights)


def test_a_batch_of_ambiguous_chunks_changes_nothing(split, tmp_path):
    split = with_ambiguous(split, slice(None))
    steps, weights = train_tiny(split, {}, tmp_path / "slow")
    _, expected = train_tiny(split, {"train.lr": "1"}, tmp_path / "fast")
    assert {s.loss for s in steps} == {0.0}
    assert all(torch.equal(weights[name], expected[name]) for name in weights)


@pytest.mark.parametrize("kind", ["lstr", "rnn", "idn", "fats"])
def test_other_labels_of_ambiguous_chunks_are_ignored(kind, split, tmp_path):
    settings = {"model.kind": kind, **({"model.rgb_dim": "0"} if kind == "fats" else {}), "train.standardise": "false"}
    steps, weights = train_tiny(with_ambiguous(split, slice(0, 10)), settings, tmp_path / "ambiguous")
    both = with_ambiguous(split, slice(0, 10), (0, 1, 0, 1))
    steps_of_both, weights_of_both = train_tiny(both, settings, tmp_path / "both")
    assert [s.loss for s in steps_of_both] == [s.loss for s in steps] and steps[-1].loss > 0
    assert all(torch.equal(weights[name], weights_of_both[name]) for name in weights)
    assert load(tmp_path / "both" / "checkpoint.pt").classes == split.labels.classes


@pytest.mark.long
def test_bfloat16_trains_as_well(split, tmp_path):
    changes = {"train.epochs": "8", "train.batch_size": "8", "train.lr": "0.005"}
    float32, _ = train_tiny(split, changes, tmp_path / "float32")
    bf16, weights = train_tiny(split, {**changes, "train.precision": "bf16"}, tmp_path / "bf16")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert float32[-1].loss != bf16[-1].loss == pytest.approx(float32[-1].loss, abs=0.1)
    assert bf16[-1].loss < 0.8 * bf16[0].loss


@pytest.mark.long
def test_validation_chooses_the_checkpoint_and_stops_early(split, validation, tmp_path):
    changes = {"train.epochs": "60", "train.eval_every": "2", "train.patience": "2", "train.lr": "0.01"}
    steps, _ = train_tiny(split, changes, tmp_path, validation)
    scores = [s.evaluation["mAP"] for s in steps if s.evaluation]
    assert all((s.evaluation is not None) == (s.epoch % 2 == 0) for s in steps if s.step % 10)
    assert max(scores) > 0.7 and steps[-1].step < steps[-1].steps
    assert max(scores[-2:]) <= max(scores[:-2]), "the last two evaluations were no better"
    best = load(tmp_path / "best.pt")
    training_ids, ids = (set(best.metrics[f"{part}_videos"]) for part in ("training", "validation"))
    assert ids and not ids & training_ids and best.metrics["validation"]["mAP"] == max(scores)
    assert result_of(score_split(best, validation)).document["lstr"]["mAP"] == pytest.approx(max(scores), abs=1e-6)
    assert train_tiny(split, changes, tmp_path, validation, resume=True)[0] == []


@pytest.mark.long
@pytest.mark.parametrize("average", ["0", "0.9"])
def test_a_stopped_run_resumes_bit_for_bit(split, validation, tmp_path, monkeypatch, average):
    """Within and between epochs of 12 steps; with dropout, and a save at every fifth line of the log only."""
    changes = {**EACH_STEP, "train.eval_every": "1", "train.average": average}
    train_tiny(split, changes, tmp_path / "whole", validation)
    count, save = itertools.count(), ModelRun.save

    def save_every_fifth(run, step):
        if next(count) % 5 == 0 or step.step == step.steps:
            save(run, step)

    monkeypatch.setattr(ModelRun, "save", save_every_fifth)
    for resume, n_steps in ((False, 7), (True, 4), (True, 6), (True, 99)):
        with closing(training.train_tiny(split, tmp_path / "parts", changes, validation, resume)) as steps:
            list(islice(steps, n_steps))
        torch.rand(7)  # random numbers of other code must not matter
    for name in ("checkpoint.pt", "best.pt"):
        a, b = (load(tmp_path / run / name).model.state_dict() for run in ("whole", "parts"))
        assert all(torch.equal(a[key], b[key]) for key in a)
    assert training.read_log(tmp_path / "whole") == training.read_log(tmp_path / "parts")


def test_average_weights_are_saved_but_not_trained_on(split, tmp_path):
    changes = {**EACH_STEP, "train.epochs": "1", "model.dropout": "0"}
    _, average = train_tiny(split, {**changes, "train.average": "0.9"}, tmp_path / "average")
    _, plain = train_tiny(split, changes, tmp_path / "plain")
    states = [torch.load(tmp_path / name / "resume.pt", weights_only=True) for name in ("average", "plain")]
    assert all(torch.equal(tensor, states[1]["model"][name]) for name, tensor in states[0]["model"].items())
    assert not torch.equal(average["classifier.weight"], plain["classifier.weight"])
    assert torch.equal(average["classifier.weight"], states[0]["average"]["classifier.weight"])


def test_a_run_stopped_before_its_first_save_starts_over(options, tmp_path):
    options = replace(options, settings={**options.settings, "train.save_seconds": "3600"})
    with closing(train(options)) as events:
        next(event for event in events if isinstance(event, Step))
    assert (tmp_path / "run").is_dir() and not (tmp_path / "run" / "resume.pt").exists()
    assert isinstance(list(train(replace(options, resume=True)))[-1], Finished)
    assert not [event for event in train(replace(options, resume=True)) if isinstance(event, Step)]


def test_a_deleted_folder_ends_the_run(options, tmp_path):
    job = train(replace(options, settings={**options.settings, "train.epochs": "50"}))
    next(event for event in job if isinstance(event, Step))
    rmtree(tmp_path / "run")
    with pytest.raises(OutputError, match="run"):
        list(job)


def test_settings_of_print_config_run_and_checkpoint_agree(lstr, run, feature_set, tmp_path):
    folder = tmp_path / "run"
    command = ("train", feature_set.features, "--labels", feature_set.labels, "-o", folder)
    settings = {**TINY_SETTINGS, "train.epochs": "1", "train.seed": "7", "train.deterministic": "true"}
    words = [*(w for k, v in settings.items() for w in ("--set", f"{k}={v}")), "--preset", "lstr-small"]
    printed = json.loads(run(*command, *words, "--print-config")[0])
    assert not folder.exists()
    out, err = run(*command, *words)
    assert out == "" and str(folder / "checkpoint.pt") in err
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    written, extra = json.loads((folder / "config.json").read_text()), load(folder / "checkpoint.pt").extra
    assert {part: written[part] for part in ("model", "train", "data")}.items() <= printed.items()
    assert (extra["train"], extra["data"]) == (printed["train"], printed["data"])
    assert {"versions", "git", "command", "device"} <= extra["made_by"].keys()
    info = json.loads(run("info", folder / "checkpoint.pt", "--json")[0])
    assert info["preset"] == extra["preset"] == printed["preset"] == "lstr-small"
    assert info["changed"] == extra["changed"] == printed["changed"]
    assert {"train.epochs": 1, "train.seed": 7}.items() <= extra["changed"].items()
    (tmp_path / "printed.json").write_text(json.dumps(printed))
    options = ("--config", tmp_path / "printed.json", "--print-config", "--set", "train.max_steps=3")
    changed = json.loads(run(*command, *options)[0])
    assert changed["train"] == printed["train"] | {"max_steps": 3} and changed["model"] == printed["model"]
    assert changed["preset"] == "lstr-small" and changed["changed"] == printed["changed"] | {"train.max_steps": 3}
    (tmp_path / "incomplete.json").write_text('{"model": {}}')
    assert_error(lstr(*command, "--config", tmp_path / "incomplete.json"), 2, "incomplete.json")


def test_a_non_finite_loss_names_the_videos_and_keeps_earlier_steps(split, tmp_path):
    features = TwoStreamArray(*(np.full((64, width), np.nan, np.float32) for width in split.dims))
    broken = LabelledVideo("broken", features, split.videos[0].targets)
    changes = {**EACH_STEP, "train.batch_size": "1", "train.standardise": "false"}
    with pytest.raises(LstrError, match="nan at step .* broken") as caught:
        train_tiny(replace(split, videos=[*split.videos, broken]), changes, tmp_path)
    step = int(str(caught.value).split("step ")[1].split(",")[0])
    assert 0 < load(tmp_path / "checkpoint.pt").metrics["step"] <= step and caught.value.exit_code == 1


DESIGNS = [
    *({"kind": kind} for kind in KINDS),
    {"kind": "cmert", "grid": "anchored", "context": "2", "anticipation": "2"},
    {"kind": "woad", "supervision": "video"},
    {"long_length": "0", "gru": "true", "anticipation": "8", "flow_dim": "0"},
]
"""Of each kind and, as changed settings, those that training and streams treat differently"""


@pytest.mark.long
@pytest.mark.parametrize("design", DESIGNS, ids=lambda design: " ".join(f"{k}={v}" for k, v in design.items()))
def test_a_design_is_trained_scored_and_run_on_a_stream(small_set, tmp_path, design):
    split = read_split(small_set.features, small_set.labels, "training")
    train_tiny(split, {f"model.{name}": value for name, value in design.items()}, tmp_path)
    loaded = load(tmp_path / "checkpoint.pt")
    assert all(str(getattr(loaded.config, name)).lower() == value for name, value in design.items())
    batch, stream = (result_of(score_split(loaded, split, Scoring(mode=mode))).document for mode in ("batch", "stream"))
    assert batch["lstr"]["mAP"] == pytest.approx(stream["lstr"]["mAP"], abs=1e-3)
    n_ahead = loaded.config.n_ahead
    assert ("anticipation" in batch) == ("anticipation" in stream) == (n_ahead > 0)
    decisions = decisions_of(run_session(sources_of(small_set.features, loaded=loaded)[:1], loaded))
    assert len(decisions) == 20 and all(np.isclose(d.scores.sum(), 1, atol=1e-4) for d in decisions)
    assert [row[0] for row in decisions[0].to_dict().get("ahead", [])] == [0.25 * h for h in range(1, n_ahead + 1)]


def test_anticipation_is_scored_on_future_chunks(split, tmp_path, monkeypatch):
    """Scores that copy the future labels have an mAP of 1 for the future, and a low one for the present."""
    train_tiny(split, {"model.anticipation": "2"}, tmp_path)
    targets = iter([video.targets.astype(np.float32) for video in split.videos])

    def predict_ahead(model, features, constants):
        current = next(targets)
        future = [np.roll(current, -h, axis=0) for h in (1, 2)]
        return torch.from_numpy(np.stack([np.full_like(current, 0.5), *future], axis=1))

    monkeypatch.setattr("lstr.pipelines.evaluation.scoring.predict_ahead", predict_ahead)
    document = result_of(score_split(load(tmp_path / "checkpoint.pt"), split)).document
    assert [(row["chunks"], row["mAP"]) for row in document["anticipation"]] == [(1, 1.0), (2, 1.0)]
    assert document["lstr"]["mAP"] < 0.5

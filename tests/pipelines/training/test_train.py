"""Training of a model: what it learns, writes and reports, and what stops it."""

import json
import os
import resource
import subprocess
from dataclasses import replace
from itertools import islice
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
import torch

from lstr.batch import predict
from lstr.checkpoint import load
from lstr.errors import CheckpointError, LstrError, OutputError
from lstr.kinds import make_model
from lstr.pipelines.evaluation.scoring import score_split
from lstr.pipelines.features.dataset import LabelledVideo, Split, TwoStreamArray, read_split
from lstr.pipelines.progress import Finished, Notice, result_of
from lstr.pipelines.provenance import git_revision
from lstr.pipelines.training.config import resolve
from lstr.pipelines.training.model_run import ModelRun
from lstr.pipelines.training.run_folder import Step
from lstr.pipelines.training.train import Task, Trained, TrainOptions, planned_settings, train, train_model
from tests.support.errors import assert_error
from tests.support.feature_set import TINY_SETTINGS

MEASURED = ("rate", "waiting", "memory_mb")
EACH_STEP = {"train.batch_size": "2", "train.log_every": "1", "train.save_seconds": "0"}


@pytest.fixture
def split(feature_set):
    return read_split(feature_set.features, feature_set.labels, "training")


@pytest.fixture
def validation(feature_set):
    return read_split(feature_set.features, feature_set.labels, "validation")


@pytest.fixture
def options(feature_set, tmp_path):
    settings = {**TINY_SETTINGS, "train.epochs": "2", "train.log_every": "1"}
    return TrainOptions([feature_set.features], feature_set.labels, tmp_path / "run", "rnn-small", settings=settings)


def trained(split, changes, run, validation=None, resume=False):
    """The steps, and the checkpoint's tensors, of a run of the tiny model."""
    model, config = resolve("lstr-small", {**TINY_SETTINGS, "train.epochs": "2", **changes}, split.dims)
    steps = list(train_model(Task(split, model, config, validation), run, resume=resume))
    return steps, load(run / "checkpoint.pt").model.state_dict()


def lines_of(run: Path) -> list[dict]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def test_it_fits_its_training_videos(small_set):
    split = read_split(small_set.features, small_set.labels, "training")
    loaded = load(small_set.checkpoint)
    right = [
        (predict(loaded.model, v.features[:]).numpy().argmax(1) == v.targets.argmax(1)).mean() for v in split.videos
    ]
    assert np.mean(right) > 0.9
    assert loaded.classes == split.labels.classes
    assert loaded.recipe["rgb"]["weights"] == "random" and set(loaded.calibration) == {"rgb", "flow"}


def test_the_job_from_options_to_events(feature_set, options, tmp_path):
    """Its inputs, a Step per logged interval, and at last the files; then the same settings, planned."""
    (feature_set.features / "weights.json").write_text(json.dumps({"rgb": str(tmp_path / "weights")}))
    options = replace(options, settings={**options.settings, "train.seed": "3"}, eval_every=1)
    *steps, finished = (event for event in train(options) if not isinstance(event, Notice))
    assert {type(step) for step in steps} == {Step} and any(step.evaluation for step in steps)
    assert steps[-1].step == steps[-1].steps
    assert finished == Finished(Trained(tmp_path / "run" / "best.pt", held_out=True))
    loaded = load(finished.result.checkpoint)
    place = {"path": str(tmp_path / "weights"), "relative": "../weights"}
    assert loaded.extra["networks"] == {"rgb": place}, "where the networks of its features were"
    (planned,) = planned_settings(options)
    assert planned.result["train"] == loaded.extra["train"] and planned.result["train"]["seed"] == 3


def test_the_log_and_tensorboard_have_what_is_reported(split, validation, tmp_path):
    changes = {"train.eval_every": "1", "train.batch_size": "4", "train.log_every": "2"}
    steps, _ = trained(split, changes, tmp_path / "run", validation)
    unlogged = ("epochs", "evaluation", "stage")
    logged = [{k: v for k, v in line.items() if k not in unlogged} for line in lines_of(tmp_path / "run")]
    assert logged == [{k: v for k, v in vars(step).items() if k not in unlogged} for step in steps]
    assert all(s.grad_norm > 0 and s.rate > 0 and 0 <= s.waiting < 1 < s.memory_mb for s in steps)
    names = ["best.pt", "checkpoint.pt", "config.json", "metrics.jsonl", "resume.pt", "tensorboard"]
    assert sorted(p.name for p in (tmp_path / "run").iterdir()) == names
    found = tensorboard_of(tmp_path / "run" / "tensorboard")
    for name, value in (("loss", "loss"), ("windows_per_second", "rate"), ("lr", "lr")):
        assert found[f"train/{name}"] == {s.step: pytest.approx(getattr(s, value)) for s in steps}
    assert found["validation/AP/A"][steps[-1].step] == pytest.approx(steps[-1].evaluation["per_class"]["A"])
    assert set(found["validation/mAP"]) == {s.step for s in steps if s.evaluation}


def tensorboard_of(folder) -> dict[str, dict[int, float]]:
    """{name: {step: value}} of TensorBoard's record files: length, its checksum, event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, dict[int, float]] = {}
    for path in folder.iterdir():
        content, at = path.read_bytes(), 0
        while at < len(content):
            size = int.from_bytes(content[at : at + 8], "little")
            event = Event.FromString(content[at + 12 : at + 12 + size])
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
            at += size + 16
    return found


def test_runs_do_not_overwrite_each_other(split, tmp_path):
    trained(split, {}, tmp_path)
    fewer = Split(split.folder, split.labels, split.videos[:2])
    other_seed = {"train.seed": "5"}
    for of, changes, resume, value in (
        (split, {}, False, "run"),
        (split, other_seed, True, "train.seed"),
        (fewer, {}, True, "data.videos"),
    ):
        with pytest.raises(CheckpointError, match=value):
            trained(of, changes, tmp_path, resume=resume)
    with pytest.raises(CheckpointError, match=r"\b7\b.*\b6\b"):
        trained(split, {"model.rgb_dim": "7"}, tmp_path / "wide")


def test_max_steps_ends_run_and_schedule(split, tmp_path):
    changes = {"train.max_steps": "5", "train.batch_size": "4", "train.log_every": "1", "train.epochs": "9"}
    steps, _ = trained(split, changes, tmp_path)
    assert [s.step for s in steps] == [1, 2, 3, 4, 5] and steps[-1].steps == 5
    assert steps[-1].lr < 0.5 * max(s.lr for s in steps)


def ambiguous(split, rows):
    """The split with a class Ambiguous, which all chunks of `rows` have."""
    videos = [replace(video, targets=np.pad(video.targets, ((0, 0), (0, 1)))) for video in split.videos]
    for video in videos:
        video.targets[rows] = [0, 0, 0, 1]
    return replace(split, labels=replace(split.labels, classes=(*split.labels.classes, "Ambiguous")), videos=videos)


def test_pieces_of_a_batch_make_the_same_step(split, tmp_path):
    """The loss is a mean over the batch, not over pieces: these hold 5, 5 and 3 windows, and ambiguous chunks."""
    split = ambiguous(split, slice(0, 10))
    same = {"model.dropout": "0", "train.hide_long": "0", "train.batch_size": "13", "train.log_every": "1"}
    whole, weights = trained(split, same, tmp_path / "whole")
    pieces, again = trained(split, {**same, "train.accumulate": "3"}, tmp_path / "pieces")
    assert len(whole) > 2 and [s.loss for s in whole] == pytest.approx([s.loss for s in pieces], abs=1e-5)
    assert [s.grad_norm for s in whole] == pytest.approx([s.grad_norm for s in pieces], abs=1e-4)
    assert all(torch.allclose(weights[name], again[name], atol=1e-4) for name in weights)


def test_a_batch_that_is_all_ambiguous_changes_nothing(split, tmp_path):
    steps, weights = trained(ambiguous(split, slice(None)), {"train.standardise": "false"}, tmp_path)
    model, config = resolve("lstr-small", TINY_SETTINGS, split.dims)
    torch.manual_seed(config.seed)
    untouched = make_model(model, 3).state_dict()
    assert {s.loss for s in steps} == {0.0}
    assert all(torch.equal(weights[name], untouched[name]) for name in weights)


@pytest.mark.parametrize("kind", ["lstr", "rnn", "idn", "fats"])
def test_ambiguous_is_no_class_of_a_model(kind, split, tmp_path):
    """Other labels of a chunk do not count where it is ambiguous."""
    settings = {"model.kind": kind, **({"model.rgb_dim": "0"} if kind == "fats" else {}), "train.standardise": "false"}
    alone, weights = trained(ambiguous(split, slice(0, 10)), settings, tmp_path / "alone")
    both = ambiguous(split, slice(0, 10))
    for video in both.videos:
        video.targets[:10, 1] = 1
    steps, again = trained(both, settings, tmp_path / "both")
    assert [step.loss for step in steps] == [step.loss for step in alone] and steps[-1].loss > 0
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    assert load(tmp_path / "both" / "checkpoint.pt").classes == split.labels.classes


@pytest.mark.long
def test_bfloat16_learns_the_same(split, tmp_path):
    changes = {"train.epochs": "8", "train.batch_size": "8", "train.lr": "0.005"}
    exact, _ = trained(split, changes, tmp_path / "float32")
    rough, weights = trained(split, {**changes, "train.precision": "bf16"}, tmp_path / "bf16")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert exact[-1].loss != rough[-1].loss == pytest.approx(exact[-1].loss, abs=0.1)
    assert rough[-1].loss < 0.8 * rough[0].loss


@pytest.mark.long
def test_best_by_validation_and_early_end(split, validation, tmp_path):
    changes = {"train.epochs": "60", "train.eval_every": "2", "train.patience": "2", "train.lr": "0.01"}
    steps, _ = trained(split, changes, tmp_path, validation)
    scores = [s.evaluation["mAP"] for s in steps if s.evaluation]
    assert all((s.evaluation is not None) == (s.epoch % 2 == 0) for s in steps if s.step % 10)
    assert max(scores) > 0.7 and steps[-1].step < steps[-1].steps, "it ended early"
    assert max(scores[-2:]) <= max(scores[:-2]), "two evaluations were no better"
    best = load(tmp_path / "best.pt")
    seen, held = (set(best.metrics[f"{part}_videos"]) for part in ("training", "validation"))
    assert held and not held & seen and best.metrics["validation"]["mAP"] == max(scores)
    assert result_of(score_split(best, validation)).document["lstr"]["mAP"] == pytest.approx(max(scores), abs=1e-6)
    assert trained(split, changes, tmp_path, validation, resume=True)[0] == []


@pytest.mark.long
@pytest.mark.parametrize("average", ["0", "0.9"])
def test_a_stopped_run_resumes_to_the_bit(split, validation, tmp_path, monkeypatch, average):
    """Within and between epochs of 12 steps; dropout is on, and only each fifth log line is followed by a save."""
    changes = {**EACH_STEP, "train.epochs": "2", "train.eval_every": "1", "train.average": average}
    trained(split, changes, tmp_path / "whole", validation)
    asked, save = iter(range(10_000)), ModelRun.save

    def save_seldom(run, step):
        if next(asked) % 5 == 0 or step.step == step.steps:
            save(run, step)

    monkeypatch.setattr(ModelRun, "save", save_seldom)
    model, config = resolve("lstr-small", {**TINY_SETTINGS, **changes}, split.dims)
    for resume, more in ((False, 7), (True, 4), (True, 6), (True, 99)):
        stopped = train_model(Task(split, model, config, validation), tmp_path / "parts", resume=resume)
        list(islice(stopped, more))
        stopped.close()
        torch.rand(7)  # whatever else the process did meanwhile
    for name in ("checkpoint.pt", "best.pt"):
        a, b = (load(tmp_path / run / name).model.state_dict() for run in ("whole", "parts"))
        assert all(torch.equal(a[key], b[key]) for key in a)
    logs = [[{k: v for k, v in line.items() if k not in MEASURED} for line in lines_of(tmp_path / run)]
            for run in ("whole", "parts")]  # fmt: skip
    assert logs[0] == logs[1]


def test_an_average_of_the_weights_is_saved_and_not_trained_on(split, tmp_path):
    same = {**EACH_STEP, "train.epochs": "1", "model.dropout": "0"}
    _, saved = trained(split, {**same, "train.average": "0.9"}, tmp_path / "average")
    _, own = trained(split, same, tmp_path / "plain")
    states = [torch.load(tmp_path / name / "resume.pt", weights_only=True) for name in ("average", "plain")]
    assert all(torch.equal(tensor, states[1]["model"][name]) for name, tensor in states[0]["model"].items())
    assert not torch.equal(saved["classifier.weight"], own["classifier.weight"])
    assert torch.equal(saved["classifier.weight"], states[0]["average"]["classifier.weight"])


def test_a_run_resumes_with_the_settings_of_its_result_alone(split, tmp_path):
    changes = {**EACH_STEP, "train.epochs": "1"}
    model, config = resolve("lstr-small", {**TINY_SETTINGS, **changes}, split.dims)
    running = train_model(Task(split, model, config), tmp_path)
    list(islice(running, 3))
    running.close()
    with pytest.raises(CheckpointError, match=r"train\.average"):
        trained(split, {**changes, "train.average": "0.5"}, tmp_path, resume=True)
    seldom = {**changes, "train.save_seconds": "99"}  # which has no part in the result
    assert trained(split, seldom, tmp_path, resume=True)[0][-1].step == 12


def test_a_run_that_was_stopped_before_its_first_save_begins_again(options, tmp_path):
    options = replace(options, settings={**options.settings, "train.save_seconds": "3600"})
    job = train(options)
    next(event for event in job if isinstance(event, Step))
    job.close()
    assert (tmp_path / "run").is_dir() and not (tmp_path / "run" / "resume.pt").exists()
    assert isinstance(list(train(replace(options, resume=True)))[-1], Finished)
    assert (tmp_path / "run" / "resume.pt").exists()
    assert not [event for event in train(replace(options, resume=True)) if isinstance(event, Step)]


def test_a_folder_that_is_deleted_meanwhile_ends_the_run(options, tmp_path):
    job = train(replace(options, settings={**options.settings, "train.epochs": "50"}))
    next(event for event in job if isinstance(event, Step))
    rmtree(tmp_path / "run")
    with pytest.raises(OutputError, match="run"):
        list(job)


def test_settings_travel(lstr, feature_set, tmp_path):
    """--print-config, config.json and the checkpoint say the same, and --config takes it back."""
    command = ("train", feature_set.features, "--labels", feature_set.labels, "-o", tmp_path / "run")
    settings = {**TINY_SETTINGS, "train.epochs": "1", "train.seed": "7", "train.deterministic": "true"}
    given = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    code, out, _ = lstr(*command, *given, "--preset", "lstr-small", "--print-config")
    printed = json.loads(out)
    assert code == 0 and not (tmp_path / "run").exists()
    assert (printed["train"]["seed"], printed["train"]["deterministic"]) == (7, True)
    code, out, err = lstr(*command, *given, "--preset", "lstr-small")
    assert code == 0 and out == "" and str(tmp_path / "run" / "checkpoint.pt") in err
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    extra = load(tmp_path / "run" / "checkpoint.pt").extra
    for part in ("model", "train", "data"):
        assert written[part] == printed[part] and (part == "model" or extra[part] == printed[part])
    assert {"versions", "git", "command", "device"} <= extra["made_by"].keys()
    said = json.loads(lstr("info", tmp_path / "run" / "checkpoint.pt", "--json")[1])
    assert said["preset"] == extra["preset"] == printed["preset"] == "lstr-small"
    assert said["changed"] == extra["changed"] == printed["changed"]
    assert {"train.epochs": 1, "train.seed": 7}.items() <= extra["changed"].items()
    assert {"model.rgb_dim", "train.weight_decay"}.isdisjoint(extra["changed"])
    (tmp_path / "printed.json").write_text(json.dumps(printed))
    code, out, _ = lstr(*command, "--config", tmp_path / "printed.json", "--print-config", "--set", "train.max_steps=3")
    again = json.loads(out)
    assert again["train"] == printed["train"] | {"max_steps": 3} and again["model"] == printed["model"]
    assert again["preset"] == "lstr-small" and again["changed"] == printed["changed"] | {"train.max_steps": 3}
    (tmp_path / "odd.json").write_text('{"model": {}}')
    assert_error(lstr(*command, "--config", tmp_path / "odd.json"), 2, "odd.json")


def test_the_source_revision(tmp_path):
    assert git_revision(tmp_path) is None
    commands = "git init -q . && git add . && git -c user.name=x -c user.email=x commit -qm x"
    (tmp_path / "file").write_text("one")
    subprocess.run(commands, shell=True, cwd=tmp_path, check=True)
    clean = git_revision(tmp_path)
    assert len(clean["revision"]) == 40 and clean["changed"] is False
    (tmp_path / "file").write_text("two")
    assert git_revision(tmp_path) == clean | {"changed": True}


def random_video(length, id, dims, targets):
    random = np.random.default_rng(0)
    rgb, flow = (random.normal(5, 3, (length, width)).astype(np.float32) for width in dims)
    return LabelledVideo(id, TwoStreamArray(rgb, flow), targets)


def test_a_loss_that_is_no_number_names_the_videos(split, tmp_path):
    """What was saved before stays: here the steps up to the first with a window of the broken video."""
    broken = random_video(64, "broken", split.dims, split.videos[0].targets)
    broken.features.rgb[:] = np.nan
    changes = {"train.batch_size": "1", "train.log_every": "1", "train.save_seconds": "0", "train.standardise": "false"}
    with pytest.raises(LstrError, match="nan at step .* broken") as caught:
        trained(replace(split, videos=[*split.videos, broken]), changes, tmp_path)
    step = int(str(caught.value).split("step ")[1].split(",")[0])
    kept = load(tmp_path / "checkpoint.pt")
    assert step > 0 and 0 < kept.metrics["step"] <= step and caught.value.exit_code == 1


def test_out_of_memory_says_what_to_lower(split, tmp_path):
    """Real: 250 windows of 64 chunks through 300,000 hidden units are 19 GB, and the process may take 6 more."""
    long = random_video(16_000, "long", split.dims, np.eye(3, dtype=np.uint8)[np.arange(16_000) % 3])
    changes = {"model.d_model": "2", "model.n_heads": "1", "model.d_feedforward": "300000", "model.work_length": "64"}
    changes |= {"model.long_length": "0", "train.batch_size": "250", "train.standardise": "false"}
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + 6 * 2**30, before[1]))
    try:
        with pytest.raises(LstrError, match="memory .*cpu.* 250 ") as caught:
            trained(replace(split, videos=[long]), changes, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert "train.accumulate=2" in caught.value.hint

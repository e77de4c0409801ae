"""Training: what it learns, what it writes, and what stops it."""

import json
import os
import resource
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from lstr import kinds
from lstr.batch import predict
from lstr.checkpoint import load
from lstr.errors import CheckpointError, ConfigError, LstrError
from lstr.kinds import make_model
from lstr.pipelines.evaluation.scoring import score_split
from lstr.pipelines.features.dataset import LabelledVideo, Split, TwoStreamArray, read_split
from lstr.pipelines.progress import result_of
from lstr.pipelines.provenance import git_revision
from lstr.pipelines.training.config import TrainConfig, presets, resolve
from lstr.pipelines.training.loop import learning_rate
from lstr.pipelines.training.train import Task, train_model
from lstr.pipelines.training.window_samples import draw_windows
from tests.support.feature_set import TINY_SETTINGS

SETTINGS = {"model.d_model": "16", "model.n_heads": "2", "model.d_feedforward": "16", "model.work_length": "32"}
SETTINGS |= {"train.epochs": "4"}


@pytest.fixture
def split(small_set):
    return read_split(small_set.features, small_set.labels, "training")


def finish(steps):
    return list(steps)[-1]


def test_presets_and_changes():
    model, config = resolve("thumos14", {}, (2048, 1024))
    assert (model.long_length, model.long_stride, model.work_length, model.n0, model.n1) == (2048, 4, 32, 16, 32)
    assert (model.l_enc, model.l_dec, model.n_heads, model.d_model) == (2, 2, 16, 1024)
    assert (config.lr, config.weight_decay, config.epochs, config.batch_size) == (5e-5, 5e-5, 25, 16)
    model, config = resolve("lstr-small", {"model.n0": "4", "train.lr": "0.1"}, (8, 4))
    assert (model.n0, config.lr, model.rgb_dim, model.flow_dim) == (4, 0.1, 8, 4)
    named = {"thumos14", "tvseries", "hacs", "rnn-small", "thumos14-published", "tvseries-published"}
    named |= {"miniroad-thumos14", "miniroad-tvseries", "testra-thumos14", "testra-laplace-thumos14"}
    named |= {"gatehub-thumos14", "oadtr-thumos14", "colar-thumos14", "trn-thumos14"}
    named |= {"cmert-thumos14", "mat-thumos14", "mat-tvseries"}
    assert set(presets()) == set(kinds.presets()) >= named
    for bad in ({"model.n_head": "4"}, {"train.lr": "much"}, {"lr": "1"}, {"train.windows": "odd"}, {"train.lr": "-1"}):
        with pytest.raises(ConfigError) as caught:
            resolve("lstr-small", bad, (8, 4))
        assert caught.value.hint


def test_schedule_is_the_papers():
    config = TrainConfig(lr=1.0)
    rates = [learning_rate(step, 100, config.lr, config.warmup, config.schedule) for step in range(100)]
    assert rates[0] == pytest.approx(1 / 40) and rates[39] == pytest.approx(1.0) and max(rates) == pytest.approx(1.0)
    assert np.allclose(np.diff(rates[:40]), 1 / 40)
    assert rates[70] == pytest.approx(0.5) and rates[-1] < 0.001 and (np.diff(rates[40:]) < 0).all()


def video(length, id="v", dims=(3, 2), classes=3, seed=0):
    random = np.random.default_rng(seed)
    truth = np.eye(classes, dtype=np.uint8)[random.integers(0, classes, length)]
    rgb, flow = (random.normal(5, 3, (length, d)).astype(np.float32) for d in dims)
    return LabelledVideo(id, TwoStreamArray(rgb, flow), truth)


def test_windows_cover_and_differ_by_epoch():
    videos = [video(200), video(10)]
    model, config = resolve("lstr-small", {"model.work_length": "32"}, (3, 2))
    first = draw_windows(videos, model, config, 0)
    assert first == draw_windows(videos, model, config, 0) != draw_windows(videos, model, config, 1)
    assert sorted(v for v, _ in first) == [0] * 7 + [1]
    assert all(31 <= end < 200 for v, end in first if v == 0) and (1, 9) in first
    _, tiled = resolve("lstr-small", {"train.windows": "tiled"}, (3, 2))
    ends = sorted(end for v, end in draw_windows(videos, model, tiled, 0) if v == 0)
    assert set(np.diff(ends[:-1])) == {32} and ends[-1] == 199


def test_it_learns(small_set):
    """The small set's checkpoint has fitted its three training videos."""
    split = read_split(small_set.features, small_set.labels, "training")
    loaded = load(small_set.checkpoint)
    right = [
        (predict(loaded.model, v.features[:]).numpy().argmax(1) == v.targets.argmax(1)).mean() for v in split.videos
    ]
    assert np.mean(right) > 0.9
    assert loaded.classes == split.labels.classes
    assert loaded.recipe["rgb"]["weights"] == "random" and set(loaded.calibration) == {"rgb", "flow"}


def test_the_log(small_set, split, tmp_path):
    model, config = resolve("lstr-small", SETTINGS, split.dims)
    reported = [vars(step) for step in train_model(Task(split, model, config), tmp_path)]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert lines == [{k: v for k, v in step.items() if k not in ("epochs", "evaluation", "stage")} for step in reported]
    assert [r["epoch"] for r in reported] == [1, 2, 3, 4] and reported[-1]["step"] == reported[-1]["steps"]
    assert all(r["grad_norm"] > 0 and r["rate"] > 0 and 0 <= r["waiting"] < 1 < r["memory_mb"] for r in reported)
    names = ["checkpoint.pt", "config.json", "metrics.jsonl", "resume.pt", "tensorboard"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_the_events_are_what_the_log_says(feature_set, tmp_path):
    split, validation = (read_split(feature_set.features, feature_set.labels, s) for s in ("training", "validation"))
    changes = {**TINY_SETTINGS, "train.epochs": "2", "train.eval_every": "1"}
    model, config = resolve("lstr-small", changes, split.dims)
    steps = list(train_model(Task(split, model, config, validation), tmp_path / "run"))
    found = events(tmp_path / "run" / "tensorboard")
    for name, value in (("loss", "loss"), ("windows_per_second", "rate"), ("lr", "lr")):
        assert found[f"train/{name}"] == {s.step: pytest.approx(getattr(s, value)) for s in steps}
    assert found["validation/AP/A"][steps[-1].step] == pytest.approx(steps[-1].evaluation["per_class"]["A"])
    assert set(found["validation/mAP"]) == {s.step for s in steps if s.evaluation}


def events(folder) -> dict[str, dict[int, float]]:
    """{name: {step: value}} of TensorBoard's record files: length, its checksum, event, its checksum."""
    from tensorboardX.proto.event_pb2 import Event

    found: dict[str, dict[int, float]] = {}
    for path in folder.iterdir():
        content = path.read_bytes()
        at = 0
        while at < len(content):
            size = int.from_bytes(content[at : at + 8], "little")
            event = Event.FromString(content[at + 12 : at + 12 + size])
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
            at += size + 16
    return found


def test_runs_do_not_overwrite_each_other(split, tmp_path):
    model, config = resolve("lstr-small", {**SETTINGS, "train.epochs": "1"}, split.dims)
    finish(train_model(Task(split, model, config), tmp_path))
    with pytest.raises(CheckpointError, match="already holds a run"):
        finish(train_model(Task(split, model, config), tmp_path))
    _, other = resolve("lstr-small", {**SETTINGS, "train.epochs": "1", "train.seed": "5"}, split.dims)
    with pytest.raises(CheckpointError, match="train.seed was 0, is 5"):
        finish(train_model(Task(split, model, other), tmp_path, resume=True))
    fewer = Split(split.folder, split.labels, split.videos[:2])
    with pytest.raises(CheckpointError, match="data.videos was 3, is 2"):
        finish(train_model(Task(fewer, model, config), tmp_path, resume=True))


def trained(split, changes, run, validation=None):
    """The steps, and the checkpoint's tensors, of a run of the tiny model."""
    model, config = resolve("lstr-small", {**TINY_SETTINGS, "train.epochs": "2", **changes}, split.dims)
    steps = list(train_model(Task(split, model, config, validation), run))
    return steps, load(run / "checkpoint.pt").model.state_dict()


@pytest.fixture
def easy(feature_set):
    return read_split(feature_set.features, feature_set.labels, "training")


def test_max_steps_ends_run_and_schedule(easy, tmp_path):
    changes = {"train.max_steps": "5", "train.batch_size": "4", "train.log_every": "1", "train.epochs": "9"}
    steps, _ = trained(easy, changes, tmp_path)
    assert [s.step for s in steps] == [1, 2, 3, 4, 5] and steps[-1].steps == 5
    assert steps[-1].lr < 0.5 * max(s.lr for s in steps)


def test_pieces_of_a_batch_make_the_same_step(easy, tmp_path):
    """The loss is a mean over the batch, not over pieces: these hold 5, 5 and 3 windows, and ambiguous chunks."""
    easy.videos[0].targets[:10] = 0
    classes = (*easy.labels.classes, "Ambiguous")
    videos = [replace(v, targets=np.pad(v.targets, ((0, 0), (0, 1)))) for v in easy.videos]
    videos[0].targets[:10, -1] = 1
    ambiguous = replace(easy, labels=replace(easy.labels, classes=classes), videos=videos)
    same = {"model.dropout": "0", "train.hide_long": "0", "train.batch_size": "13", "train.log_every": "1"}
    whole, weights = trained(ambiguous, same, tmp_path / "whole")
    pieces, again = trained(ambiguous, {**same, "train.accumulate": "3"}, tmp_path / "pieces")
    assert len(whole) > 2 and [s.loss for s in whole] == pytest.approx([s.loss for s in pieces], abs=1e-5)
    assert [s.grad_norm for s in whole] == pytest.approx([s.grad_norm for s in pieces], abs=1e-4)
    assert all(torch.allclose(weights[name], again[name], atol=1e-4) for name in weights)


def test_a_batch_that_is_all_ambiguous_changes_nothing(easy, tmp_path):
    classes = (*easy.labels.classes, "Ambiguous")
    none = np.tile(np.array([0, 0, 0, 1], np.uint8), (64, 1))
    videos = [replace(v, targets=none) for v in easy.videos]
    ambiguous = replace(easy, labels=replace(easy.labels, classes=classes), videos=videos)
    steps, weights = trained(ambiguous, {"train.standardise": "false"}, tmp_path)
    model, config = resolve("lstr-small", TINY_SETTINGS, easy.dims)
    torch.manual_seed(config.seed)
    untouched = make_model(model, 4).state_dict()
    assert {s.loss for s in steps} == {0.0}
    assert all(torch.equal(weights[name], untouched[name]) for name in weights)


@pytest.mark.long
def test_bfloat16_learns_the_same(easy, tmp_path):
    changes = {"train.epochs": "8", "train.batch_size": "8", "train.lr": "0.005"}
    exact, _ = trained(easy, changes, tmp_path / "float32")
    rough, weights = trained(easy, {**changes, "train.precision": "bf16"}, tmp_path / "bf16")
    assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
    assert exact[-1].loss != rough[-1].loss == pytest.approx(exact[-1].loss, abs=0.1)
    assert rough[-1].loss < 0.8 * rough[0].loss


@pytest.mark.long
def test_best_by_validation_and_early_end(feature_set, easy, tmp_path):
    validation = read_split(feature_set.features, feature_set.labels, "validation")
    changes = {"train.epochs": "60", "train.eval_every": "2", "train.patience": "2", "train.lr": "0.01"}
    steps, _ = trained(easy, changes, tmp_path / "run", validation=validation)
    scores = [s.evaluation["mAP"] for s in steps if s.evaluation]
    assert all((s.evaluation is not None) == (s.epoch % 2 == 0) for s in steps if s.step % 10)
    assert max(scores) > 0.7 and steps[-1].step < steps[-1].steps, "it ended early"
    assert max(scores[-2:]) <= max(scores[:-2]), "two evaluations were no better"
    best = load(tmp_path / "run" / "best.pt")
    assert best.metrics["validation_videos"] and not {*best.metrics["validation_videos"]} & {
        *best.metrics["training_videos"]
    }
    assert best.metrics["validation"]["mAP"] == max(scores)
    assert result_of(score_split(best, validation)).document["lstr"]["mAP"] == pytest.approx(max(scores), abs=1e-6)
    model, config = resolve("lstr-small", {**TINY_SETTINGS, **changes}, easy.dims)
    assert list(train_model(Task(easy, model, config, validation), tmp_path / "run", resume=True)) == []


def test_patience_needs_evaluations(easy):
    with pytest.raises(ConfigError, match="patience"):
        resolve("lstr-small", {"train.patience": "2"}, easy.dims)


def test_settings_travel(lstr, feature_set, tmp_path):
    """--print-config, config.json and the checkpoint say the same, and --config takes it back."""
    command = ("train", feature_set.features, "--labels", feature_set.labels, "-o", tmp_path / "run")
    tiny = [word for name, value in TINY_SETTINGS.items() for word in ("--set", f"{name}={value}")]
    given = (
        *tiny,
        "--set",
        "train.epochs=1",
        "--set",
        "train.seed=7",
        "--set",
        "train.deterministic=true",
        "--preset",
        "lstr-small",
    )
    code, out, _ = lstr(*command, *given, "--print-config")
    printed = json.loads(out)
    assert code == 0 and not (tmp_path / "run").exists()
    assert (printed["train"]["seed"], printed["train"]["deterministic"]) == (7, True)
    code, out, err = lstr(*command, *given)
    assert code == 0 and out == "" and "checkpoint: " in err
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert not torch.are_deterministic_algorithms_enabled()
    written = json.loads((tmp_path / "run" / "config.json").read_text())
    extra = load(tmp_path / "run" / "checkpoint.pt").extra
    for part in ("model", "train", "data"):
        assert written[part] == printed[part] and (part == "model" or extra[part] == printed[part])
    assert {"versions", "git", "command", "device"} <= extra["made_by"].keys()
    said = json.loads(lstr("info", tmp_path / "run" / "checkpoint.pt", "--json")[1])
    assert said["preset"] == extra["preset"] == printed["preset"] == "lstr-small"
    assert said["changed"] == extra["changed"]
    assert {"train.epochs": 1, "train.seed": 7}.items() <= extra["changed"].items()
    assert {"model.rgb_dim", "train.weight_decay"}.isdisjoint(extra["changed"])
    (tmp_path / "printed.json").write_text(json.dumps(printed))
    code, out, _ = lstr(*command, "--config", tmp_path / "printed.json", "--print-config", "--set", "train.max_steps=3")
    again = json.loads(out)
    assert again["train"] == printed["train"] | {"max_steps": 3} and again["model"] == printed["model"]
    assert again["preset"] == "lstr-small" and again["changed"] == printed["changed"] | {"train.max_steps": 3}
    (tmp_path / "odd.json").write_text('{"model": {}}')
    code, _, err = lstr(*command, "--config", tmp_path / "odd.json")
    assert code == 2 and "odd.json" in err and "hint: " in err


def test_the_source_revision(tmp_path):
    assert git_revision(tmp_path) is None
    commands = "git init -q . && git add . && git -c user.name=x -c user.email=x commit -qm x"
    (tmp_path / "file").write_text("one")
    subprocess.run(commands, shell=True, cwd=tmp_path, check=True)
    clean = git_revision(tmp_path)
    assert len(clean["revision"]) == 40 and clean["changed"] is False
    (tmp_path / "file").write_text("two")
    assert git_revision(tmp_path) == clean | {"changed": True}


def test_a_loss_that_is_no_number_names_the_videos(easy, tmp_path):
    """What was saved before stays: here the steps up to the first with a window of the broken video."""
    broken = replace(video(64, "broken", easy.dims, 3), targets=easy.videos[0].targets)
    broken.features.rgb[:] = np.nan
    with_it = replace(easy, videos=[*easy.videos, broken])
    changes = {"train.batch_size": "1", "train.log_every": "1", "train.save_seconds": "0"}
    with pytest.raises(LstrError, match="loss is nan at step .*, on windows of broken") as caught:
        trained(with_it, {**changes, "train.standardise": "false"}, tmp_path)
    step = int(str(caught.value).split("step ")[1].split(",")[0])
    kept = load(tmp_path / "checkpoint.pt")
    assert step > 0 and 0 < kept.metrics["step"] <= step and caught.value.exit_code == 1


def test_out_of_memory_says_what_to_lower(easy, tmp_path):
    """Real: 250 windows of 64 chunks through 300,000 hidden units are 19 GB, and the process may take 6 more."""
    long = replace(video(16_000, "long", easy.dims), id="long")
    changes = {"model.d_model": "2", "model.n_heads": "1", "model.d_feedforward": "300000", "model.work_length": "64"}
    changes |= {"model.long_length": "0", "train.batch_size": "250", "train.standardise": "false"}
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (held + 6 * 2**30, before[1]))
    try:
        with pytest.raises(LstrError, match="Out of memory on cpu, with batches of 250 windows in 1 piece") as caught:
            trained(replace(easy, videos=[long]), changes, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
    assert "train.accumulate=2" in caught.value.hint

"""A teacher that sees the future: what it learns, what is learned from it, and that nothing of it is left."""

import json
import shutil
from itertools import islice

import numpy as np
import pytest
import torch

from lstr import streaming
from lstr.batch import predict
from lstr.checkpoint import load
from lstr.errors import CheckpointError, ConfigError
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray, read_split
from lstr.pipelines.training.config import resolve
from lstr.pipelines.training.model_run import Learner
from lstr.pipelines.training.train import Task, train_model
from lstr.pipelines.training.window_samples import draw_windows, make_targets, read_windows
from lstr.windows.windows import Outputs
from tests.support.feature_set import TINY_SETTINGS

SETTINGS = {**TINY_SETTINGS, "model.kind": "rnn", "train.batch_size": "4", "train.epochs": "2", "train.log_every": "1"}
TAUGHT = {**SETTINGS, "train.teacher": "4"}
SAVED = {**TAUGHT, "train.save_seconds": "0"}


@pytest.fixture
def split(feature_set):
    return read_split(feature_set.features, feature_set.labels, "training")


def task(split, settings, **changes):
    model, config = resolve("lstr-small", {**settings, **changes}, split.dims)
    return Task(split, model, config)


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def numbered(length):
    """A video whose chunk k has the features k and the class k % 4."""
    rows = np.arange(length, dtype=np.float32)[:, None]
    return LabelledVideo("v", TwoStreamArray(rows, rows), np.eye(4, dtype=np.uint8)[np.arange(length) % 4])


def test_a_teacher_is_late():
    """Its outputs are about what was so many chunks before, as far as its window reaches."""
    model, _ = resolve("lstr-small", {"model.work_length": "6"}, (1, 1))
    outputs = Outputs(np.array([0, 1, 2, 3, 4, 5, -1, -1]), np.array([0] * 6 + [1, -9]))
    drawn = [numbered(20)], [(0, 12), (0, 3)]
    windows, (targets, counts) = read_windows(*drawn, model, False), make_targets(*drawn, model, outputs, delay=2)
    assert windows.work[0, :, 0].tolist() == [7, 8, 9, 10, 11, 12]
    assert counts[0].tolist() == [False] * 2 + [True] * 6, "chunks 5 and 6 are before the window"
    assert targets.argmax(-1)[0, 2:].tolist() == [k % 4 for k in (7, 8, 9, 10, 11, 1)]
    assert counts[1].tolist() == [False] * 2 + [True] * 2 + [False] * 2 + [True, False]


def learner_of(kind, soft, **changes):
    """A learner after one step on two videos of 40 chunks, with its gradients."""
    random = np.random.default_rng(0)
    videos = []
    for name in "ab":
        rows = random.standard_normal((40, 8)).astype(np.float32)
        targets = np.eye(5, dtype=np.uint8)[random.integers(0, 5, 40)]
        videos.append(LabelledVideo(name, TwoStreamArray(rows[:, :5], rows[:, 5:]), targets))
    model, config = resolve("lstr-small", {**TINY_SETTINGS, "model.kind": kind, **changes}, (5, 3))
    learner = Learner(videos, tuple("abcde"), model, config, soft=soft)
    loss, *_ = learner.step(learner.make_batch(draw_windows(videos, model, config, 0)), 0, config.lr)
    return loss, {name: p.grad.clone() for name, p in learner.model.named_parameters() if p.grad is not None}


SOFT = [torch.rand(40, 5, generator=torch.Generator().manual_seed(seed)).softmax(-1) for seed in range(2)]


@pytest.mark.parametrize("kind", ["lstr", "rnn", "colar", "tfn-like"])
def test_a_teacher_changes_loss_and_gradients(kind):
    """Down to the first layer of the model."""
    plain, without = learner_of(kind, None)
    loss, grads = learner_of(kind, SOFT, **{"train.teacher": "4"})
    assert loss > plain + 1e-4 and all(grad.isfinite().all() for grad in grads.values())
    first = next(name for name in grads if name.startswith("feature_head_work"))
    assert not torch.allclose(grads[first], without[first])


def test_a_teacher_that_says_nothing_teaches_nothing():
    plain, without = learner_of("rnn", None)
    loss, grads = learner_of("rnn", [torch.zeros(40, 5)] * 2, **{"train.teacher": "4"})
    assert loss == pytest.approx(plain) and all(torch.allclose(grads[name], without[name]) for name in grads)


def test_a_model_learns_from_its_teacher_and_keeps_nothing_of_them(split, tmp_path):
    steps = list(train_model(task(split, TAUGHT), tmp_path / "run"))
    stages = list(dict.fromkeys(step.stage for step in steps))
    assert stages == ["teacher, 4 chunks late", ""]
    list(train_model(task(split, SETTINGS), tmp_path / "plain"))
    loaded, plain = load(tmp_path / "run" / "checkpoint.pt"), load(tmp_path / "plain" / "checkpoint.pt")
    assert loaded.config == plain.config and loaded.extra["train"]["teacher"] == 4
    ours, theirs = loaded.model.state_dict(), plain.model.state_dict()
    assert {name: t.shape for name, t in ours.items()} == {name: t.shape for name, t in theirs.items()}
    assert not equal(ours, theirs)
    late = json.loads((tmp_path / "run" / "teacher-4" / "config.json").read_text())
    assert late["data"]["delay"] == 4 and late["train"]["teacher"] == 0
    assert late["model"]["work_length"] == plain.config.work_length + 4
    scores = torch.load(tmp_path / "run" / "teacher-4" / "scores.pt", weights_only=True)["scores"]
    assert [len(one) for one in scores] == [64] * 3 and not scores[0][-4:].any() and scores[0][:-4].any(-1).all()

    assert not list((tmp_path / "run").glob("teacher-*/checkpoint.pt")), "nobody is to take it for a model"
    for folder in (tmp_path / "run").glob("teacher-*"):
        shutil.rmtree(folder)
    features = split.videos[0].features[:]
    batch = predict(load(tmp_path / "run" / "checkpoint.pt").model, features)
    state = streaming.create(loaded.model)
    stream = [streaming.step(loaded.model, state, row[:6], row[6:]) for row in features]
    torch.testing.assert_close(torch.stack(stream), batch, atol=1e-5, rtol=0)


@pytest.mark.long
def test_a_run_with_a_teacher_goes_on_to_the_bit(split, tmp_path):
    """From within the teacher of 10 steps and the model."""
    list(train_model(task(split, SAVED), tmp_path / "whole"))
    for resume, more in ((False, 3), (True, 10), (True, 99)):
        stopped = train_model(task(split, SAVED), tmp_path / "parts", resume=resume)
        list(islice(stopped, more))
        stopped.close()
        torch.rand(7)
    for name in ("resume.pt", "teacher-4/resume.pt"):
        ours, theirs = (torch.load(tmp_path / run / name, weights_only=True)["model"] for run in ("parts", "whole"))
        assert equal(ours, theirs), name
    logs = [(tmp_path / run / "metrics.jsonl").read_text().splitlines() for run in ("whole", "parts")]
    assert [json.loads(line)["loss"] for line in logs[0]] == [json.loads(line)["loss"] for line in logs[1]]


@pytest.mark.long
def test_other_settings_are_no_run_to_go_on_with(split, tmp_path):
    stopped = train_model(task(split, SAVED), tmp_path / "run")
    list(islice(stopped, 3))
    stopped.close()
    for resume, words in ((True, r"train\.lr was 0.0005, is 0.1"), (False, "already holds a run")):
        with pytest.raises(CheckpointError, match=words):
            list(train_model(task(split, TAUGHT, **{"train.lr": "0.1"}), tmp_path / "run", resume=resume))
    list(train_model(task(split, TAUGHT), tmp_path / "run", resume=True))
    with pytest.raises(CheckpointError, match=r"train\.teacher was 4, is 0"):
        list(train_model(task(split, SETTINGS), tmp_path / "run", resume=True))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"train.teacher": "-1"}, "train.teacher is '-1'"),
        ({"train.teacher": "half"}, "teacher is 'half'"),
        ({"train.teacher": "64"}, "train.teacher is 64, and the longest training video has 64 chunks"),
        ({"train.teacher": "4", "model.kind": "fats"}, "kind fats has no scores of each chunk"),
        ({"train.teacher": "4", "model.kind": "woad"}, "kind woad has no scores of each chunk"),
    ],
)
def test_what_does_not_fit_is_refused(split, changes, words):
    with pytest.raises(ConfigError, match=words) as caught:
        task(split, SETTINGS, **changes)
    assert caught.value.hint


@pytest.mark.slow
def test_by_the_command_and_it_knows_what_comes(lstr, tmp_path):
    """Three chunks after an action there is a mark, which tells it: the teacher knows actions that nobody else can."""
    random = np.random.default_rng(0)
    database = {}
    for name in ("a", "b", "c", "d"):
        labels = random.integers(0, 2, 30).repeat(4)  # of a second each
        rows = 0.1 * random.standard_normal((120, 4)).astype(np.float32)
        rows[4:, 0] += labels[:-4]
        for stream, part in (("rgb_x", rows[:, :2]), ("flow_x", rows[:, 2:])):
            (tmp_path / "features" / stream).mkdir(parents=True, exist_ok=True)
            np.save(tmp_path / "features" / stream / f"{name}.npy", part)
        on = [{"label": "act", "segment": [k, k + 1]} for k in range(30) if labels[4 * k]]
        database[name] = {"subset": "training", "duration": 30, "annotations": on}
    (tmp_path / "labels.json").write_text(json.dumps({"classes": ["act"], "database": database}))
    settings = {**SETTINGS, "train.epochs": "20", "train.lr": "0.01", "train.teacher": "4", "train.log_every": "50"}
    options = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
    features, labels = tmp_path / "features", ("--labels", tmp_path / "labels.json")
    code, _, err = lstr("train", features, *labels, "-o", tmp_path / "run", "--preset", "lstr-small", *options)
    assert code == 0 and "sees 4 chunks of the future" in err and "teacher, 4 chunks late: step" in err, err
    taught = torch.load(tmp_path / "run" / "teacher-4" / "scores.pt", weights_only=True)["scores"]
    for scores, one in zip(taught, read_split(features, tmp_path / "labels.json", "training").videos, strict=True):
        assert (scores.argmax(1)[:116] == torch.from_numpy(one.targets.argmax(1))[:116]).float().mean() > 0.95
    how = ("--allow-seen", "--subset", "training", "--json")
    for mode in ("batch", "stream"):
        code, out, err = lstr(
            "evaluate", tmp_path / "run" / "checkpoint.pt", features, *labels, "--set", f"mode={mode}", *how
        )
        assert code == 0 and json.loads(out)["lstr"]["mAP"] < 0.8, err

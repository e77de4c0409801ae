"""The step of a training: features that are kept on its device, and a teacher that sees the future."""

import json
import shutil
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from lstr import streaming
from lstr.batch import predict
from lstr.checkpoint import load
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import change, configure
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray, read_split
from lstr.pipelines.training import ranks
from lstr.pipelines.training.config import TrainConfig, resolve
from lstr.pipelines.training.model_run import Learner
from lstr.pipelines.training.train import Task, train_model
from lstr.pipelines.training.window_samples import InMemoryFeatures, draw_windows, hide_slots
from lstr.windows.windows import Supervision, distillation
from tests.support.feature_set import TINY_SETTINGS

MODEL = configure(
    rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=16, work_length=6, long_length=16, long_stride=2, n0=3
)
CPU, CLASSES = torch.device("cpu"), tuple("abcd")

SETTINGS = {**TINY_SETTINGS, "model.kind": "rnn", "train.batch_size": "4", "train.epochs": "2", "train.log_every": "1"}
TAUGHT = {**SETTINGS, "train.teacher": "4"}
SAVED = {**TAUGHT, "train.save_seconds": "0"}


def videos(dtype=np.float16) -> list[LabelledVideo]:
    """One longer than all memories, one shorter than the work memory, and one between."""
    random = np.random.default_rng(0)
    made = []
    for n, length in enumerate((700, 3, 20)):
        rgb, flow = (random.standard_normal((length, width)).astype(dtype) for width in (5, 3))
        targets = (random.random((length, 4)) < 0.3).astype(np.uint8)
        made.append(LabelledVideo(f"video {n}", TwoStreamArray(rgb, flow), targets))
    return made


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"gru": True, "anticipation": 2},
        {"positions": "distance", "grid": "fixed"},
        {"long_length": 0},
        {"kind": "cmert", "context": 2},
    ],
    ids=str,
)
@pytest.mark.parametrize(("sampling", "dtype"), [("consistent", np.float16), ("stretched", np.float32)])
def test_windows_of_kept_features_are_those_that_are_read(changes, sampling, dtype, monkeypatch):
    model, train = change(MODEL, changes), TrainConfig(batch_size=7, accumulate=2, long_sampling=sampling)
    data = videos(dtype)
    reading, keeping = (Learner(data, CLASSES, model, train) for _ in range(2))
    keeping.kept = InMemoryFeatures(data, CPU)
    assert keeping.kept.rows.dtype == torch.from_numpy(np.zeros(1, dtype)).dtype
    drawn = draw_windows(data, model, train, 0)
    for rank, size in ((0, 1), (1, 2)):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(ranks, "world_size", lambda size=size: size)
        for at in range(0, len(drawn), 7):
            ours, theirs = (learner.make_batch(drawn[at : at + 7]) for learner in (keeping, reading))
            assert ours.videos == theirs.videos and len(ours.pieces) == len(theirs.pieces) > 0
            for a, b in zip(ours.pieces, theirs.pieces, strict=True):
                for found_here, expected in zip(keeping.move(a), reading.move(b), strict=True):
                    for name, tensor in vars(expected).items():
                        assert tensor is None or torch.equal(getattr(found_here, name), tensor), name
    batch = reading.make_batch([(0, 30)])  # of a single window, for the second process of two
    assert batch.n_windows == 1 and batch.videos == [] and not batch.pieces[0][1].counts.any()


@pytest.mark.parametrize(
    "changes",
    [{}, {"kind": "rnn"}, {"kind": "lfb"}, {"grid": "fixed"}]
    + [{"kind": "cmert", "context": 2}, {"kind": "mat", "groups": 2}],
    ids=str,
)
def test_a_step_never_looks_at_what_a_tensor_holds(changes):
    """Meta tensors hold nothing, so that any such look, which would wait for a GPU, raises."""
    data = videos()
    learner = Learner(data, CLASSES, change(MODEL, changes), TrainConfig())
    learner.kept = InMemoryFeatures(data, CPU)
    model, outputs = learner.model, learner.outputs
    (piece,) = learner.make_batch([(0, 40), (2, 5)]).pieces
    windows, supervision = learner.move(piece)
    meta = torch.device("meta")
    windows = replace(windows, long_mask=hide_slots(windows, 0.5).long_mask).map(lambda tensor: tensor.to(meta))
    logits = model.to(meta)(windows)
    targets, counts = supervision.targets.to(meta), supervision.counts.to(meta)
    held = Supervision(targets, counts, 2, [5.0 for _ in outputs.parts], 2.0, soft=targets)
    loss = model.loss(logits, windows, held) + distillation(model.logits_of(logits), outputs, held, 2.0)
    loss.backward()
    assert loss.device == meta and loss.shape == ()


@pytest.mark.gpu
def test_a_gpu_trains_on_what_it_keeps():
    """Few steps with features on the GPU and with features that are read are the same to rounding."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    data, losses = videos(), []
    drawn = draw_windows(data, MODEL, TrainConfig(), 0)
    for kept in (None, InMemoryFeatures(data, torch.device("cuda"))):
        learner = Learner(data, CLASSES, MODEL, TrainConfig(lr=1e-3), device="cuda")
        learner.kept = kept
        losses.append([learner.step(learner.make_batch(drawn[:16]), number, 1e-3)[0] for number in range(5)])
    np.testing.assert_allclose(*losses, rtol=1e-3)


@pytest.fixture
def split(feature_set):
    return read_split(feature_set.features, feature_set.labels, "training")


def task(split, settings, **changes):
    model, config = resolve("lstr-small", {**settings, **changes}, split.dims)
    return Task(split, model, config)


def equal(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def taught_step(kind, soft, **changes):
    """The loss and the gradients of one step, with what a teacher says of each chunk."""
    model, config = resolve("lstr-small", {**TINY_SETTINGS, "model.kind": kind, **changes}, (5, 3))
    data = videos(np.float32)[::2]
    learner = Learner(data, CLASSES, model, config, soft=soft)
    loss, *_ = learner.step(learner.make_batch(draw_windows(data, model, config, 0)), 0, config.lr)
    return loss, {name: p.grad.clone() for name, p in learner.model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("kind", ["lstr", "rnn", "colar", "tfn-like"])
def test_a_teacher_changes_loss_and_gradients(kind):
    """Down to the first layer of the model; one that says nothing changes nothing."""
    said = [torch.rand(n, 4, generator=torch.Generator().manual_seed(n)).softmax(-1) for n in (700, 20)]
    plain, without = taught_step(kind, None)
    loss, grads = taught_step(kind, said, **{"train.teacher": "4"})
    assert loss > plain + 1e-4 and all(grad.isfinite().all() for grad in grads.values())
    first = next(name for name in grads if name.startswith("feature_head_work"))
    assert not torch.allclose(grads[first], without[first])
    loss, grads = taught_step(kind, [torch.zeros_like(one) for one in said], **{"train.teacher": "4"})
    assert loss == pytest.approx(plain) and all(torch.allclose(grads[name], without[name]) for name in grads)


def test_a_model_learns_from_its_teacher_and_keeps_nothing_of_it(split, tmp_path):
    steps = list(train_model(task(split, TAUGHT), tmp_path / "run"))
    assert list(dict.fromkeys(step.stage for step in steps)) == ["teacher, 4 chunks late", ""]
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

    assert not (tmp_path / "run" / "teacher-4" / "checkpoint.pt").exists(), "nobody is to take it for a model"
    shutil.rmtree(tmp_path / "run" / "teacher-4")
    features = split.videos[0].features[:]
    batch = predict(load(tmp_path / "run" / "checkpoint.pt").model, features)
    state = streaming.create(loaded.model)
    stream = [streaming.step(loaded.model, state, row[:6], row[6:]) for row in features]
    torch.testing.assert_close(torch.stack(stream), batch, atol=1e-5, rtol=0)


@pytest.mark.long
def test_a_run_with_a_teacher_resumes_to_the_bit(split, tmp_path):
    """From within the teacher of 10 steps and the model, with the same settings alone."""
    list(train_model(task(split, SAVED), tmp_path / "whole"))
    for resume, more in ((False, 3), (True, 10), (True, 99)):
        stopped = train_model(task(split, SAVED), tmp_path / "parts", resume=resume)
        list(islice(stopped, more))
        stopped.close()
        torch.rand(7)
        for again, value in ((True, r"train\.lr"), (False, "parts")):
            with pytest.raises(CheckpointError, match=value):
                list(train_model(task(split, TAUGHT, **{"train.lr": "0.1"}), tmp_path / "parts", resume=again))
    for name in ("resume.pt", "teacher-4/resume.pt"):
        ours, theirs = (torch.load(tmp_path / run / name, weights_only=True)["model"] for run in ("parts", "whole"))
        assert equal(ours, theirs), name
    logs = [(tmp_path / run / "metrics.jsonl").read_text().splitlines() for run in ("whole", "parts")]
    assert [json.loads(line)["loss"] for line in logs[0]] == [json.loads(line)["loss"] for line in logs[1]]
    with pytest.raises(CheckpointError, match=r"train\.teacher"):
        list(train_model(task(split, SETTINGS), tmp_path / "parts", resume=True))


@pytest.mark.parametrize(
    ("changes", "value"),
    [
        ({"train.teacher": "-1"}, "'-1'"),
        ({"train.teacher": "half"}, "'half'"),
        ({"train.teacher": "64"}, "64 chunks"),
        ({"train.teacher": "4", "model.kind": "fats"}, "fats"),
        ({"train.teacher": "4", "model.kind": "woad"}, "woad"),
    ],
)
def test_a_teacher_that_does_not_fit_is_refused(split, changes, value):
    with pytest.raises(ConfigError, match=value) as caught:
        task(split, SETTINGS, **changes)
    assert caught.value.hint

"""Steps of a training: features in memory, and a teacher that sees future chunks."""

import json
from contextlib import closing
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest
import torch

from lstr.checkpoint import load
from lstr.errors import CheckpointError, ConfigError
from lstr.kinds import change, configure
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training import ranks
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.model_run import Learner
from lstr.pipelines.training.window_samples import InMemoryFeatures, draw_windows, hide_slots
from lstr.windows.windows import Supervision, distillation
from tests.support.training import read_log, train_tiny

MODEL = configure(
    rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=16, work_length=6, long_length=16, long_stride=2, n0=3
)
CPU, CLASSES = torch.device("cpu"), tuple("abcd")

SETTINGS = {"model.kind": "rnn", "train.batch_size": "4", "train.log_every": "1"}
TEACHER = {**SETTINGS, "train.teacher": "4"}


def videos(dtype=np.float16) -> list[LabelledVideo]:
    """Make a video longer than all memories, one shorter than the work memory, and one between."""
    random, result = np.random.default_rng(0), []
    for n, length in enumerate((700, 3, 20)):
        rgb, flow = (random.standard_normal((length, width)).astype(dtype) for width in (5, 3))
        targets = (random.random((length, 4)) < 0.3).astype(np.uint8)
        result.append(LabelledVideo(f"video {n}", TwoStreamArray(rgb, flow), targets))
    return result


@pytest.mark.parametrize(
    "changes",
    [{}, {"gru": True, "anticipation": 2}, {"positions": "distance", "grid": "fixed"}]
    + [{"long_length": 0}, {"kind": "cmert", "context": 2}],
    ids=str,
)
@pytest.mark.parametrize(("sampling", "dtype"), [("consistent", np.float16), ("stretched", np.float32)])
def test_windows_of_features_in_memory_equal_those_read_from_files(changes, sampling, dtype, monkeypatch):
    model, train = change(MODEL, changes), TrainConfig(batch_size=7, accumulate=2, long_sampling=sampling)
    data = videos(dtype)
    from_files, in_memory = (Learner(data, CLASSES, model, train) for _ in range(2))
    in_memory.kept = InMemoryFeatures(data, CPU)
    assert in_memory.kept.rows.dtype == torch.from_numpy(np.zeros(1, dtype)).dtype
    drawn = draw_windows(data, model, train, 0)
    for rank, size in ((0, 1), (1, 2)):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(ranks, "world_size", lambda size=size: size)
        for at in range(0, len(drawn), 7):
            batch, expected = (learner.make_batch(drawn[at : at + 7]) for learner in (in_memory, from_files))
            assert batch.videos == expected.videos and len(batch.pieces) == len(expected.pieces) > 0
            for a, b in zip(batch.pieces, expected.pieces, strict=True):
                for ours, theirs in zip(in_memory.move(a), from_files.move(b), strict=True):
                    for name, tensor in vars(theirs).items():
                        assert tensor is None or torch.equal(getattr(ours, name), tensor), name
    batch = from_files.make_batch([(0, 30)])  # the second of two processes has no window of it
    assert batch.n_windows == 1 and batch.videos == [] and not batch.pieces[0][1].counts.any()


@pytest.mark.parametrize(
    "changes",
    [{}, {"kind": "rnn"}, {"kind": "lfb"}, {"grid": "fixed"}]
    + [{"kind": "cmert", "context": 2}, {"kind": "mat", "groups": 2}],
    ids=str,
)
def test_a_step_never_reads_values_of_tensors(changes):
    """Reading a value waits for the GPU. Meta tensors have no values, so that reading one raises."""
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
    known = Supervision(targets, counts, 2, [5.0 for _ in outputs.parts], 2.0, soft=targets)
    loss = model.loss(logits, windows, known) + distillation(model.logits_of(logits), outputs, known, 2.0)
    loss.backward()
    assert loss.device == meta and loss.shape == ()


@pytest.mark.gpu
def test_a_gpu_trains_alike_on_features_in_its_memory():
    """Steps with features on the GPU and with features that are read are equal up to rounding."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    data, losses = videos(), []
    drawn = draw_windows(data, MODEL, TrainConfig(), 0)
    for features in (None, InMemoryFeatures(data, torch.device("cuda"))):
        learner = Learner(data, CLASSES, MODEL, TrainConfig(lr=1e-3), device="cuda")
        learner.kept = features
        losses.append([learner.step(learner.make_batch(drawn[:16]), number, 1e-3)[0] for number in range(5)])
    np.testing.assert_allclose(*losses, rtol=1e-3)


def test_a_teacher_does_not_change_the_form_of_a_model(split, tmp_path):
    steps = list(train_tiny(split, tmp_path / "run", TEACHER))
    assert list(dict.fromkeys(step.stage for step in steps)) == ["teacher, 4 chunks late", ""]
    list(train_tiny(split, tmp_path / "plain", SETTINGS))
    loaded, plain = load(tmp_path / "run" / "checkpoint.pt"), load(tmp_path / "plain" / "checkpoint.pt")
    assert loaded.config == plain.config and loaded.extra["train"]["teacher"] == 4
    ours, theirs = loaded.model.state_dict(), plain.model.state_dict()
    assert {name: t.shape for name, t in ours.items()} == {name: t.shape for name, t in theirs.items()}
    assert not all(torch.equal(ours[name], theirs[name]) for name in ours)
    teacher = tmp_path / "run" / "teacher-4"
    config = json.loads((teacher / "config.json").read_text())
    assert config["data"]["delay"] == 4 and config["train"]["teacher"] == 0
    assert config["model"]["work_length"] == plain.config.work_length + 4
    scores = torch.load(teacher / "scores.pt", weights_only=True)["scores"]
    assert [len(rows) for rows in scores] == [64] * 3 and not scores[0][-4:].any() and scores[0][:-4].any(-1).all()
    assert not (teacher / "checkpoint.pt").exists(), "a teacher is not a model to use"


@pytest.mark.long
def test_a_run_with_a_teacher_resumes_bit_for_bit(split, tmp_path):
    """Stopped in the teacher's 10 steps and in the model's, with the same settings only."""
    settings, parts = {**TEACHER, "train.save_seconds": "0"}, tmp_path / "parts"
    list(train_tiny(split, tmp_path / "whole", settings))
    for resume, n_steps in ((False, 3), (True, 10), (True, 99)):
        with closing(train_tiny(split, parts, settings, resume=resume)) as steps:
            list(islice(steps, n_steps))
        torch.rand(7)
        for with_resume, value in ((True, r"train\.lr"), (False, "parts")):
            with pytest.raises(CheckpointError, match=value):
                list(train_tiny(split, parts, {**TEACHER, "train.lr": "0.1"}, resume=with_resume))
    for name in ("resume.pt", "teacher-4/resume.pt"):
        ours, theirs = (torch.load(run / name, weights_only=True)["model"] for run in (parts, tmp_path / "whole"))
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours), name
    assert read_log(parts) == read_log(tmp_path / "whole")
    with pytest.raises(CheckpointError, match=r"train\.teacher"):
        list(train_tiny(split, parts, SETTINGS, resume=True))


@pytest.mark.parametrize(
    ("kind", "teacher", "value"),
    [("rnn", "-1", "'-1'"), ("rnn", "64", "64"), ("fats", "4", "fats"), ("woad", "4", "woad")],
)
def test_invalid_teachers_are_refused(split, tmp_path, kind, teacher, value):
    with pytest.raises(ConfigError, match=value) as caught:
        train_tiny(split, tmp_path, {"model.kind": kind, "train.teacher": teacher})
    assert caught.value.hint

"""Features that are kept on the device of a training: the same windows to the bit, and nothing that waits for a GPU."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr.kinds import change, configure
from lstr.pipelines.features.dataset import LabelledVideo, TwoStreamArray
from lstr.pipelines.training import ranks
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.model_run import Learner
from lstr.pipelines.training.window_samples import InMemoryFeatures, draw_windows, hide_slots
from lstr.windows.windows import Supervision, distillation

MODEL = configure(
    rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=16, work_length=6, long_length=16, long_stride=2, n0=3
)
CPU, CLASSES = torch.device("cpu"), tuple("abcd")


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
def test_windows_are_those_that_are_read(changes, sampling, dtype, monkeypatch):
    model, train = change(MODEL, changes), TrainConfig(batch_size=7, accumulate=2, long_sampling=sampling)
    data = videos(dtype)
    reading, keeping = (Learner(data, CLASSES, model, train) for _ in range(2))
    keeping.kept = InMemoryFeatures(data, CPU)
    assert keeping.kept.rows.dtype == torch.from_numpy(np.zeros(1, dtype)).dtype
    for rank, size in ((0, 1), (1, 2)):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        monkeypatch.setattr(ranks, "world_size", lambda size=size: size)
        drawn = draw_windows(data, model, train, 0)
        for at in range(0, len(drawn), 7):
            ours, theirs = (learner.make_batch(drawn[at : at + 7]) for learner in (keeping, reading))
            assert ours.videos == theirs.videos and len(ours.pieces) == len(theirs.pieces) > 0
            for a, b in zip(ours.pieces, theirs.pieces, strict=True):
                for found_here, expected in zip(keeping.move(a), reading.move(b), strict=True):
                    for name, tensor in vars(expected).items():
                        assert tensor is None or torch.equal(getattr(found_here, name), tensor), name


def test_a_process_without_windows_counts_none(monkeypatch):
    learner = Learner(videos(), CLASSES, MODEL, TrainConfig())
    monkeypatch.setattr(ranks, "rank", lambda: 1)
    monkeypatch.setattr(ranks, "world_size", lambda: 2)
    batch = learner.make_batch([(0, 30)])
    assert batch.n_windows == 1 and batch.videos == [] and not batch.pieces[0][1].counts.any()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"kind": "rnn"},
        {"kind": "lfb"},
        {"grid": "fixed"},
        {"kind": "cmert", "context": 2},
        {"kind": "mat", "groups": 2},
    ],
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
    windows = replace(windows, long_mask=hide_slots(windows, 0.5).long_mask).to(meta)
    logits = model.to(meta)(windows)
    totals = [5.0 for _ in outputs.parts]
    targets, counts = supervision.targets.to(meta), supervision.counts.to(meta)
    held = Supervision(targets, counts, 2, totals, 2.0, soft=targets)
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

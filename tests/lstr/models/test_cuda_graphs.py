"""What a captured step needs, as far as a CPU can show: fixed memory, two shapes, nothing that waits for a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lstr import streaming
from lstr.errors import LstrError
from lstr.kinds import KINDS
from lstr.models.cuda_graphs import CapturedStep
from lstr.windows.plans import CHANGES
from tests.support.playlists import scores_of
from tests.support.tiny_models import tiny

DESIGNS = [
    *({"kind": kind} for kind in KINDS if kind != "mat"),
    {"grid": "sliding", "positions": "distance"},
    {"gru": True, "anticipation": 2},
    {"encoder": "none", "integration": "average"},
    {"encoder": "joined"},
    {"kind": "mat", "groups": 2},
    {"kind": "testra", "grid": "anchored", "decay": 0.9, "anticipation": 2},
]
# a design of its own is a variation of its kind, which every run tries
KINDS_FIRST = [
    pytest.param(changes, marks=pytest.mark.long) if {*changes} != {"kind"} else changes for changes in DESIGNS
]


@pytest.mark.parametrize("changes", KINDS_FIRST, ids=str)
def test_a_captured_step_of_some_streams_leaves_the_others(changes, monkeypatch):
    """A graph steps every stream; what it does to one that has no chunk must be nothing that its next step reads.

    Kernels run again instead of a replay: all that a replay reads must have been copied to where it was.
    """
    monkeypatch.setattr(CapturedStep, "capture", lambda self, work: work)
    model = tiny(**changes)
    random = np.random.default_rng(0)
    plain, captured = streaming.create(model, 3), streaming.create(model, 3)
    captured.captured = CapturedStep(model, captured.constants, captured.tensors)
    captured.captured.prepare()
    assert set(captured.captured.replays) == ({False, True} if CHANGES in model.planner(np.array([0])) else {False})
    for k in range(70):
        if k == 20:
            streaming.reset(plain, [1])
            streaming.reset(captured, [1])
        streams = sorted(random.choice(3, random.integers(1, 4), replace=False).tolist())
        rgb, flow = torch.randn(len(streams), 8).split([5, 3], dim=1)
        expected = streaming.step_streams(model, plain, streams, rgb, flow)
        scores = streaming.step_streams(model, captured, streams, rgb, flow)
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=0)
    assert (plain.chunks == captured.chunks).all() and plain.chunks.min() > 25


def test_only_a_gpu_captures():
    model = tiny()
    with pytest.raises(LstrError, match="on a GPU"):
        streaming.capture(model, streaming.create(model))


@pytest.mark.gpu
@pytest.mark.parametrize("changes", DESIGNS, ids=str)
def test_captured_steps_equal_the_cpu(changes):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    model = tiny(**changes)
    features = torch.randn(2, 60, 8)
    expected = torch.stack([scores_of(model, video) for video in features], dim=1)
    model.to("cuda")
    state = streaming.create(model, 2)
    streaming.capture(model, state)
    steps = features.transpose(0, 1)
    scores = torch.stack([streaming.step_ahead(model, state, rows[:, :5], rows[:, 5:]) for rows in steps])
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=0)
    streaming.reset(state)
    for k in range(60):  # one after the other, which is what cameras do
        for stream in (1, 0):
            rows = features[stream, k, None]
            scores = streaming.step_streams(model, state, [stream], rows[:, :5], rows[:, 5:])
            torch.testing.assert_close(scores[0], expected[k, stream], atol=1e-4, rtol=0)

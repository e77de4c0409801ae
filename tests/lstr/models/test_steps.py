"""A step of every kind: a pure function of tensors, whose numbers do not depend on how much of its plan is given."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from lstr.kinds import KINDS
from lstr.models.layers import keep
from lstr.windows.plans import needed, of_two_shapes
from tests.support.playlists import scores_of
from tests.support.tiny_models import AVERAGED, tiny, unsettled, video

OF_THEIR_OWN = {
    "lstr": [{"grid": "sliding"}, {"gru": True, "anticipation": 2}, {"encoder": "none", "positions": "distance"}],
    "rnn": [{"cell": "gru"}],
    "miniroad": [{"anticipation": 2}],
    "trn": [{"anticipation": 2, "decoder_from": 0}],
    "testra": [{"grid": "anchored", "decay": 0.9}],
    "gatehub": [{"n_heads": 2, "d_model": 160, "n0": 8}],  # long enough for a stream to keep parts of its gates
    "mat": [{"grid": "sliding", "groups": 2}],
}
CASES = [(kind, changes) for kind in KINDS for changes in ({}, *OF_THEIR_OWN.get(kind, ()))]
CASES += [("average", AVERAGED)]
LONG = (AVERAGED, *OF_THEIR_OWN["mat"])  # several seconds each; every kind that they are made of is tried in every run
CASES = [pytest.param(*case, marks=pytest.mark.long) if case[1] in LONG else case for case in CASES]
each_case = pytest.mark.parametrize("kind, changes", CASES, ids=lambda of: "…" if of is AVERAGED else str(of))


def made(kind, changes):
    return unsettled(tiny(**{"kind": kind, **changes})).requires_grad_(False)


def as_tensors(plan, device="cpu"):
    return {name: torch.from_numpy(values).to(device) for name, values in plan.items()}


def ages(n_steps):
    """Chunks seen (3,) before each step by three streams that begin, and begin anew, at different times."""
    for step in range(n_steps):
        yield np.array([step, step % 19, step - 11 if step >= 11 else step])


@each_case
def test_a_step_changes_nothing_it_is_given_and_a_donated_one_gives_the_same(kind, changes):
    """Streams by the pure function alone, from step to step; the donated ones are those of `lstr.streaming`."""
    model = made(kind, changes)
    constants, pure, donated = model.constants(), model.begin(3), model.begin(3)
    videos = torch.stack([video(45, seed) for seed in range(3)])
    outcome = []
    for k, chunks in enumerate(ages(45)):
        features = videos[:, k]
        given = {**{f"tensor {n}": t for n, t in pure.items()}, "features": features}
        plan = as_tensors(model.planner(chunks))
        given |= {f"plan {n}": t for n, t in plan.items()}
        before = {name: tensor.clone() for name, tensor in given.items()}
        logits, after = model.step(constants, pure, plan, features)
        for name, tensor in given.items():
            assert torch.equal(tensor, before[name]), name
        assert {n: (t.shape, t.dtype) for n, t in after.items()} == {n: (t.shape, t.dtype) for n, t in pure.items()}
        least = as_tensors(needed(model.planner(chunks)))
        same_logits, rings = model.step(constants, donated, least, features, donate=True)
        keep(donated, rings)
        torch.testing.assert_close(same_logits, logits, atol=1e-5, rtol=0)
        pure = after
        outcome.append(logits.softmax(dim=-1))
    scores = torch.stack(outcome, dim=1)  # (B, T, 1 + n_ahead, C)
    for stream, begin, end in ((0, 0, 45), (1, 19, 38), (2, 0, 11), (2, 11, 45)):
        expected = scores_of(model, videos[stream, begin:end])
        torch.testing.assert_close(scores[stream, begin:end], expected, atol=1e-5, rtol=0)


@each_case
def test_a_plan_has_shapes_that_follow_from_the_number_of_streams(kind, changes):
    """A captured or an exported step runs again only on arrays of the shapes it was made with."""
    model, shapes = made(kind, changes), set()
    for chunks in [*ages(120), np.array([3, 3, 3]), np.array([0, 0, 0])]:
        plan = model.planner(chunks)
        shapes.add(tuple((name, values.shape, values.dtype) for name, values in plan.items()))
        assert all(isinstance(values, np.ndarray) and values.dtype in (np.int64, np.bool_) for values in plan.values())
        for name in plan:
            if "." in name:
                group = plan[name.partition(".")[0]]
                assert group.dtype == np.bool_ and group.shape == (3,) == plan[name].shape[:1]
    assert len(shapes) == 1


@each_case
def test_a_step_never_looks_at_what_a_tensor_holds(kind, changes):
    """Meta tensors hold nothing, so any such look, which on a GPU would wait and cannot be captured, raises."""
    model = made(kind, changes).to("meta")
    constants, tensors = model.constants(), model.begin(2)
    for k in (0, 3, 40, 41, 42, 43):
        plan = as_tensors(of_two_shapes(model.planner(np.array([k, k + 5]))), "meta")
        logits, _ = model.step(constants, tensors, plan, torch.zeros(2, 8, device="meta"))
        assert logits.shape == (2, 1 + model.config.n_ahead, 5)

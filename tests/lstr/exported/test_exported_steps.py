"""An exported step of every kind: the scores of its model, from the first chunk to past the memory's end."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from lstr.errors import CheckpointError, LstrError
from lstr.exported import StepDescription, create, open_step, reset, step_streams
from lstr.exported_graphs import describe, make_graph
from tests.support.tiny_models import CASES, name_of, perturb, scores_of, tiny, video

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
ROOT = Path(__file__).resolve().parents[3]
QUICK = ("rnn", "oadtr", "colar", "miniroad")  # a second and less; `make test-all` has all


def exported(model, n_streams=1):
    description = describe(model, n_streams)
    return open_step(description, make_graph(model, description))


@pytest.mark.parametrize(
    "case", [pytest.param(of, id=name_of(of), marks=[pytest.mark.long] * (name_of(of) not in QUICK)) for of in CASES]
)
def test_an_exported_step_scores_as_its_model(case):
    model = perturb(tiny(**case)).requires_grad_(False)
    step, features = exported(model), video(60)
    state = create(step)
    scores = np.concatenate([step_streams(step, state, [0], row[None, :5], row[None, 5:]) for row in features.numpy()])
    assert abs(scores - scores_of(model, features).numpy()).max() < 1e-5


@pytest.mark.long
@pytest.mark.parametrize("kind", ["rnn", "fats", "gatehub"])
def test_streams_of_a_batch_come_and_go(kind):
    """Three streams through a graph of two: they begin at different times, and one begins anew."""
    model = perturb(tiny(kind=kind)).requires_grad_(False)
    step, videos = exported(model, 2), [video(40, seed).numpy() for seed in range(3)]
    state, seen, at = create(step, 3), [[], [], []], [0, 0, 0]
    for k in range(40):
        which = [n for n in (2, 0, 1) if n == 0 or k >= 5 * n]
        if k == 30:
            reset(state, [1])
            at[1], seen[1] = 0, []
        rows = np.stack([videos[n][at[n]] for n in which])
        for n, scores in zip(which, step_streams(step, state, which, rows[:, :5], rows[:, 5:]), strict=True):
            seen[n].append(scores)
            at[n] += 1
    for n in range(3):
        assert state.chunks[n] == at[n] < 41
        assert abs(np.stack(seen[n]) - scores_of(model, video(40, n)[: at[n]]).numpy()).max() < 1e-5, n


@pytest.mark.parametrize(
    "rgb, flow",
    [
        (None, np.zeros(3)),
        (np.zeros(4), np.zeros(3)),
        (np.zeros(5), np.full(3, np.nan)),
        (np.array(["a"] * 5), np.zeros(3)),
    ],
)
def test_features_that_do_not_fit_leave_a_stream_as_it_is(rgb, flow):
    step = exported(tiny(kind="rnn"))
    state = create(step)
    with pytest.raises(LstrError):
        step_streams(step, state, [0], *(part if part is None else part[None] for part in (rgb, flow)))
    assert state.chunks.tolist() == [0] and not state.tensors["hidden"].any()


def test_a_description_says_what_a_step_takes_and_no_more():
    described = msgspec.to_builtins(describe(tiny(), 2))
    assert StepDescription.from_dict(described) == describe(tiny(), 2)
    wrong = [
        {"streams": 0},
        {"streams": 10**6},
        {"classes": -1},
        {"rgb_dim": "5"},
        {"kept": {"a": {"shape": [2**20, 2**20], "dtype": "float32"}}},
        {"kept": {"a": {"shape": [3], "dtype": "object"}}},
        {"kept": {"a": {"shape": [-1], "dtype": "bool"}}},
        {"plan": {"form": "eval"}},
        {"plan": None},
    ]
    for entry in [None, *(described | changed for changed in wrong)]:
        with pytest.raises(CheckpointError):
            StepDescription.from_dict(entry)


def test_a_graph_is_that_of_its_model_alone():
    model = tiny(kind="rnn")
    graph = make_graph(model, describe(model, 1))
    assert graph == make_graph(tiny(kind="rnn"), describe(model, 1))
    assert b".py" not in graph and str(ROOT).encode() not in graph
    for description, content in ((describe(model, 2), graph), (describe(model, 1), graph[:100])):
        with pytest.raises(CheckpointError):
            open_step(description, content)

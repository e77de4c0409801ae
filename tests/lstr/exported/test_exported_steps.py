"""Exported steps of every kind: the scores of their model, invalid features, descriptions and graphs."""

import msgspec
import numpy as np
import pytest

from lstr.errors import CheckpointError, LstrError
from lstr.exported import StepDescription, create, open_step, reset, step_streams
from lstr.exported_graphs import describe, make_graph
from tests.support.tiny_models import CASES, name_of, perturb, scores_of, tiny, video

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
QUICK = ("rnn", "oadtr", "colar", "miniroad")  # at most a second; `make test-all` runs all


def exported(model, n_streams=1):
    description = describe(model, n_streams)
    return open_step(description, make_graph(model, description))


@pytest.fixture(
    params=[pytest.param(of, id=name_of(of), marks=[pytest.mark.long] * (name_of(of) not in QUICK)) for of in CASES]
)
def exported_model(request):
    model = perturb(tiny(**request.param)).requires_grad_(False)
    return model, exported(model, 2)


def test_exported_streams_score_as_their_model(exported_model):
    """Three streams in a graph of two: they start at different times, and one starts over."""
    (model, step), videos = exported_model, [video(60, seed) for seed in range(3)]
    state, scores = create(step, 3), [[], [], []]
    for k in range(60):
        streams = [n for n in (2, 0, 1) if n == 0 or k >= 5 * n]
        if k == 35:
            reset(state, [1])
            scores[1] = []
        rows = np.stack([videos[n][len(scores[n])] for n in streams])
        for n, row in zip(streams, step_streams(step, state, streams, rows[:, :5], rows[:, 5:]), strict=True):
            scores[n].append(row)
    assert state.chunks.tolist() == [60, 25, 50]
    for ours, features in zip(scores, videos, strict=True):
        assert abs(np.stack(ours) - scores_of(model, features[: len(ours)]).numpy()).max() < 1e-5


def test_invalid_features_and_streams_leave_a_stream_unchanged():
    step = exported(tiny(kind="rnn"))
    state, rgb, flow = create(step), np.zeros((1, 5)), np.zeros((1, 3))
    wrong = [(None, flow), (rgb[:, :4], flow), (rgb, flow + np.nan), (rgb, flow + 3e38), (rgb.astype(str), flow)]
    for streams, *parts in [*(([0], *parts) for parts in wrong), ([1], rgb, flow), ([0, 0], rgb, flow)]:
        with pytest.raises(LstrError):
            step_streams(step, state, streams, *parts)
    assert state.chunks.tolist() == [0] and not state.tensors["hidden"].any()


TENSORS = [([2**20, 2**20], "float32"), ([3], "object"), ([-1], "bool")]
INVALID = {
    "streams": [0, 10**6],
    "classes": [-1],
    "rgb_dim": ["5"],
    "kept": [{"a": {"shape": shape, "dtype": dtype}} for shape, dtype in TENSORS],
    "plan": [{"form": "eval"}, None],
}


def test_descriptions_survive_json_or_are_refused():
    description = msgspec.to_builtins(describe(tiny(), 2))
    assert StepDescription.from_dict(description) == describe(tiny(), 2)
    invalid = [{**description, name: value} for name, values in INVALID.items() for value in values]
    for entry in (None, *invalid):
        with pytest.raises(CheckpointError):
            StepDescription.from_dict(entry)


def test_a_graph_depends_only_on_its_model_and_matches_its_description():
    model = tiny(kind="rnn")
    graph = make_graph(model, describe(model, 1))
    assert graph == make_graph(tiny(kind="rnn"), describe(model, 1))
    assert b".py" not in graph, "no paths of this machine"
    for description, content in ((describe(model, 2), graph), (describe(model, 1), graph[:100])):
        with pytest.raises(CheckpointError):
            open_step(description, content)

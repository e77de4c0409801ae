"""A stream gives what `Model.video_logits` defines, whatever came before, and keeps to itself."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr import streaming
from lstr.errors import LstrError
from lstr.kinds import configure, make_model
from lstr.models.lstr import ENCODERS, INTEGRATIONS
from tests.support.playlists import defined, scores_of
from tests.support.tiny_models import unsettled, video

W, L = 4, 8
TINY = dict(rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=24, work_length=W, long_length=L, n0=3, n1=4)
PLAYLISTS = [(1, 2, W - 1, W, W + 1, L + 2), (L - 1, L, L + 2), (L + 1, 2 * L), (3 * L, 1)]
"""Lengths of the videos that each stream of a state plays, one after the other."""
DESIGNS = [
    pair for pair in itertools.product(ENCODERS, INTEGRATIONS) if pair[0] != "joined" or pair[1] == INTEGRATIONS[0]
]
# Grid, positions, GRU, chunks ahead, stride. Every two values of two of them meet; a design meets one row of each half,
# the next design the next ones.
EXTRAS = (
    ("fixed", "slot", False, 0, 4),
    ("fixed", "distance", True, 0, 1),
    ("fixed", "slot", True, 2, 1),
    ("fixed", "distance", False, 2, 4),
    ("sliding", "distance", True, 2, 4),
    ("sliding", "slot", True, 0, 4),
    ("sliding", "distance", False, 0, 1),
    ("sliding", "slot", False, 2, 1),
)
FAMILIES = [
    {},
    {"grid": "sliding", "positions": "distance"},
    {"encoder": "one-stage", "gru": True},
    {"encoder": "stage2-self-attention", "integration": "average"},
    {"encoder": "self-attention", "grid": "sliding"},
    {"encoder": "projection", "integration": "concatenation", "anticipation": 2},
    {"encoder": "none", "gru": True, "anticipation": 2},
    {"encoder": "joined", "anticipation": 2},
    {"integration": "mlp"},
    {"long_length": 0},
    {"kind": "rnn"},
    {"kind": "rnn", "cell": "gru"},
    {"kind": "trn", "anticipation": 2},
    {"kind": "miniroad", "anticipation": 2},
    {"kind": "testra", "grid": "anchored", "decay": 0.8, "anticipation": 2},
    {"kind": "lfb"},
    {"kind": "trn", "anticipation": 2, "d_token": 6, "shared_classifier": True, "decoder_from": 0},
    {"kind": "gatehub", "long_stride": 2},
    {"kind": "oadtr", "anticipation": 2, "decoder_heads": 2, "decoder_feedforward": 8},
    {"kind": "colar", "exemplars": 2},
    {"kind": "cmert", "grid": "anchored", "context": 2, "anticipation": 2},
    {"kind": "mat", "grid": "sliding", "long_stride": 2, "groups": 2, "anticipation": 2},
    {"kind": "lap-like", "anticipation": 2},
    {"kind": "tfn-like"},
    {"kind": "conv-deconv"},
]


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    return unsettled(make_model(configure(**{**TINY, **changes}), 5).eval())


def run(model, features, state=None):
    """Scores (T, ..., 1 + n_ahead, C) of features (T, D) of a stream, or (T, B, D) of a state of B."""
    if state is None:
        state = streaming.create(model, 1 if features.ndim == 2 else features.shape[1])
    rgb = model.config.rgb_dim
    return torch.stack([streaming.step_ahead(model, state, row[..., :rgb], row[..., rgb:]) for row in features])


def run_playlists(model, playlists, state=None):
    """Scores (B, T, 1 + n_ahead, C) from one state: each stream plays its videos, and is reset alone between them."""
    begins = [set(np.cumsum([len(video) for video in videos])[:-1]) for videos in playlists]
    features = torch.stack([torch.cat(videos) for videos in playlists], dim=1)  # (T, B, D)
    state = streaming.create(model, len(playlists)) if state is None else state
    rows = []
    for t, row in enumerate(features):
        new = [stream for stream, times in enumerate(begins) if t in times]
        if new:
            streaming.reset(state, new)
        rows.append(run(model, row[None], state)[0])
    return torch.stack(rows, dim=1)


def check(model, lengths):
    """Stream against definition, for videos of these lengths by stream, which sum to the same."""
    width = model.config.input_dim
    playlists = [[video(n, 10 * i + k, width) for k, n in enumerate(row)] for i, row in enumerate(lengths)]
    expected = defined(model, playlists)
    torch.testing.assert_close(run_playlists(model, playlists), expected, atol=1e-5, rtol=0)
    return expected


@pytest.mark.long
@pytest.mark.parametrize(
    "encoder, integration, grid, positions, gru, anticipation, stride",
    [(*design, *EXTRAS[(i + i // 4) % 4 + half]) for i, design in enumerate(DESIGNS) for half in (0, 4)],
)
def test_stream_equals_batch(encoder, integration, grid, positions, gru, anticipation, stride):
    """Streams of all ages in one state, each beginning anew in the middle, over what earlier videos left behind."""
    anticipation = 0 if integration == "mlp" else anticipation
    added = {"gru": gru, "anticipation": anticipation, "long_stride": stride}
    expected = check(tiny(encoder=encoder, integration=integration, grid=grid, positions=positions, **added), PLAYLISTS)
    assert expected.diff(dim=1).abs().amax(dim=(2, 3)).min() > 1e-4  # scores that move can be wrong


@pytest.mark.parametrize("grid", ["fixed", "sliding"])
def test_stream_equals_batch_with_the_published_work_memory(grid):
    model = tiny(grid=grid, work_length=32, long_length=64)
    check(model, [(1, 2, 31, 32, 33, 93), (63, 64, 65), (95, 97), (96, 96), (192,)])


@pytest.mark.parametrize(
    "changes",
    [
        {"long_length": 0},
        {"long_length": 0, "l_dec": 1},
        {"long_length": 0, "gru": True},
        {"long_length": 0, "gru": True, "integration": "average", "anticipation": 1},
        {"long_length": 0, "gru": True, "integration": "mlp"},
        {"long_length": 0, "anticipation": 3},
        {"l_dec": 1, "l_enc": 1},
        {"l_dec": 1, "anticipation": 2},
        {"l_dec": 3, "l_enc": 3},
        {"work_length": 1},
        {"work_length": 1, "long_length": 0},
        {"work_length": 1, "gru": True, "anticipation": 2},
        {"work_length": 3, "long_length": 16, "long_stride": 8},
        {"long_length": 4},
        {"long_length": 4, "grid": "sliding", "positions": "distance"},
        {"grid": "anchored", "positions": "distance", "gru": True},
        {"kind": "testra"},
        {"kind": "testra", "grid": "anchored", "l_dec": 1},
        {"kind": "testra", "grid": "anchored", "l_dec": 3, "work_length": 1, "anticipation": 1, "decay": 0.5},
        {"kind": "testra", "long_length": 0},
        {"kind": "cmert", "grid": "anchored", "context": 3, "work_length": 2, "anticipation": 1, "l_dec": 1},
        {"kind": "mat", "work_length": 1, "long_length": 4, "l_dec": 1, "flow_dim": 0, "rgb_dim": 8},
        {"kind": "lap-like", "work_length": 1, "anticipation": 1},
        {"kind": "tfn-like", "work_length": 1},
        {"kind": "tfn-like", "work_length": 7},
        {"kind": "conv-deconv", "work_length": 1},
        {"kind": "conv-deconv", "work_length": 7},
        {"rgb_dim": 0, "flow_dim": 8},
    ],
    ids=str,
)
def test_stream_equals_batch_in_odd_shapes(changes):
    check(tiny(**changes), [(1, 7, 30), (38,)])


@pytest.mark.long
@settings(max_examples=12)
@given(
    seed=st.integers(0, 1000),
    total=st.integers(1, 40),
    cuts=st.lists(st.integers(1, 39), min_size=1, max_size=3),
    work_length=st.integers(1, 7),
    n_long=st.integers(0, 5),
    stride=st.integers(1, 5),
    design=st.sampled_from(DESIGNS),
    anticipation=st.integers(0, 3),
    changes=st.fixed_dictionaries(
        {
            "grid": st.sampled_from(["fixed", "sliding", "anchored"]),
            "positions": st.sampled_from(["slot", "distance"]),
            "gru": st.booleans(),
            "n0": st.integers(1, 4),
            "n1": st.integers(1, 4),
            "l_enc": st.integers(1, 3),
            "l_dec": st.integers(1, 3),
            "n_heads": st.sampled_from([1, 2, 8]),
        }
    ),
)
def test_stream_equals_batch_for_any_shape(
    seed, total, cuts, work_length, n_long, stride, design, anticipation, changes
):
    memory = {"work_length": work_length, "long_length": n_long * stride, "long_stride": stride}
    added = {"anticipation": 0 if design[1] == "mlp" else anticipation}
    lengths = [(cut, total - cut) if cut < total else (total,) for cut in cuts]
    check(tiny(seed, encoder=design[0], integration=design[1], **memory, **added, **changes), lengths)


@pytest.mark.long
@settings(max_examples=6)
@given(
    seed=st.integers(0, 1000),
    total=st.integers(1, 40),
    cuts=st.lists(st.integers(1, 39), min_size=1, max_size=3),
    n_long=st.integers(0, 5),
    stride=st.integers(1, 5),
    changes=st.fixed_dictionaries(
        {
            "grid": st.sampled_from(["anchored", "fixed", "sliding"]),
            "decay": st.sampled_from([1.0, 0.97, 0.5]),
            "work_length": st.integers(1, 7),
            "anticipation": st.integers(0, 3),
            "n0": st.integers(1, 4),
            "l_enc": st.integers(1, 2),
            "l_dec": st.integers(1, 3),
            "n_heads": st.sampled_from([1, 2, 8]),
        }
    ),
)
def test_stream_equals_batch_for_any_testra(seed, total, cuts, n_long, stride, changes):
    lengths = [(cut, total - cut) if cut < total else (total,) for cut in cuts]
    check(tiny(seed, kind="testra", long_length=n_long * stride, long_stride=stride, **changes), lengths)


@pytest.mark.long
@settings(max_examples=8, derandomize=True)  # of two keys that tie to rounding, MAT may keep another one
@given(
    seed=st.integers(0, 1000),
    total=st.integers(1, 40),
    cuts=st.lists(st.integers(1, 39), min_size=1, max_size=3),
    n_groups=st.integers(0, 2),
    per_group=st.integers(2, 3),
    stride=st.integers(1, 4),
    kind=st.sampled_from(["cmert", "mat"]),
    context=st.integers(0, 3),
    changes=st.fixed_dictionaries(
        {
            "grid": st.sampled_from(["anchored", "fixed", "sliding"]),
            "work_length": st.integers(1, 7),
            "anticipation": st.integers(0, 3),
            "n0": st.integers(1, 4),
            "l_enc": st.integers(1, 2),
            "l_dec": st.integers(1, 3),
            "l_gen": st.integers(1, 2),
            "n_heads": st.sampled_from([1, 2, 8]),
        }
    ),
)
def test_stream_equals_batch_for_any_model_that_generates_the_future(
    seed, total, cuts, n_groups, per_group, stride, kind, context, changes
):
    lengths = [(cut, total - cut) if cut < total else (total,) for cut in cuts]
    memory = {"long_length": max(1, n_groups) * per_group * stride, "long_stride": stride}
    own = {"context": context} if kind == "cmert" else {"groups": n_groups, "refinements": 2 + context // 2}
    check(tiny(seed, kind=kind, **memory, **own, **changes), lengths)


@pytest.mark.parametrize("missing", ["rgb", "flow"])
def test_one_feature_stream(missing):
    model = tiny(**{f"{missing}_dim": 0})
    features = video(30, width=model.config.input_dim).numpy()
    state = streaming.create(model)
    pairs = [(None, row) if missing == "rgb" else (row, None) for row in features]
    scores = torch.stack([streaming.step(model, state, *pair) for pair in pairs])
    torch.testing.assert_close(scores, scores_of(model, torch.from_numpy(features))[:, 0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("changes", FAMILIES, ids=str)
def test_streams_of_one_state_equal_streams_of_their_own(changes):
    """Of different ages, because one began anew in the middle; a step gives a row to each."""
    model = tiny(**changes)
    features = torch.stack([video(30, seed) for seed in range(2)], dim=1)  # (T, B, D)
    state = streaming.create(model, 2)
    together = [run(model, features[:13], state)]
    streaming.reset(state, [1])
    together = torch.cat([*together, run(model, features[13:], state)])
    assert state.chunks.tolist() == [30, 17] and together.dtype == torch.float32
    for stream, start in ((0, 0), (1, 13)):
        alone = run(model, features[start:, stream])
        torch.testing.assert_close(together[start:, stream], alone, atol=1e-5, rtol=0)
        torch.testing.assert_close(alone, scores_of(model, features[start:, stream]), atol=1e-5, rtol=0)


def test_a_step_gives_as_many_dimensions_as_it_takes():
    model = tiny(anticipation=2)
    state = streaming.create(model)
    row = video(1)
    assert streaming.step(model, state, row[0, :5], row[0, 5:]).shape == (5,)
    assert streaming.step_ahead(model, state, row[0, :5], row[0, 5:]).shape == (3, 5)
    assert streaming.step(model, state, row[:, :5], row[:, 5:]).shape == (1, 5)
    assert streaming.step_ahead(model, state, row[:, :5], row[:, 5:]).shape == (1, 3, 5)
    assert state.chunks.tolist() == [4]
    scores = streaming.step_ahead(model, state, row[:, :5], row[:, 5:])
    torch.testing.assert_close(scores.sum(dim=-1), torch.ones(1, 3))


@pytest.mark.parametrize("changes", [{"gru": True}, {"kind": "lfb"}], ids=str)
def test_interleaved_streams_do_not_mix(changes):
    """The published stream keeps its caches on the module, so one process can serve one video."""
    model = tiny(**changes)
    videos = torch.stack([video(40), video(40, 1)])
    first = streaming.create(model)
    states = [first, streaming.create(model, like=first)]
    assert states[1].constants is states[0].constants
    scores = [[], []]
    for k in range(40):
        for features, state, out in zip(videos, states, scores, strict=True):
            out.append(run(model, features[k : k + 1], state))
    for features, out in zip(videos, scores, strict=True):
        torch.testing.assert_close(torch.cat(out), scores_of(model, features), atol=1e-5, rtol=0)


@pytest.mark.parametrize("before", [1, 4, 16])
def test_reset_forgets_everything(before):
    """After a few chunks the long memory is chunk 0 alone, as it is again at the start of the next video."""
    model = tiny()
    state = streaming.create(model)
    features = video(20)
    run(model, 10 * video(before, 1), state)
    streaming.reset(state)
    assert torch.equal(run(model, features, state), run(model, features))


def test_reset_forgets_what_overflowed():
    """Features are finite but so large that stage 1 is not: no later video may suffer from it."""
    model = tiny()
    state = streaming.create(model)
    run(model, 3e38 * video(30, 1).sign(), state)
    streaming.reset(state)
    features = video(30)
    assert torch.equal(run(model, features, state), run(model, features))


@pytest.mark.parametrize("changes", [{}, {"encoder": "none", "gru": True}, {"kind": "rnn"}, {"kind": "mat"}], ids=str)
def test_memory_does_not_grow(changes):
    """What a stream remembers has its size from the first chunk on, and stays where it is."""
    model = tiny(**changes)
    state = streaming.create(model)

    def memory():
        return {name: (tensor.data_ptr(), tensor.untyped_storage().nbytes()) for name, tensor in state.tensors.items()}

    run(model, video(W + L + 2), state)
    before = memory()
    run(model, video(2 * L), state)
    assert memory() == before and len(state.chunks) == 1


@pytest.mark.parametrize("n_streams", [1, 2])
def test_what_does_not_fit_is_refused_and_leaves_the_stream_as_it_was(n_streams):
    model = tiny(gru=True)
    features = torch.stack([video(20, seed) for seed in range(n_streams)], dim=1)  # (T, B, D)
    state = streaming.create(model, n_streams)
    scores = [run(model, features[:9], state)]
    rgb, flow = torch.zeros(n_streams, 5), torch.zeros(n_streams, 3)
    broken = rgb.clone()
    broken[-1, 2] = float("nan")
    for pair, words in (
        ((None, flow), "takes rgb features"),
        ((rgb, None), "takes flow features"),
        ((rgb[:, :4], flow), rf"rgb features have shape \({n_streams}, 4\)"),
        ((rgb, flow.expand(2, 2, 3)[:, :1]), "flow features have shape"),
        ((torch.zeros(3, 5), torch.zeros(3, 3)), rf"takes \({n_streams}, 5\)"),
        ((broken, flow), "finite"),
        ((rgb, flow - float("inf")), "finite"),
    ):
        with pytest.raises(LstrError, match=words) as caught:
            streaming.step(model, state, *pair)
        assert caught.value.hint
    if n_streams == 2:
        with pytest.raises(LstrError, match="shape"):
            streaming.step(model, state, rgb[0], flow[0])
    scores = torch.cat([*scores, run(model, features[9:], state)])
    torch.testing.assert_close(scores[:, -1].squeeze(), scores_of(model, features[:, -1])[:, 0], atol=1e-5, rtol=0)
    with pytest.raises(LstrError, match="another shape"):
        streaming.step(tiny(grid="sliding"), state, rgb, flow)
    with pytest.raises(LstrError, match="another shape"):
        streaming.create(tiny(grid="sliding"), like=state)
    for kind in ({}, {"kind": "trn"}):
        with pytest.raises(LstrError, match="training"):
            streaming.create(tiny(**kind).train())

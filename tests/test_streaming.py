"""A stream gives what the batch definition gives, whatever came before, and keeps to itself."""

from __future__ import annotations

import io
from dataclasses import fields

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr import batch, streaming
from lstr.config import LSTRConfig
from lstr.errors import LstrError
from lstr.model import LSTR

TINY = dict(rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=24, work_length=6, long_length=16, n0=3, n1=4)
LENGTH = 2 * (6 + 16) + 7


def tiny(seed=0, **changes):
    """A small model with random biases and norms, so that no term of an equation is 0 by chance."""
    torch.manual_seed(seed)
    model = LSTR(LSTRConfig(**{**TINY, **changes}), 5).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name or "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def run(model, features, state=None):
    state = streaming.create(model) if state is None else state
    return torch.stack([streaming.step(model, state, row[:5], row[5:]) for row in features])


@pytest.mark.parametrize("positions", ["slot", "distance"])
@pytest.mark.parametrize("stride", [1, 4])
@pytest.mark.parametrize("grid", ["fixed", "sliding"])
def test_stream_equals_batch_at_every_chunk(grid, stride, positions):
    """The published stream leaves the published batch once the memory is full and the stride is above 1."""
    model = tiny(grid=grid, long_stride=stride, positions=positions)
    features = torch.randn(LENGTH, 8, generator=torch.Generator().manual_seed(1))
    expected = batch.predict(model, features)
    assert (expected[1:] - expected[:-1]).abs().max(dim=-1).values.min() > 1e-4  # scores that move can be wrong
    torch.testing.assert_close(run(model, features), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "changes",
    [
        {"long_length": 0},
        {"long_length": 0, "l_dec": 1},
        {"l_dec": 1, "l_enc": 1},
        {"l_dec": 3, "l_enc": 3},
        {"work_length": 1},
        {"work_length": 3, "long_stride": 8},
        {"long_length": 4},
        {"long_length": 4, "grid": "sliding", "positions": "distance"},
    ],
    ids=str,
)
def test_stream_equals_batch_in_odd_shapes(changes):
    model = tiny(**changes)
    features = torch.randn(LENGTH, 8, generator=torch.Generator().manual_seed(2))
    torch.testing.assert_close(run(model, features), batch.predict(model, features), atol=1e-5, rtol=0)


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 1000),
    length=st.integers(1, 40),
    work_length=st.integers(1, 7),
    n_long=st.integers(0, 5),
    stride=st.integers(1, 5),
    grid=st.sampled_from(["fixed", "sliding"]),
    positions=st.sampled_from(["slot", "distance"]),
)
def test_stream_equals_batch_for_any_lengths(seed, length, work_length, n_long, stride, grid, positions):
    model = tiny(
        seed, work_length=work_length, long_length=n_long * stride, long_stride=stride, grid=grid, positions=positions
    )
    features = torch.randn(length, 8, generator=torch.Generator().manual_seed(seed))
    torch.testing.assert_close(run(model, features), batch.predict(model, features), atol=1e-5, rtol=0)


def test_one_feature_stream():
    model = tiny(flow_dim=0)
    features = np.random.default_rng(0).standard_normal((30, 5)).astype(np.float32)
    state = streaming.create(model)
    scores = torch.stack([streaming.step(model, state, row, None) for row in features])
    torch.testing.assert_close(scores, batch.predict(model, features), atol=1e-5, rtol=0)


def test_interleaved_streams_do_not_mix():
    """The published stream keeps its caches on the module, so one process can serve one video."""
    model = tiny(grid="sliding")
    videos = torch.randn(2, LENGTH, 8)
    first = streaming.create(model)
    states = [first, streaming.create(model, like=first)]
    assert states[1].constants is states[0].constants
    scores = [[], []]
    for k in range(LENGTH):
        for video, state, out in zip(videos, states, scores, strict=True):
            out.append(streaming.step(model, state, video[k, :5], video[k, 5:]))
    for video, out in zip(videos, scores, strict=True):
        torch.testing.assert_close(torch.stack(out), batch.predict(model, video), atol=1e-5, rtol=0)


def test_scores_do_not_depend_on_what_follows():
    model = tiny()
    features = torch.randn(30, 8)
    other = torch.cat([features[:20], torch.randn(10, 8)])
    a, b = run(model, features), run(model, other)
    assert torch.equal(a[:20], b[:20]) and not torch.equal(a[20:], b[20:])


@pytest.mark.parametrize("before", [1, 4, LENGTH])
def test_reset_forgets_everything(before):
    """After a few chunks the long memory is chunk 0 alone, as it is again at the start of the next video."""
    model = tiny()
    state = streaming.create(model)
    features = torch.randn(30, 8)
    run(model, 10 * torch.randn(before, 8), state)
    streaming.reset(state)
    assert torch.equal(run(model, features, state), run(model, features))


@pytest.mark.parametrize("cut", [0, 3, 17, 40])
def test_a_saved_stream_goes_on_where_it_stopped(cut):
    model = tiny(grid="sliding")
    features = torch.randn(LENGTH, 8)
    state = streaming.create(model)
    if cut:
        run(model, features[:cut], state)
    file = io.BytesIO()
    torch.save(streaming.to_dict(state), file)
    file.seek(0)
    restored = streaming.from_dict(model, torch.load(file, weights_only=True))
    torch.testing.assert_close(run(model, features[cut:], restored), run(model, features)[cut:], atol=1e-6, rtol=0)
    with pytest.raises(LstrError, match="another shape"):
        streaming.from_dict(tiny(), streaming.to_dict(state))


@pytest.mark.parametrize("grid", ["fixed", "sliding"])
def test_memory_does_not_grow(grid):
    model = tiny(grid=grid)
    state = streaming.create(model)

    def size():
        tensors = [getattr(state, field.name) for field in fields(state)]
        tensors += [tensor for pair in state.compressed for tensor in pair]
        return sum(tensor.untyped_storage().nbytes() for tensor in tensors if isinstance(tensor, torch.Tensor))

    run(model, torch.randn(10, 8), state)
    before = size()
    run(model, torch.randn(3 * LENGTH, 8), state)
    assert size() == before


def test_old_chunks_are_not_projected_again_and_the_encoder_rests():
    """A step projects one chunk, and on a fixed grid with slot positions the encoder runs once a stride."""
    model = tiny(long_length=16, long_stride=4)
    seen = {"work": [], "long": [], "stage2": []}
    for name, module in (
        ("work", model.feature_head_work),
        ("long", model.feature_head_long),
        ("stage2", model.enc_modules[1].norm),
    ):
        module.register_forward_hook(lambda _, inputs, __, name=name: seen[name].append(len(inputs[0])))
    state = streaming.create(model)
    run(model, torch.randn(24, 8), state)
    for calls in seen.values():
        calls.clear()
    run(model, torch.randn(40, 8), state)
    assert seen["work"] == [1] * 40 and seen["long"] == [1] * 10 and len(seen["stage2"]) == 10


def test_what_does_not_fit_is_refused_and_leaves_the_stream_as_it_was():
    model = tiny()
    state = streaming.create(model)
    features = torch.randn(20, 8)
    scores = [run(model, features[:9], state)]
    for rgb, flow, words in (
        (None, torch.zeros(3), "rgb"),
        (torch.zeros(5), None, "flow"),
        (torch.zeros(4), torch.zeros(3), "shape"),
        (torch.full((5,), float("nan")), torch.zeros(3), "finite"),
    ):
        with pytest.raises(LstrError, match=words):
            streaming.step(model, state, rgb, flow)
    scores.append(run(model, features[9:], state))
    torch.testing.assert_close(torch.cat(scores), batch.predict(model, features), atol=1e-5, rtol=0)
    with pytest.raises(LstrError, match="another shape"):
        streaming.step(tiny(grid="sliding"), state, torch.zeros(5), torch.zeros(3))
    with pytest.raises(LstrError, match="training"):
        streaming.create(tiny().train())

"""The model: published names and shapes, causality, and agreement with torch's own layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from lstr import batch
from lstr.config import LSTRConfig
from lstr.errors import LstrError
from lstr.model import LSTR, window
from lstr.transformer import DecoderLayer

TINY = dict(rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=24, work_length=6, long_length=16, n0=3, n1=4)


def tiny(seed=0, n_classes=5, **changes):
    torch.manual_seed(seed)
    return LSTR(LSTRConfig(**{**TINY, **changes}), n_classes).eval()


def published_shapes(d, ff, inputs, classes, n0, n1, l_enc, l_dec):
    """Names and shapes of the published state dict, in its order."""
    shapes = {}
    for head in ("long", "work"):
        shapes[f"feature_head_{head}.input_linear.0.weight"] = (d, inputs)
        shapes[f"feature_head_{head}.input_linear.0.bias"] = (d,)
    shapes["pos_encoding.pe"] = (5000, 1, d)
    shapes["enc_queries.0.weight"], shapes["enc_queries.1.weight"] = (n0, d), (n1, d)
    for stack, layers in (("enc_modules.0", 1), ("enc_modules.1", l_enc), ("dec_modules", l_dec)):
        for i in range(layers):
            layer = f"{stack}.layers.{i}"
            for attention in ("self_attn", "multihead_attn"):
                shapes[f"{layer}.{attention}.in_proj_weight"] = (3 * d, d)
                shapes[f"{layer}.{attention}.in_proj_bias"] = (3 * d,)
                shapes[f"{layer}.{attention}.out_proj.weight"] = (d, d)
                shapes[f"{layer}.{attention}.out_proj.bias"] = (d,)
            for name, out, into in (("linear1", ff, d), ("linear2", d, ff)):
                shapes[f"{layer}.{name}.weight"], shapes[f"{layer}.{name}.bias"] = (out, into), (out,)
            for norm in ("norm1", "norm2", "norm3"):
                shapes[f"{layer}.{norm}.weight"] = shapes[f"{layer}.{norm}.bias"] = (d,)
        shapes[f"{stack}.norm.weight"] = shapes[f"{stack}.norm.bias"] = (d,)
    shapes["classifier.weight"], shapes["classifier.bias"] = (classes, d), (classes,)
    return shapes


def test_published_names_shapes_and_order():
    with torch.device("meta"):
        model = LSTR(LSTRConfig(), 22)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    expected = published_shapes(1024, 1024, 3072, 22, 16, 32, 2, 2)
    assert len(expected) == 105 and list(shapes.items()) == list(expected.items())
    assert sum(parameter.numel() for parameter in model.parameters()) == 58_882_070


def test_layer_equals_torch():
    torch.manual_seed(0)
    ours = DecoderLayer(16, 4, 24, 0.0).eval()
    theirs = nn.TransformerDecoderLayer(16, 4, 24, 0.0).eval()
    theirs.load_state_dict(ours.state_dict())
    x, memory = torch.randn(2, 6, 16), torch.randn(2, 9, 16)
    causal = torch.ones(6, 6, dtype=torch.bool).tril()
    hidden = torch.zeros(2, 9, dtype=torch.bool)
    hidden[1, :5] = True
    expected = theirs(
        x.transpose(0, 1), memory.transpose(0, 1), tgt_mask=~causal, memory_key_padding_mask=hidden
    ).transpose(0, 1)
    torch.testing.assert_close(ours(x, memory, causal, ~hidden[:, None, None]), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("changes", [{}, {"long_length": 0}, {"positions": "distance"}])
def test_no_output_sees_a_later_work_chunk(changes):
    model = tiny(**changes)
    windows = batch.gather(torch.randn(40, 8), [30], model.config)
    with torch.no_grad():
        before = model(*windows)
        windows.work[0, 4:] = 100.0
        after = model(*windows)
    torch.testing.assert_close(after[:, :4], before[:, :4], atol=1e-6, rtol=0)
    assert (after[:, 4:] - before[:, 4:]).abs().min(dim=-1).values.max() > 1e-3


def test_hidden_long_slots_do_not_matter_and_visible_ones_do():
    model = tiny()
    windows = batch.gather(torch.randn(40, 8), [12], model.config)
    assert 1 < windows.long_mask.sum() < model.config.n_long
    with torch.no_grad():
        before = model(*windows)
        windows.long[~windows.long_mask] = 100.0
        torch.testing.assert_close(model(*windows), before, atol=1e-6, rtol=0)
        windows.long[windows.long_mask] += 1.0
        assert (model(*windows) - before).abs().max() > 1e-3


@pytest.mark.parametrize("positions", ["slot", "distance"])
def test_a_window_that_is_not_full_equals_the_start_of_the_first_full_one(positions):
    model = tiny(positions=positions)
    features = torch.randn(10, 8)
    with torch.no_grad():
        full = model(*batch.gather(features, [5], model.config))[0]
        for T in range(5):
            padded = batch.gather(features, [T], model.config)
            short = model(padded.long, padded.long_mask, padded.work[:, : T + 1], None, padded.distances)[0]
            torch.testing.assert_close(short, full[: T + 1], atol=1e-5, rtol=0)
            torch.testing.assert_close(model(*padded)[0, : T + 1], short, atol=1e-5, rtol=0)


def test_window_reads_no_later_chunk():
    config = tiny().config
    features = torch.randn(40, 8)
    for T in (0, 3, 5, 6, 30):
        whole, cut = window(features, T, config), window(features[: T + 1], T, config)
        assert all(torch.equal(a, b) for a, b in zip(whole, cut, strict=True))
        gathered = batch.gather(features.numpy(), [T], config)
        assert torch.equal(gathered.long[0], whole[0]) and torch.equal(gathered.work[0][: min(T + 1, 6)], whole[2])
        assert (gathered.work[~gathered.work_mask] == 0).all() and gathered.work_mask.sum() == min(T + 1, 6)
    with pytest.raises(LstrError):
        window(features, 40, config)


@pytest.mark.parametrize("changes", [{}, {"grid": "sliding"}, {"positions": "distance"}, {"long_length": 0}])
def test_predict_is_the_last_output_of_each_window(changes):
    model = tiny(**changes)
    features = torch.randn(45, 8)
    scores = batch.predict(model, features, batch_size=7)
    for T in range(45):
        one = batch.gather(features, [T], model.config)
        with torch.no_grad():
            logits = model(*one)[0, min(T, 5)]
        torch.testing.assert_close(scores[T], logits.softmax(-1), atol=1e-6, rtol=0)


@pytest.mark.parametrize("length", [0, 1, 5, 6, 7])
def test_predict_scores_every_chunk_of_short_videos(length):
    """The published evaluation drops videos shorter than the work memory."""
    scores = batch.predict(tiny(), torch.randn(length, 8))
    assert scores.shape == (length, 5)
    torch.testing.assert_close(scores.sum(-1), torch.ones(length))


def test_gradients_reach_every_parameter():
    model = tiny().train()
    windows = batch.join([batch.gather(torch.randn(40, 8), ends, model.config) for ends in ([2, 30], [17])])
    assert len(windows) == 3
    model(*windows)[windows.work_mask].square().sum().backward()
    assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in model.parameters())
    assert all(p.grad.abs().max() > 0 for name, p in model.named_parameters() if not name.endswith("in_proj_bias"))


def test_initial_weights_as_published():
    model = tiny()
    first, second = model.dec_modules.layers
    assert torch.equal(first.self_attn.in_proj_weight, second.self_attn.in_proj_weight)
    assert not torch.equal(first.linear1.weight, second.linear1.weight)
    bound = 16**-0.5
    assert 0.8 * bound < first.linear1.weight.abs().max() <= bound
    assert first.self_attn.in_proj_bias.abs().max() == 0 and first.self_attn.out_proj.bias.abs().max() == 0


def test_positions_reach_as_far_as_the_memory():
    with torch.device("meta"):
        long = LSTR(LSTRConfig(**{**TINY, "long_length": 8000, "positions": "distance"}), 3)
    assert long.pos_encoding.pe.shape[0] == 8006


def test_what_does_not_fit_is_refused():
    model = tiny()
    windows = batch.gather(torch.randn(20, 8), [10], model.config)
    with pytest.raises(LstrError, match="wide"):
        model(windows.long, windows.long_mask, windows.work[..., :5])
    with pytest.raises(LstrError, match="slots"):
        model(windows.long[:, 1:], windows.long_mask[:, 1:], windows.work)
    with pytest.raises(LstrError, match="long memory"):
        model(None, None, windows.work)
    with pytest.raises(LstrError, match="distances"):
        tiny(positions="distance")(windows.long, windows.long_mask, windows.work)
    with pytest.raises(LstrError, match="training"):
        batch.predict(tiny().train(), torch.randn(20, 8))
    with pytest.raises(LstrError, match="shape"):
        batch.predict(model, torch.randn(20, 7))
    features = torch.randn(20, 8)
    features[13, 2] = float("nan")
    with pytest.raises(LstrError, match="chunk 13"):
        batch.predict(model, features)
    with pytest.raises(LstrError, match="end at"):
        batch.gather(features, [20], model.config)

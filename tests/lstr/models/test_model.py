"""The model: published names and shapes, and what each of its designs sees, learns and says of the future."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from lstr.kinds import configure
from lstr.models.lstr import LSTR
from lstr.windows.windows import gather, join
from tests.support.tiny_models import DESIGNS, TINY, tiny, unsettled, video

W = 6
each_design = pytest.mark.parametrize("encoder, integration", [tuple(design.values()) for design in DESIGNS])


def design(encoder, integration, **changes):
    """Of this design, with all that can be added to it."""
    added = {"gru": True, "anticipation": 0 if integration == "mlp" else 2}
    return unsettled(tiny(encoder=encoder, integration=integration, **{**added, **changes}))


@torch.no_grad()
def logits_of(model, windows):
    return model(windows)


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
        model = LSTR(configure(), 22)
    shapes = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    expected = published_shapes(1024, 1024, 3072, 22, 16, 32, 2, 2)
    assert len(expected) == 105 and list(shapes.items()) == list(expected.items())
    assert sum(parameter.numel() for parameter in model.parameters()) == 58_882_070


def test_initial_weights_as_published():
    torch.manual_seed(0)
    first, second = LSTR(configure(**TINY), 5).dec_modules.layers
    assert torch.equal(first.self_attn.in_proj_weight, second.self_attn.in_proj_weight)
    assert not torch.equal(first.linear1.weight, second.linear1.weight)
    bound = 16**-0.5
    assert 0.8 * bound < first.linear1.weight.abs().max() <= bound
    assert first.self_attn.in_proj_bias.abs().max() == 0 and first.self_attn.out_proj.bias.abs().max() == 0


@each_design
def test_no_output_sees_a_later_work_chunk(encoder, integration):
    model = design(encoder, integration)
    windows = gather(video(60), [59, 2], model.config)
    before = logits_of(model, windows)
    windows.work[:, 4:] = 100.0  # in the second window these slots are not present
    after = logits_of(model, windows)
    torch.testing.assert_close(after[:, :4], before[:, :4], atol=1e-6, rtol=0)
    changed = (after - before).abs().amax(dim=-1)
    assert (changed[0, 4:] > 1e-3).all() and (changed[1, W:] < 1e-6).all()


def test_positions_are_slots_or_distances():
    """A work token's distance counts down to 0, and what is ahead is at distances below it, where sines change sign."""
    rate = torch.exp(torch.arange(0, 16, 2) * (-math.log(10000.0) / 16))

    def rows(places):
        angle = torch.as_tensor(places, dtype=torch.float32)[:, None] * rate
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)

    for positions, work, future in (("slot", range(4, 10), [10, 11, 12]), ("distance", range(5, -1, -1), [-1, -2, -3])):
        model = tiny(positions=positions, anticipation=3)
        assert model.work_positions().tolist() == list(work)
        encoded = model.pos_encoding(torch.zeros(1, W, 16), model.work_positions())[0]
        torch.testing.assert_close(encoded, rows(list(work)), atol=1e-5, rtol=0)
        torch.testing.assert_close(model.future() - model.future_tokens.weight, rows(future), atol=1e-5, rtol=0)


@pytest.mark.parametrize("positions, rows", [("slot", 5000), ("distance", 8009)])
def test_positions_reach_as_far_as_the_memory(positions, rows):
    config = configure(**{**TINY, "long_length": 8000, "positions": positions, "anticipation": 3})
    with torch.device("meta"):
        assert LSTR(config, 3).pos_encoding.pe.shape == (rows, 1, 16)


def learn(model, windows, targets, steps):
    """Loss before each step."""
    optimizer = torch.optim.Adam(model.train().parameters(), lr=0.02)
    for _ in range(steps):
        loss = F.cross_entropy(model(windows).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


@each_design
def test_a_step_reaches_every_parameter(encoder, integration):
    """Every parameter of every design takes part, save one that no softmax can see."""
    model = design(encoder, integration)
    windows = join([gather(video(60, seed), ends, model.config) for seed, ends in ((0, [2, 59]), (1, [30]))])
    before = {name: parameter.clone() for name, parameter in model.named_parameters()}
    list(learn(model, windows, torch.arange(3 * len(model.outputs().slots)) % 5, steps=1))
    for name, parameter in model.named_parameters():
        assert torch.isfinite(parameter.grad).all() and not torch.equal(parameter, before[name]), name
        if name.endswith("in_proj_bias"):
            # The bias of the keys adds the same to every score of a query.
            queries, keys, values = parameter.grad.chunk(3)
            assert keys.abs().max() < 1e-6 < min(queries.abs().max(), values.abs().max()), name
        else:
            assert parameter.grad.abs().max() > 1e-6, name

"""Packed models: the numbers of the plain one, without a copy of it and without a change to it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from lstr import streaming
from lstr.kinds import configure
from lstr.models.layers import Attention
from lstr.models.lstr import LSTR
from lstr.models.stream import PackedLinear, pack
from lstr.windows.windows import gather
from tests.support.tiny_models import of_each_window, unsettled, video

TINY = dict(rgb_dim=5, flow_dim=3, d_model=16, n_heads=4, d_feedforward=24, work_length=6, long_length=16, n0=3, n1=4)


def tiny(seed=0, **changes):
    torch.manual_seed(seed)
    return unsettled(LSTR(configure(**{**TINY, **changes}), 5).eval())


def streamed(model, features):
    state = streaming.create(model)
    rgb = model.config.rgb_dim
    return torch.stack([streaming.step_ahead(model, state, row[:rgb], row[rgb:]) for row in features])


@pytest.fixture(params=[True, False], ids=["oneDNN", "plain"])
def operator(request, monkeypatch):
    """With torch's own operator where this torch has it, and as on one that has not."""
    if not request.param:
        monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    elif not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        pytest.skip("this torch has no packed product")
    return request.param


def test_without_the_operator_a_stream_says_the_same(operator):
    """The operator is not documented, so a torch without it must serve."""
    model = tiny(gru=True, anticipation=2)
    features = video(40)
    packed = streaming.create(model).constants.model
    assert {module.packed for module in packed.modules() if isinstance(module, PackedLinear)} == {operator}
    expected = of_each_window(model, features).softmax(dim=-1)
    torch.testing.assert_close(streamed(model, features), expected, atol=1e-5, rtol=0)


def test_packing_shares_what_it_does_not_pack():
    """A copy of the position table alone is as large as many layers."""
    model = tiny(gru=True, anticipation=2)
    packed = pack(model)
    for name, tensor in packed.state_dict().items():
        assert tensor.data_ptr() == model.state_dict()[name].data_ptr(), name
    kept = set(packed.state_dict())
    assert {"pos_encoding.pe", "gru.weight_hh_l0", "enc_queries.0.weight", "future_tokens.weight"} <= kept
    assert "dec_modules.layers.0.multihead_attn.in_proj_weight" in kept and "classifier.weight" not in kept
    assert packed.pos_encoding.pe is model.pos_encoding.pe
    assert all(type(module) is not torch.nn.Linear and type(module) is not Attention for module in packed.modules())


def test_the_model_given_is_unchanged_and_can_still_train():
    model = tiny(gru=True).train()
    before = {name: (tensor.clone(), tensor.data_ptr()) for name, tensor in model.state_dict().items()}
    modules = [(name, type(module)) for name, module in model.named_modules()]
    windows = gather(video(50), [30, 49], model.config)
    packed = pack(model)
    assert not packed.training
    with torch.no_grad():
        packed(windows)
    assert model.training and modules == [(name, type(module)) for name, module in model.named_modules()]
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name][0]) and tensor.data_ptr() == before[name][1], name
    model(windows).square().sum().backward()
    assert all(parameter.requires_grad and parameter.grad is not None for parameter in model.parameters())


def test_a_stream_keeps_to_the_weights_it_was_made_from():
    """Packed weights are of the moment of packing, so a state belongs to the weights the model had then."""
    model = tiny()
    packed = pack(model)
    windows = gather(video(50), [30], model.config)
    with torch.no_grad():
        before = packed(windows)
        model.classifier.weight.add_(1.0)
        assert torch.equal(packed(windows), before) and not torch.isclose(model(windows), before).all()

"""Packed models: the numbers of the plain one, without a copy of it and without a change to it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from lstr import streaming
from lstr.models.layers import PackedLinear, pack
from lstr.windows.windows import gather
from tests.support.tiny_models import of_each_window, tiny, unsettled, video


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
    model = unsettled(tiny(gru=True, anticipation=2))
    features = video(40)
    packed = streaming.create(model).constants.model
    assert {module.packed for module in packed.modules() if isinstance(module, PackedLinear)} == {operator}
    expected = of_each_window(model, features).softmax(dim=-1)
    torch.testing.assert_close(streamed(model, features), expected, atol=1e-5, rtol=0)


def test_a_stream_keeps_to_the_weights_it_was_made_from():
    """Packed weights are of the moment of packing, so a state belongs to the weights the model had then."""
    model = unsettled(tiny())
    packed = pack(model)
    windows = gather(video(50), [30], model.config)
    with torch.no_grad():
        before = packed(windows)
        model.classifier.weight.add_(1.0)
        assert torch.equal(packed(windows), before) and not torch.isclose(model(windows), before).all()

"""Packed models: the numbers of the plain one, without a copy of it and without a change to it."""

from types import SimpleNamespace

import pytest
import torch

from lstr import streaming
from lstr.models.layers import PackedLinear, pack
from lstr.windows.windows import gather
from tests.support.tiny_models import run, scores_of, tiny, unsettled, video


@pytest.mark.parametrize("has_operator", [True, False])
def test_without_the_operator_a_stream_says_the_same(has_operator, monkeypatch):
    """The operator is not documented, so a torch without it must serve."""
    if not has_operator:
        monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace())
    elif not hasattr(torch.ops.mkldnn, "_reorder_linear_weight"):
        pytest.skip("this torch has no packed product")
    model = unsettled(tiny(gru=True, anticipation=2))
    packed = streaming.create(model).constants.model
    assert {module.packed for module in packed.modules() if isinstance(module, PackedLinear)} == {has_operator}
    torch.testing.assert_close(run(model, video(40)), scores_of(model, video(40)), atol=1e-5, rtol=0)


def test_a_stream_keeps_to_the_weights_it_was_made_from():
    """Packed weights are of the moment of packing, so a state belongs to the weights the model had then."""
    model = unsettled(tiny())
    packed = pack(model)
    windows = gather(video(50), [30], model.config)
    with torch.no_grad():
        before = packed(windows)
        model.classifier.weight.add_(1.0)
        assert torch.equal(packed(windows), before) and not torch.isclose(model(windows), before).all()

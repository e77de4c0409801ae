"""LSTR: its published size and initial weights, causality inside a window, positions, and anticipation."""

import math

import pytest
import torch

from lstr.kinds import configure
from lstr.models.lstr import LSTR
from lstr.windows.windows import gather
from tests.support.tiny_models import DESIGNS, TINY, name_of, perturb, tiny, video

W = 6


def test_the_published_configuration_has_the_published_tensors():
    with torch.device("meta"):
        model = LSTR(configure(), 22)
    assert len(model.state_dict()) == 105
    assert sum(parameter.numel() for parameter in model.parameters()) == 58_882_070


def test_initial_weights_are_drawn_as_published():
    torch.manual_seed(0)
    first, second = LSTR(configure(**TINY), 5).dec_modules.layers
    assert torch.equal(first.self_attn.in_proj_weight, second.self_attn.in_proj_weight)
    assert not torch.equal(first.linear1.weight, second.linear1.weight)
    bound = 16**-0.5
    assert 0.8 * bound < first.linear1.weight.abs().max() <= bound
    assert first.self_attn.in_proj_bias.abs().max() == 0 and first.self_attn.out_proj.bias.abs().max() == 0


@torch.no_grad()
@pytest.mark.parametrize("design", DESIGNS, ids=name_of)
def test_no_output_sees_a_later_token(design):
    """Tokens of the future come after the work memory, so that anticipation does not change detection."""
    ahead = 0 if design["integration"] == "mlp" else 3
    model, detector = (perturb(tiny(**design, gru=True, anticipation=n)) for n in (ahead, 0))
    windows = gather(video(60), [59, 2, 30], model.config)
    before = model(windows)
    if ahead:
        detector.load_state_dict({n: t for n, t in model.state_dict().items() if n != "future_tokens.weight"})
        torch.testing.assert_close(before[:, :W], detector(windows), atol=1e-6, rtol=0)
        model.future_tokens.weight[1] += 1.0
        before, first = model(windows), before
        changed = (before - first).abs().amax(dim=-1)
        assert (changed[:, : W + 1] < 1e-6).all() and (changed[:, W + 1 :] > 1e-3).all()
    windows.work[:, 4:] = 100.0  # these slots are absent in the second window
    after = model(windows)
    torch.testing.assert_close(after[:, :4], before[:, :4], atol=1e-6, rtol=0)
    changed = (after - before).abs().amax(dim=-1)
    assert (changed[0, 4:] > 1e-3).all() and (changed[1, W:] < 1e-6).all()


def test_positions_are_slots_or_distances():
    """Distances of work tokens count down to 0, and tokens of the future have negative ones."""
    rate = torch.exp(torch.arange(0, 16, 2) * (-math.log(10000.0) / 16))

    def encoding(positions):
        angle = torch.tensor(positions, dtype=torch.float32)[:, None] * rate
        return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)

    for positions, work, future in (
        ("slot", [4, 5, 6, 7, 8, 9], [10, 11, 12]),
        ("distance", [5, 4, 3, 2, 1, 0], [-1, -2, -3]),
    ):
        model = tiny(positions=positions, anticipation=3)
        assert model.work_positions().tolist() == work
        encoded = model.pos_encoding(torch.zeros(1, W, 16), model.work_positions())[0]
        torch.testing.assert_close(encoded, encoding(work), atol=1e-5, rtol=0)
        torch.testing.assert_close(model.future() - model.future_tokens.weight, encoding(future), atol=1e-5, rtol=0)

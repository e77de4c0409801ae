"""Gradients of depthwise convolutions equal those of torch."""

import pytest
import torch
from torch import nn

from lstr.extractors.networks.depthwise import _Depthwise, speed_up_depthwise


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("side", [12, 15])
@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_gradients_equal_those_of_torch(size: int, stride: int, side: int, padded: bool):
    torch.manual_seed(0)
    x = torch.randn(2, 6, side, side, dtype=torch.double, requires_grad=True)
    weight = torch.randn(6, 1, size, size, dtype=torch.double, requires_grad=True)
    padding = size // 2 if padded else 0
    expected = nn.functional.conv2d(x, weight, None, stride, padding, groups=6)
    found = _Depthwise.apply(x, weight, stride, padding)
    assert torch.equal(found, expected)
    upstream = torch.randn_like(expected)
    for one, other in zip(
        torch.autograd.grad(found, (x, weight), upstream),
        torch.autograd.grad(expected, (x, weight), upstream),
        strict=True,
    ):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_network_keeps_its_results_and_names():
    """Only bfloat16 on a CPU takes the other gradients; they agree with torch's to the precision of bfloat16."""
    torch.manual_seed(0)
    plain, fast = (nn.Conv2d(16, 16, 5, 2, 2, groups=16, bias=False) for _ in range(2))
    fast.load_state_dict(plain.state_dict())
    network = nn.Sequential(fast, nn.Conv2d(16, 8, 1))
    speed_up_depthwise(network)
    assert [*network.state_dict()] == ["0.weight", "1.weight", "1.bias"]
    x = torch.randn(8, 16, 17, 17)
    assert torch.equal(fast(x), plain(x))
    with torch.autocast("cpu", torch.bfloat16):
        maps = plain(x), fast(x)
    for out in maps:
        out.float().square().mean().backward()
    assert torch.equal(*maps)
    assert type(maps[1].grad_fn).__name__ == "_DepthwiseBackward"
    torch.testing.assert_close(fast.weight.grad, plain.weight.grad, rtol=0.02, atol=1e-3)

"""Weights that do not fit, random networks, and gradients of depthwise convolutions."""

import numpy as np
import pytest
import torch
from torch import nn

from lstr.errors import MissingPathError, WeightsError
from lstr.extractors.networks.backbones import _Depthwise, speed_up_depthwise
from lstr.extractors.networks.build import fingerprint, load_weights, randomise
from lstr.extractors.networks.network import NETWORKS
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.twostream import build_twostream, calibration_of, rebuild_twostream
from tests.support.backbones import build_backbone

SMALL = Preset(StreamPreset("mobilenetv3"), StreamPreset("shufflenetv2"), "difference")


@pytest.fixture(scope="module")
def bninception():
    network = build_backbone("bninception")
    randomise(network, 1)
    return network


class Trap:
    """Fails the test when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a file ran code",))


BIAS = "inception_4a_1x1.bias"
UNSUITABLE = {
    "rgb": (lambda state: {**state, "conv1_7x7_s2.weight": torch.zeros(64, 3, 7, 7)}, "RGB"),
    "short": (lambda state: {k: v for k, v in state.items() if k != BIAS}, BIAS),
    "odd": (lambda state: {**state, "odd.weight": torch.zeros(1)}, "odd.weight"),
    "other network": (lambda state: build_backbone("resnet50").state_dict(), "bninception"),
    "no tensors": (lambda state: [1, 2], "w.pth"),
    "code": (lambda state: {"state_dict": Trap()}, "w.pth"),
    "text": (lambda state: b"hello", "w.pth"),
    "cut": (lambda state: b"PK\x03\x04 cut", "w.pth"),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_unsuitable_weights_are_refused(tmp_path, bninception, name):
    change, reason = UNSUITABLE[name]
    content, path = change(bninception.state_dict()), tmp_path / "w.pth"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    before = fingerprint(bninception)
    with pytest.raises(WeightsError, match=reason) as caught:
        load_weights(bninception, path, NETWORKS["bninception"])
    assert caught.value.hint and caught.value.exit_code == 4
    assert fingerprint(bninception) == before
    with pytest.raises(MissingPathError):
        load_weights(bninception, tmp_path / "none.pth", NETWORKS["bninception"])


@pytest.mark.long
def test_random_networks_are_reproducible():
    first, second = (build_twostream(SMALL, WeightSources(), "cpu", "float32") for _ in range(2))
    assert first.recipe == second.recipe and first.recipe.random_streams == "rgb and flow"
    first.calibrate("rgb", np.random.default_rng(1).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8))
    sources = WeightSources(calibration=calibration_of(first), calibrated_on=("a",))
    calibrated = build_twostream(SMALL, sources, "cpu", "float32")
    assert fingerprint(calibrated.networks["rgb"]) == fingerprint(first.networks["rgb"])
    assert calibrated.recipe.rgb.calibrated_on == ("a",) and calibrated.recipe.id != second.recipe.id
    assert rebuild_twostream(calibrated.recipe, sources, "cpu").recipe == calibrated.recipe
    with pytest.raises(WeightsError):
        rebuild_twostream(calibrated.recipe, WeightSources(), "cpu")


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("side", [12, 15])
@pytest.mark.parametrize(("size", "stride"), [(3, 1), (3, 2), (5, 1), (5, 2)])
def test_depthwise_gradients_equal_torchs(size: int, stride: int, side: int, padded: bool):
    torch.manual_seed(0)
    x = torch.randn(2, 6, side, side, dtype=torch.double, requires_grad=True)
    weight = torch.randn(6, 1, size, size, dtype=torch.double, requires_grad=True)
    padding = size // 2 if padded else 0
    expected = nn.functional.conv2d(x, weight, None, stride, padding, groups=6)
    result = _Depthwise.apply(x, weight, stride, padding)
    assert torch.equal(result, expected)
    upstream = torch.randn_like(expected)
    ours, torchs = (torch.autograd.grad(maps, (x, weight), upstream) for maps in (result, expected))
    torch.testing.assert_close(ours, torchs, rtol=0, atol=1e-12)


def test_faster_gradients_are_used_for_bfloat16_on_a_cpu_only():
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

"""Published key layouts into the two networks, and what the networks compute."""

import numpy as np
import pytest
import torch

from lstr.errors import MissingPathError, WeightsError
from lstr.extractors.networks.build import fingerprint, load_weights, randomise, statistics
from lstr.extractors.networks.network import NETWORKS
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.twostream import build_twostream, calibration_of, rebuild_twostream
from tests.support.backbones import build_backbone

SMALL = Preset(StreamPreset("resnet18"), StreamPreset("shufflenetv2"), "difference")


@pytest.fixture(scope="module")
def bninception():
    network = build_backbone("bninception")
    randomise(network, 1)
    return network


@pytest.fixture(scope="module")
def resnet():
    network = build_backbone("resnet50")
    randomise(network, 2)
    return network


def refused(tmp_path, network, content, name, match):
    torch.save(content, tmp_path / "w.pth")
    before = fingerprint(network)
    with pytest.raises(WeightsError, match=match) as caught:
        load_weights(network, tmp_path / "w.pth", NETWORKS[name])
    assert caught.value.hint and caught.value.exit_code == 4
    assert fingerprint(network) == before


def test_unfit_weights_are_refused_by_name(tmp_path, bninception, resnet):
    state = bninception.state_dict()
    rgb = {**state, "conv1_7x7_s2.weight": torch.zeros(64, 3, 7, 7)}
    refused(tmp_path, bninception, rgb, "bninception", r"RGB weights offered as flow weights")
    short = {k: v for k, v in state.items() if k != "inception_4a_1x1.bias"}
    refused(tmp_path, bninception, short, "bninception", "inception_4a_1x1.bias")
    refused(tmp_path, bninception, {**state, "odd.weight": torch.zeros(1)}, "bninception", "odd.weight")
    refused(tmp_path, bninception, resnet.state_dict(), "bninception", "holds no bninception tensor")
    refused(tmp_path, bninception, [1, 2], "bninception", "no tensors")


def test_unreadable_weights(tmp_path, bninception):
    (tmp_path / "text.pth").write_text("hello")
    (tmp_path / "cut.pth").write_bytes(b"PK\x03\x04 cut")
    for name in ("text.pth", "cut.pth"):
        with pytest.raises(WeightsError):
            load_weights(bninception, tmp_path / name, NETWORKS["bninception"])
    with pytest.raises(MissingPathError):
        load_weights(bninception, tmp_path / "none.pth", NETWORKS["bninception"])


class Trap:
    """Unpickled, it would create a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (open, (str(self.path), "w"))


def test_weights_never_run_code(tmp_path, bninception):
    torch.save({"state_dict": Trap(tmp_path / "ran")}, tmp_path / "w.pth")
    with pytest.raises(WeightsError):
        load_weights(bninception, tmp_path / "w.pth", NETWORKS["bninception"])
    assert not (tmp_path / "ran").exists()


@pytest.mark.long
def test_random_networks_are_the_same_each_time_and_calibration_travels():
    images = np.random.default_rng(1).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    first = build_twostream(SMALL, WeightSources(), "cpu", "float32")
    assert first.recipe == build_twostream(SMALL, WeightSources(), "cpu", "float32").recipe
    assert first.recipe.random_streams == "rgb and flow"
    first.calibrate("rgb", images)
    stored = calibration_of(first)
    second = build_twostream(SMALL, WeightSources(calibration=stored, calibrated_on=("a",)), "cpu", "float32")
    assert fingerprint(second.networks["rgb"]) == fingerprint(first.networks["rgb"])
    assert second.recipe.rgb.calibrated_on == ("a",)
    assert second.recipe.id != build_twostream(SMALL, WeightSources(), "cpu", "float32").recipe.id
    assert not torch.equal(statistics(second.networks["rgb"])["conv1.bn.running_mean"], torch.zeros(64)), (
        "statistics were measured"
    )
    rebuilt = rebuild_twostream(second.recipe, WeightSources(calibration=stored, calibrated_on=("a",)), "cpu")
    assert rebuilt.recipe == second.recipe
    with pytest.raises(WeightsError, match="rgb network here"):
        rebuild_twostream(second.recipe, WeightSources(), "cpu")

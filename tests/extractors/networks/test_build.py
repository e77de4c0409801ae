"""Published key layouts into the two networks, and what the networks compute."""

import numpy as np
import pytest
import torch

from lstr.extractors.backbones.mmaction_registry import registry
from lstr.extractors.backbones.networks import NETWORKS
from lstr.extractors.errors import MissingPathError, WeightsError
from lstr.extractors.images.crops import fit
from lstr.extractors.networks.weights import fingerprint, load_weights, randomise, statistics
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream, calibration_of, rebuild_twostream
from lstr.extractors.weights.sources import WeightSources
from tests.support.backbones import build_backbone

# The names below are written out as published, not derived from our modules.
BRANCHES = ("1x1", "3x3_reduce", "3x3", "double_3x3_reduce", "double_3x3_1", "double_3x3_2", "pool_proj")
STRIDED = ("3c", "4e")


def published_bninception_names() -> set[str]:
    layers = ["conv1_7x7_s2", "conv2_3x3_reduce", "conv2_3x3"]
    for block in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        kept = [b for b in BRANCHES if block not in STRIDED or b not in ("1x1", "pool_proj")]
        layers += [f"inception_{block}_{branch}" for branch in kept]
    norm = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
    return {f"{n}.{p}" for n in layers for p in ("weight", "bias")} | {f"{n}_bn.{p}" for n in layers for p in norm}


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


def copy_of(network):
    fresh = build_backbone("resnet50" if hasattr(network, "layer1") else "bninception")
    randomise(fresh, 99)
    return fresh


def test_bninception_has_the_published_keys(bninception):
    state = bninception.state_dict()
    assert set(state) == published_bninception_names() and len(state) == 483
    assert sum(p.numel() for p in bninception.parameters()) == 10_292_192
    assert state["conv1_7x7_s2.weight"].shape == (64, 10, 7, 7)
    assert state["inception_4e_double_3x3_2.weight"].shape == (256, 256, 3, 3)
    assert state["inception_5b_pool_proj.weight"].shape == (128, 1024, 1, 1)


def test_key_lists_of_the_shared_facts(shared, bninception, resnet):
    import json

    lists = json.loads((shared / "facts" / "bninception_keys.json").read_text())
    entries = {k: v for k, v in lists["cadene"]["entries"].items() if not k.startswith("last_linear")}
    entries |= lists["flow_override"]
    assert {k: list(v.shape) for k, v in bninception.state_dict().items()} == entries
    entries = json.loads((shared / "facts" / "resnet50_tsn_mmaction2_keys.json").read_text())
    entries = {k.removeprefix("backbone."): v for k, v in entries.items() if k.startswith("backbone.")}
    assert {k: list(v.shape) for k, v in resnet.state_dict().items()} == entries


def test_mmaction_configs_can_name_bninception():
    backbone = registry().build({"type": "mmaction.BNInception", "in_channels": 3})
    assert backbone.conv1_7x7_s2.in_channels == 3


@torch.inference_mode()
def test_bninception_maps(bninception):
    x = torch.randn(1, 10, 224, 224, generator=torch.Generator().manual_seed(0))
    maps = bninception(x)
    assert maps.shape == (1, 1024, 7, 7)
    assert (maps >= 0).all(), "ReLU comes before the concatenation"
    with pytest.raises(ValueError, match="multiples of 32"):
        bninception(torch.zeros(1, 10, 240, 224))


def old_batch_norm(state):
    """torch ≤ 0.1.12: batch-norm tensors are (1, C), and no counters."""
    return {k: v[None] if "_bn." in k else v for k, v in state.items() if not k.endswith("num_batches_tracked")}


FLOW_LAYOUTS = {
    "bare": lambda s: s,
    "tsn-pytorch": lambda s: {"epoch": 3, "state_dict": {f"module.base_model.{k}": v for k, v in s.items()}},
    "ssn": lambda s: {"state_dict": old_batch_norm(s)},
    "mmaction v0": lambda s: {
        "state_dict": {f"backbone.{k}": v for k, v in s.items()} | {"cls_head.fc_cls.weight": torch.zeros(101, 1024)}
    },
    "cadene": lambda s: {**s, "last_linear.weight": torch.zeros(1000, 1024), "last_linear.bias": torch.zeros(1000)},
}  # fmt: skip


@pytest.mark.parametrize("layout", FLOW_LAYOUTS)
def test_flow_layouts(tmp_path, bninception, layout):
    torch.save(FLOW_LAYOUTS[layout](bninception.state_dict()), tmp_path / "w.pth")
    other = copy_of(bninception)
    assert fingerprint(other) != fingerprint(bninception)
    load_weights(other, tmp_path / "w.pth", NETWORKS["bninception"])
    assert fingerprint(other) == fingerprint(bninception)


def torchvision_names(state):
    def rename(name):
        for n in "123":
            name = name.replace(f"conv{n}.conv.", f"conv{n}.").replace(f"conv{n}.bn.", f"bn{n}.")
        return name.replace("downsample.conv.", "downsample.0.").replace("downsample.bn.", "downsample.1.")

    return {rename(k): v for k, v in state.items()} | {
        "fc.weight": torch.zeros(1000, 2048),
        "fc.bias": torch.zeros(1000),
    }


RGB_LAYOUTS = {
    "mmaction2": lambda s: {
        "meta": {},
        "state_dict": {f"backbone.{k}": v for k, v in s.items()} | {"cls_head.fc_cls.weight": torch.zeros(400, 2048)},
    },
    "torchvision": torchvision_names,
}


@pytest.mark.parametrize("layout", RGB_LAYOUTS)
def test_rgb_layouts(tmp_path, resnet, layout):
    torch.save(RGB_LAYOUTS[layout](resnet.state_dict()), tmp_path / "w.pth")
    other = copy_of(resnet)
    load_weights(other, tmp_path / "w.pth", NETWORKS["resnet50"])
    assert fingerprint(other) == fingerprint(resnet)


def test_torchvisions_own_resnet_loads_and_agrees(tmp_path, resnet):
    from torchvision.models import resnet50

    theirs = resnet50(weights=None).eval()
    torch.save(theirs.state_dict(), tmp_path / "w.pth")
    ours = copy_of(resnet)
    load_weights(ours, tmp_path / "w.pth", NETWORKS["resnet50"])
    x = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(0))
    theirs.fc = torch.nn.Identity()
    with torch.inference_mode():
        assert torch.allclose(ours(x).mean((2, 3)), theirs(x), atol=1e-5, rtol=1e-4)


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


def test_fit_keeps_the_aspect():
    assert fit(np.zeros((240, 320, 3), np.uint8), 256).shape == (256, 341, 3)
    assert fit(np.zeros((320, 180, 10), np.uint8), 256).shape == (455, 256, 10)


@pytest.mark.long
def test_random_networks_are_the_same_each_time_and_calibration_travels():
    images = np.random.default_rng(1).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8)
    first = build_twostream(PRESETS["fast"], WeightSources(), "cpu", "float32")
    assert first.recipe == build_twostream(PRESETS["fast"], WeightSources(), "cpu", "float32").recipe
    assert first.recipe.random_streams == "rgb and flow"
    first.calibrate("rgb", images[:, None])
    stored = calibration_of(first)
    second = build_twostream(PRESETS["fast"], WeightSources(calibration=stored, calibrated_on=("a",)), "cpu", "float32")
    assert fingerprint(second.networks["rgb"]) == fingerprint(first.networks["rgb"])
    assert second.recipe.rgb.calibrated_on == ("a",)
    assert second.recipe.id != build_twostream(PRESETS["fast"], WeightSources(), "cpu", "float32").recipe.id
    assert not torch.equal(statistics(second.networks["rgb"])["conv1.bn.running_mean"], torch.zeros(64)), (
        "statistics were measured"
    )
    rebuilt = rebuild_twostream(second.recipe, WeightSources(calibration=stored, calibrated_on=("a",)), "cpu")
    assert rebuilt.recipe == second.recipe
    with pytest.raises(WeightsError, match="rgb network here"):
        rebuild_twostream(second.recipe, WeightSources(), "cpu")

"""Networks against other packages: torchvision's, timm's, EfficientNet-Lite's published code, and torch's gradients."""

import io
import json
import sys
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from efficientnet_lite_pytorch import EfficientNet
from safetensors.torch import save_file
from timm.models import get_pretrained_cfg
from torch import nn
from torchvision import models

from lstr.errors import RecipeError, WeightsError
from lstr.extractors.networks import manifest
from lstr.extractors.networks.backbones import _Depthwise
from lstr.extractors.networks.build import fingerprint, identify, load_weights
from lstr.extractors.networks.manifest import dataset_of, published_by_hash, read_manifest
from lstr.extractors.networks.network import NETWORKS, find_network
from lstr.extractors.networks.published import check, choose, find_weights, weights_by_stream
from lstr.extractors.networks.weights_file import WeightSources, sha256_of
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.recipe import Recipe
from lstr.extractors.twostream import build_twostream, calibration_of, rebuild_twostream
from lstr.pipelines.model_files.model_file import published_file
from tests.support.backbones import build_backbone, vary_batch_norms
from tests.support.errors import assert_error

# networks of other packages, and a function of their feature maps
PUBLISHED = {
    "resnet18": (models.resnet18, lambda network: nn.Sequential(*[*network.children()][:-2])),
    "shufflenetv2": (models.shufflenet_v2_x1_0, lambda network: nn.Sequential(*[*network.children()][:-1])),
    "mobilenetv3": (models.mobilenet_v3_small, lambda network: network.features),
}
SIDES = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}  # of the training images
PUBLISHED |= {name: (partial(EfficientNet.from_name, name), lambda net: net.extract_features) for name in SIDES}


@pytest.mark.parametrize("name", [name for name in NETWORKS if name != "movenet-multipose"])
def test_table_entries_match_their_networks(name):
    network = NETWORKS[name]
    assert network.name == name and network.licence and network.fits(network.smallest)
    for stream, channels in (("rgb", 3), ("flow", 10)):
        assert len(network.inputs[stream].mean) == len(network.inputs[stream].std) == channels
        maps = network.build(channels).eval()(torch.zeros(1, channels, network.smallest, network.smallest))
        assert maps.shape == (1, network.width, 1, 1)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_weights_load_into_both_streams(tmp_path, name):
    build, maps_of = PUBLISHED[name]
    torch.manual_seed(0)
    with redirect_stdout(io.StringIO()):
        published = vary_batch_norms(build())
    torch.save(published.state_dict(), tmp_path / "rgb.pth")
    assert identify(tmp_path / "rgb.pth") == (name, "rgb")
    rgb, flow = build_backbone(name, 3), build_backbone(name, 10)
    assert not load_weights(rgb, tmp_path / "rgb.pth", NETWORKS[name])
    assert load_weights(flow, tmp_path / "rgb.pth", NETWORKS[name], inflate=True)
    with torch.inference_mode():
        images = torch.randn(1, 3, SIDES.get(name, 96), SIDES.get(name, 96))
        expected = maps_of(published)(images)
        torch.testing.assert_close(rgb(images), expected, rtol=0, atol=1e-6 * float(expected.abs().max()))
    assert expected.shape[1] == NETWORKS[name].width
    torch.save(flow.state_dict(), tmp_path / "flow.pth")
    assert identify(tmp_path / "flow.pth") == (name, "flow")


def preset_of(stream: str, network: str, **options) -> Preset:
    parts = {"rgb": None, "flow": None, stream: StreamPreset(network, **options)}
    return Preset(**parts, short_side=64, crop=64)


@pytest.mark.parametrize("stream", ["rgb", "flow"])
def test_the_included_weights(stream):
    (entry,) = choose(["imagenet"])
    assert sha256_of(entry.place) == entry.sha256_prefix and published_by_hash(entry.sha256_prefix) == entry
    path = find_weights("imagenet", stream)
    assert path == str(entry.place) == find_weights(entry.name, stream)
    (verdict,) = check([path])
    assert (verdict["state"], verdict["published"], verdict["network"]) == ("ok", entry.name, "efficientnet-lite0")
    preset = preset_of(stream, "efficientnet-lite0", weights="imagenet")
    twostream = build_twostream(preset, WeightSources({stream: path}), "cpu", "float32")
    part = twostream.recipe.parts[stream]
    assert (part.weights, part.stem) == ("imagenet", "mean" if stream == "flow" else None)
    assert str(published_file(part, stream).place) == path
    stored = Recipe.from_dict(twostream.recipe.to_dict())
    assert rebuild_twostream(stored, WeightSources({stream: path}), "cpu").recipe.id == twostream.recipe.id


MAPS, TOKENS = "timm:mobilenetv4_conv_small", "timm:test_vit"


@pytest.mark.parametrize("name", [MAPS, TOKENS])
@torch.inference_mode()
def test_rgb_features_equal_timms(name, tmp_path):
    """With a local file that contains a classifier, as timm publishes it."""
    torch.manual_seed(3)
    options = {"dynamic_img_size": True} if name == TOKENS else {}
    published = vary_batch_norms(timm.create_model(name.removeprefix("timm:"), pretrained=False, **options))
    sources = WeightSources({"rgb": str(tmp_path / "w.safetensors")})
    save_file(published.state_dict(), tmp_path / "w.safetensors")
    twostream = build_twostream(preset_of("rgb", name), sources, "cpu")
    part, stored = twostream.recipe.rgb, Recipe.from_dict(twostream.recipe.to_dict())
    assert (part.network, part.weights, part.stem) == (name, "custom", None)
    assert part.folder("rgb") == f"rgb_custom_{name.replace(':', '-')}"
    assert rebuild_twostream(stored, sources, "cpu").recipe == twostream.recipe
    images = np.random.default_rng(0).integers(0, 256, (2, 1, 64, 64, 3), np.uint8)
    x = (torch.from_numpy(images[:, 0]).float() - torch.tensor(part.mean)) / torch.tensor(part.std)
    published.reset_classifier(0, *([""] if name == MAPS else []))
    expected = published(x.permute(0, 3, 1, 2))
    expected = expected.mean((2, 3)) if name == MAPS else expected
    torch.testing.assert_close(torch.from_numpy(twostream.pooled("rgb", images)), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["resnot", "hf-hub:some/network", "local-dir:/tmp", "../resnet18", ""])
def test_unknown_names_of_timm_are_not_looked_up_online(name, monkeypatch):
    monkeypatch.setattr("socket.socket.connect", lambda *address: pytest.fail("a connection was opened"))
    with pytest.raises(RecipeError):
        find_network(f"timm:{name}")
    with pytest.raises(WeightsError):
        choose([f"timm:{name}"])


def test_without_timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(RecipeError) as caught:
        find_network("timm:resnet26")
    assert "[timm]" in caught.value.hint


LISTED = [entry for entry in read_manifest() if entry.network.startswith("timm:")]
TEST = "timm:test_vit.r160_in1k"  # timm's smallest transformer


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry.network[5:])
def test_the_manifest_agrees_with_timm(entry):
    about = get_pretrained_cfg(entry.network.removeprefix("timm:"))
    assert entry.licence.lower().startswith(about.license) and about.license == "apache-2.0"
    if entry.sha256_prefix:  # as for torch.hub, the file name ends with the start of the hash
        assert entry.address == about.url and entry.name.endswith(f"-{entry.sha256_prefix}.pth")
    else:
        assert entry.address == f"https://huggingface.co/{about.hf_hub_id}/resolve/main/model.safetensors"
        assert "no hash is known" in entry.note


def test_a_file_without_a_published_hash_is_trusted_once(lstr, tmp_path, monkeypatch):
    source = tmp_path / "source.safetensors"
    entry = {**vars(LISTED[0]), "name": "vit.safetensors", "network": TEST, "sha256_prefix": None, "pinned": False}
    (tmp_path / "manifest.json").write_text(json.dumps({"weights": [entry]}))
    monkeypatch.setattr(manifest, "MANIFEST", tmp_path / "manifest.json")
    torch.manual_seed(0)
    save_file(timm.create_model(TEST[5:], pretrained=False).state_dict(), source)
    code, out, err = lstr("weights", "fetch", TEST, "--from", source)
    path, sha256 = Path(out.strip()), sha256_of(source)
    assert code == 0 and path.read_bytes() == source.read_bytes() and sha256 in err
    (listed,) = json.loads(lstr("weights", "list", "--json")[1])
    assert listed["here"] and listed["pinned"] and listed["sha256_prefix"] == sha256
    (verdict,) = json.loads(lstr("weights", "check", "--json")[1])
    assert (verdict["state"], verdict["network"], verdict["stream"]) == ("ok", TEST, "rgb")
    assert verdict["origin"]["licence"] == entry["licence"] and verdict["origin"]["sha256"] == sha256
    assert find_weights(TEST, "rgb") == weights_by_stream([TEST])["rgb"] == weights_by_stream([str(path)])["rgb"]
    assert dataset_of(path) == "custom", "as on a machine without this file"
    path.write_bytes(b"another")
    assert lstr("weights", "check")[0] == 4
    save_file({"other": torch.zeros(1)}, source)
    assert_error(lstr("weights", "fetch", TEST, "--from", source), 4, sha256[:8])  # only the first file is trusted
    pins = path.with_name(manifest.PINS)
    for text in ("{", "[]", '{"weights": [{}]}', '{"weights": 3}'):
        pins.write_text(text)
        assert_error(lstr("weights", "list"), 4, str(pins))


@pytest.mark.long
def test_random_networks_are_reproducible():
    preset = Preset(StreamPreset("mobilenetv3"), StreamPreset("shufflenetv2"), "difference")
    first, second = (build_twostream(preset, WeightSources(), "cpu", "float32") for _ in range(2))
    assert first.recipe == second.recipe and first.recipe.random_streams == "rgb and flow"
    first.calibrate("rgb", np.random.default_rng(1).integers(0, 256, (4, 64, 64, 3), dtype=np.uint8))
    sources = WeightSources(calibration=calibration_of(first), calibrated_on=("a",))
    calibrated = build_twostream(preset, sources, "cpu", "float32")
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

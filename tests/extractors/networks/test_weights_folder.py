"""Weights folders and model files: networks, folds, origin and licence."""

import json
import shutil
from dataclasses import asdict, replace

import pytest
import torch

from lstr.checkpoint import save
from lstr.errors import RecipeError
from lstr.extractors.networks.archive import Archive
from lstr.extractors.networks.build import build_network, fingerprint, identify
from lstr.extractors.networks.manifest import origin_of, published_by_hash
from lstr.extractors.networks.published import check, find_weights
from lstr.extractors.networks.weights_file import (
    ModelCard,
    WeightSources,
    is_weights_folder,
    read_card,
    read_state_dict,
)
from lstr.extractors.networks.weights_folder import blind_fold, cards_of, open_weights, write_network
from lstr.extractors.presets import Preset, StreamPreset
from lstr.kinds import configure, make_model
from lstr.pipelines.features.folder import open_features
from lstr.pipelines.model_files.packing import unpack_model, write_model
from lstr.pipelines.training.recogniser import initial_weights
from tests.support.backbones import build_backbone
from tests.support.feature_set import TINY
from tests.support.finetuned import CLASSES, NAMES, RGB_DIM, SMALL

pytestmark = pytest.mark.long


def test_written_networks_are_read(finetuned):
    weights = finetuned.weights
    read = open_weights(weights.path)
    assert is_weights_folder(weights.path) and not is_weights_folder(weights.path / "fold_1")
    assert read.recipe == weights.recipe and read.about == weights.about
    assert (read.about["name"], read.about["classes"], read.recipe.streams) == ("fälle", [*CLASSES], ("rgb", "flow"))
    assert read.about["folds"] == {"scene_00": 1, "scene_01": 2} and read.about["seconds"] == 1.0
    assert read.recipe.flow.folder("flow") == "flow_fälle_shufflenetv2"
    card, seen = read_card(read.file("flow", 2)), {"scene_00": read.about["training"]["scene_00"]}
    assert card == ModelCard("fälle", "flow", "shufflenetv2", CLASSES, seen, 0.5, 2)
    cards = cards_of(weights.path, "rgb", 2)
    assert blind_fold(cards, "scene_00", None) == 1
    assert blind_fold([replace(card, seen=read.about["training"]) for card in cards], "scene_00", None) is None
    for stream, name in NAMES.items():
        part, sources = weights.recipe.parts[stream], WeightSources({stream: str(weights.path)})
        assert len({part.sha256, *part.folds}) == 3
        for fold, sha256 in zip((None, 1, 2), (part.sha256, *part.folds), strict=True):
            assert identify(weights.file(stream, fold)) == (name, stream)
            network, rebuilt = build_network(stream, part, sources, fold=fold)
            assert fingerprint(network) == sha256 and rebuilt == replace(part, sha256=sha256)


def test_keys_of_files_are_the_published_ones(shared, tmp_path):
    head = {"cls_head.fc_cls.weight": torch.ones(2, 1024), "cls_head.fc_cls.bias": torch.zeros(2)}
    for stream, network in (("rgb", "resnet50"), ("flow", "bninception")):
        state = {f"backbone.{name}": tensor for name, tensor in build_backbone(network).state_dict().items()}
        write_network(tmp_path, state | head, ModelCard("w", stream, network, CLASSES, {}))
    facts = json.loads((shared / "facts" / "resnet50_tsn_mmaction2_keys.json").read_text())
    names = {name for name in facts if not name.startswith(("_", "note"))}
    assert names <= read_state_dict(tmp_path / "rgb.pth").keys()
    flow = read_state_dict(tmp_path / "flow.pth")
    assert flow["module.base_model.conv1_7x7_s2.weight"].shape == (64, 10, 7, 7)
    assert flow["module.new_fc.weight"].shape == (len(CLASSES), 1024) and "module.new_fc.bias" in flow


def test_check_and_info_of_a_weights_folder(lstr, finetuned):
    weights = finetuned.weights
    verdicts = [[v[k] for k in ("state", "stream", "network", "name", "fold", "seen")] for v in check([weights.path])]
    folds = [(None, 2), (1, 1), (2, 1)]
    assert verdicts == [["ok", s, n, "fälle", fold, seen] for s, n in NAMES.items() for fold, seen in folds]
    assert find_weights(str(weights.path), "rgb") == str(weights.path)
    with pytest.raises(RecipeError) as caught:
        open_features(weights.path)
    assert "--recipe" in caught.value.hint
    info = json.loads(lstr("info", weights.path, "--json")[1])
    assert info["kind"] == "weights folder" and info["pairs"] == 3
    assert info["training"] == ["scene_00", "scene_01"] and info["recipe_id"] == weights.recipe.id
    code, out, err = lstr("info", weights.file("rgb", 1))
    assert code == 0 and "scene_01" in out and "scene_00" not in out, err


LITE0 = Preset(StreamPreset("efficientnet-lite0"), None, short_side=64, crop=64)


def test_a_model_file_passes_on_the_origin_of_its_networks(lstr, finetuned, tmp_path):
    """Only the RGB network of this model file has an origin: the included weights."""
    imagenet = initial_weights(LITE0, "imagenet", {})["rgb"].origin
    assert imagenet.licence.startswith("Apache-2.0") and imagenet.dataset == "imagenet"
    assert published_by_hash(imagenet.sha256).name == imagenet.file and "Apache-2.0" in str(imagenet)
    assert initial_weights(LITE0, None, {})["rgb"].origin is None, "random weights"
    weights = shutil.copytree(finetuned.weights.path, tmp_path / "weights")
    content = torch.load(weights / "rgb.pth", weights_only=True)
    card = replace(read_card(weights / "rgb.pth"), origin=imagenet)
    torch.save({**content, "lstr": card.to_json()}, weights / "rgb.pth")
    network = make_model(configure(**TINY, rgb_dim=RGB_DIM), len(CLASSES)).eval()
    save(tmp_path / "c.pt", network, CLASSES, json.loads(finetuned.weights.recipe.to_json()), {}, {})
    model = write_model(tmp_path / "m.lstr", tmp_path / "c.pt", weights, {})
    entries = model.about["networks"]
    assert entries["rgb"]["origin"] == asdict(imagenet) and "origin" not in entries["flow"]
    assert model.recipe.id == finetuned.weights.recipe.id
    assert imagenet.licence in Archive(model.path).read("card.md").decode()
    code, out, _ = lstr("info", model.path, "--json")
    networks = json.loads(out)["networks"]
    assert code == 0 and str(imagenet) in networks["rgb"] and "origin" not in networks["flow"]
    verdicts = json.loads(lstr("weights", "check", model.path, "--json")[1])
    assert [verdict["origin"] for verdict in verdicts] == [asdict(imagenet), None]
    torch.save(network.state_dict(), tmp_path / "mine.pth")
    assert origin_of(tmp_path / "mine.pth").licence is None
    unpacked = unpack_model(model.path, tmp_path / "parts") / "weights"
    assert origin_of(unpacked / "rgb.pth") == imagenet and origin_of(unpacked / "flow.pth") is None
    assert json.loads(lstr("info", unpacked, "--json")[1])["origins"] == {"rgb": str(imagenet)}
    assert initial_weights(SMALL, str(model.path), {})["rgb"].origin == imagenet

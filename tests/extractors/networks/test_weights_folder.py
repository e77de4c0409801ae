"""The weights folder: what is written is read, every reader of weights takes it, and damage is named."""

import json
from dataclasses import replace

import pytest
import torch

from lstr.errors import RecipeError
from lstr.extractors.networks.build import build_network, fingerprint, identify
from lstr.extractors.networks.published import check, find_weights
from lstr.extractors.networks.weights_file import (
    ModelCard,
    WeightSources,
    is_weights_folder,
    read_card,
    read_state_dict,
)
from lstr.extractors.networks.weights_folder import blind_fold, cards_of, open_weights, write_network
from lstr.pipelines.features.folder import open_features
from tests.support.backbones import build_backbone
from tests.support.finetuned import CLASSES, NAMES

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def weights(finetuned):
    return finetuned.weights


def test_what_is_written_is_read(weights):
    read = open_weights(weights.path)
    assert is_weights_folder(weights.path) and not is_weights_folder(weights.path / "fold_1")
    assert read.recipe == weights.recipe and read.about == weights.about
    assert (read.about["name"], read.about["classes"], read.recipe.streams) == ("fälle", [*CLASSES], ("rgb", "flow"))
    assert read.about["folds"] == {"scene_00": 1, "scene_01": 2} and read.about["seconds"] == 1.0
    assert read.recipe.flow.folder("flow") == "flow_fälle_shufflenetv2"
    card, seen = read_card(read.file("flow", 2)), {"scene_00": read.about["training"]["scene_00"]}
    assert card == ModelCard("fälle", "flow", "shufflenetv2", CLASSES, seen, 0.5, 2)


@pytest.mark.parametrize("stream", NAMES)
def test_each_network_is_the_one_of_its_file(weights, stream):
    part, sources = getattr(weights.recipe, stream), WeightSources({stream: str(weights.path)})
    assert len({part.sha256, *part.folds}) == 3
    for fold, sha256 in zip((None, 1, 2), (part.sha256, *part.folds), strict=True):
        assert identify(weights.file(stream, fold)) == (NAMES[stream], stream)
        network, built = build_network(stream, part, sources, fold=fold)
        assert fingerprint(network) == sha256 and built == replace(part, sha256=sha256)


def test_keys_are_as_published(shared, tmp_path):
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


def test_the_fold_of_a_video(weights):
    first, second = weights.about["training"].values()
    new = "4" * 64
    for stream in weights.recipe.streams:
        cards = cards_of(weights.path, stream, 2)
        for fold, video_id, sha256 in (
            (1, "scene_00", None),
            (1, "a copy", first),
            (2, "scene_01", second),
            (2, "scene_01", new),  # another encoding of it
            (2, "scene_00", second),  # content counts for more than a name
            (None, "new", new),
        ):
            assert blind_fold(cards, video_id, sha256) == fold
        everyone = [replace(card, seen=weights.about["training"]) for card in cards]
        assert blind_fold(everyone, "scene_00", first) is None


def test_a_folder_is_checked_and_described(lstr, weights):
    verdicts = list(check([str(weights.path)]))
    told = [tuple(v[k] for k in ("state", "stream", "network", "name", "fold", "seen")) for v in verdicts]
    expected = [(None, 2), (1, 1), (2, 1)]
    assert told == [("ok", s, n, "fälle", fold, seen) for s, n in NAMES.items() for fold, seen in expected]
    assert find_weights(str(weights.path), "rgb") == str(weights.path)
    with pytest.raises(RecipeError) as caught:
        open_features(weights.path)
    assert "--recipe" in caught.value.hint
    described = json.loads(lstr("info", weights.path, "--json")[1])
    assert described["kind"] == "weights folder" and described["pairs"] == 3
    assert described["training"] == ["scene_00", "scene_01"] and described["recipe_id"] == weights.recipe.id
    code, out, err = lstr("info", weights.file("rgb", 1))
    assert code == 0 and "scene_01" in out and "scene_00" not in out, err

"""The weights folder: what is written is read, every reader of weights takes it, and damage is named."""

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch

from lstr.errors import MissingPathError, RecipeError, WeightsError
from lstr.extractors.networks.build import build_network, fingerprint, identify, load_weights
from lstr.extractors.networks.manifest import fit_name
from lstr.extractors.networks.network import NETWORKS
from lstr.extractors.networks.published import check, find_weights
from lstr.extractors.networks.weights_file import (
    ModelCard,
    WeightSources,
    is_weights_folder,
    read_card,
    read_state_dict,
)
from lstr.extractors.networks.weights_folder import blind_fold, cards_of, open_weights, write_network
from lstr.extractors.streams import CHANNELS_OF
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


def test_a_folder_of_one_stream_is_read(weights, tmp_path):
    """`lstr finetune --stream flow` leaves the other stream out of the recipe."""
    shutil.copytree(weights.path, tmp_path / "flow")
    for file in (tmp_path / "flow").rglob("rgb.pth"):
        file.unlink()
    recipe = json.loads((tmp_path / "flow" / "recipe.json").read_text())
    (tmp_path / "flow" / "recipe.json").write_text(json.dumps(recipe | {"rgb": None}))
    assert open_weights(tmp_path / "flow").recipe.streams == ("flow",)


@pytest.mark.parametrize("stream", NAMES)
def test_each_network_is_the_one_of_its_file(weights, stream):
    hashes = []
    for fold in (None, 1, 2):
        path = weights.file(stream, fold)
        backbone = build_backbone(NAMES[stream], CHANNELS_OF[stream])
        load_weights(backbone, path, NETWORKS[NAMES[stream]])
        assert identify(path) == (NAMES[stream], stream)
        hashes.append(fingerprint(backbone))
    part = getattr(weights.recipe, stream)
    assert hashes == [part.sha256, *part.folds] and len(set(hashes)) == 3
    sources = WeightSources({stream: str(weights.path)})
    assert build_network(stream, part, sources, fold=2)[1] == replace(part, sha256=hashes[2])


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
    cards = {stream: cards_of(weights.path, stream, 2) for stream in weights.recipe.streams}

    def fold_of(video_id, sha256):
        (fold,) = {blind_fold(of, video_id, sha256) for of in cards.values()}  # both streams agree
        return fold

    def seen_by(video_id, sha256, fold=None):
        return tuple(
            stream
            for stream, of in cards.items()
            if video_id in of[fold or 0].seen or sha256 in of[fold or 0].seen.values()
        )

    first, second = weights.about["training"].values()
    new = "4" * 64
    assert fold_of("scene_00", None) == fold_of("a copy", first) == 1
    assert fold_of("scene_01", second) == fold_of("scene_01", new) == 2, "another encoding of it"
    assert fold_of("new", new) is None and seen_by("new", new) == ()
    assert fold_of("scene_00", second) == 2, "content counts for more than a name"
    assert seen_by("scene_00", first) == ("rgb", "flow") and seen_by("scene_00", first, 1) == ()
    everyone = [replace(card, seen=weights.about["training"]) for card in cards["rgb"]]
    assert blind_fold(everyone, "scene_00", first) is None


def test_each_file_of_a_folder_is_checked(lstr, weights):
    verdicts = list(check([str(weights.path)]))
    told = [tuple(v[k] for k in ("state", "stream", "network", "name", "fold", "seen")) for v in verdicts]
    expected = [(None, 2), (1, 1), (2, 1)]
    assert told == [("ok", s, n, "fälle", fold, seen) for s, n in NAMES.items() for fold, seen in expected]


def test_a_folder_is_a_source_of_weights_and_none_of_features(weights):
    assert find_weights(str(weights.path), "rgb") == str(weights.path)
    with pytest.raises(RecipeError, match="holds networks") as caught:
        open_features(weights.path)
    assert "--recipe" in caught.value.hint


def test_a_folder_and_its_files_are_described(lstr, weights):
    code, out, err = lstr("info", weights.path, "--json")
    described = json.loads(out)
    assert code == 0 and described["kind"] == "weights folder" and described["pairs"] == 3, err
    assert described["training"] == ["scene_00", "scene_01"] and described["recipe_id"] == weights.recipe.id
    code, out, err = lstr("info", weights.file("rgb", 1))
    assert code == 0 and "weights file" in out and "scene_01" in out and "scene_00" not in out, err


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda w: (w / "fold_2" / "flow.pth").unlink(), "fold_2/flow.pth is not there"),
        (lambda w: (w / "finetune.json").unlink(), "not a finished weights folder"),
        (lambda w: (w / "finetune.json").write_text("{"), "cannot be read"),
        (lambda w: (w / "finetune.json").write_text('{"format": "x/1"}'), "is not of lstr-weights/1"),
        (lambda w: (w / "recipe.json").write_text("{}"), "not a recipe of features"),
        (lambda w: (w / "recipe.json").unlink(), "recipe.json cannot be read"),
    ],
)
def test_harm_is_named(weights, tmp_path, harm, said):
    shutil.copytree(weights.path, tmp_path / "w", copy_function=lambda a, b: b and os.link(a, b))
    harmed = tmp_path / "w"
    for name in ("finetune.json", "recipe.json"):  # not through the link
        content = (harmed / name).read_text()
        (harmed / name).unlink()
        (harmed / name).write_text(content)
    harm(harmed)
    with pytest.raises(WeightsError, match=said) as caught:
        open_weights(harmed)
    assert caught.value.hint


def test_a_path_that_is_not_there(tmp_path):
    with pytest.raises(MissingPathError):
        open_weights(tmp_path / "none")


def test_a_file_that_does_not_say_what_it_has_seen(weights, tmp_path):
    content = torch.load(weights.file("rgb"), weights_only=True)
    for name, entry in (("none", None), ("odd", "{"), ("other", '{"format": "other/1"}')):
        changed = {"state_dict": content["state_dict"], **({"lstr": entry} if entry else {})}
        torch.save(changed, tmp_path / name)
    assert read_card(tmp_path / "none") is None
    for name in ("odd", "other"):
        with pytest.raises(WeightsError, match="known form"):
            read_card(tmp_path / name)
    (tmp_path / "cut").write_bytes(weights.file("flow").read_bytes()[:1000])
    with pytest.raises(WeightsError, match="damaged"):
        read_card(tmp_path / "cut")


def test_names():
    assert fit_name("/x/my weights!") == "my-weights" and fit_name("/x/..a") == "a"
    assert fit_name("/x/random") == "random-finetuned" and fit_name("/x/Kinetics") == "Kinetics-finetuned"
    assert fit_name("/") == "weights" and len(fit_name("/" + "ä" * 300)) == 48

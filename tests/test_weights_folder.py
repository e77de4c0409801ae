"""The weights folder: what is written is read, every reader of weights takes it, and damage is named."""

import json
import os
import shutil
from dataclasses import replace

import pytest
import torch

from extractors.errors import MissingPathError, WeightsError
from extractors.model_card import ModelCard, blind_fold, read_card
from extractors.networks import WeightSources, build_network
from extractors.presets import PRESETS
from extractors.resnet import CONFIGS, build_backbone, registry
from extractors.weights import fingerprint, identify, load_weights, randomise, read_state_dict
from pipelines.tsn_runner import recogniser
from pipelines.weights_folder import fit_name, is_weights_folder, open_weights, write_network, write_weights

NETWORKS = {"rgb": "resnet50", "flow": "bninception"}
CLASSES = ("Background", "fall")
TRAINING = {"a": "1" * 64, "b": "2" * 64, "c": "3" * 64}
FOLDS = {"a": 1, "b": 2, "c": 2}


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A finished folder of two streams and two folds."""
    return write(tmp_path_factory.mktemp("weights") / "fälle", ("rgb", "flow"), 2)


def write(path, streams, n_folds):
    registry()
    import extractors.bninception  # noqa: F401  (registers BNInception)

    for stream in streams:
        model = recogniser(CONFIGS[NETWORKS[stream]], len(CLASSES), 0.5)
        for fold in (None, *range(1, n_folds + 1)):
            randomise(model.backbone, fold or 0)
            seen = {i: sha256 for i, sha256 in TRAINING.items() if FOLDS[i] != fold}
            card = ModelCard(fit_name(path), stream, NETWORKS[stream], CLASSES, seen, 0.5, fold)
            write_network(path, model.state_dict(), card)
    assert not is_weights_folder(path)
    return write_weights(path, PRESETS["fast"], FOLDS, TRAINING, {"seconds": 1.0}, n_folds, "float32")


def test_what_is_written_is_read(weights):
    read = open_weights(weights.path)
    assert read.recipe == weights.recipe and read.about == weights.about and read.n_folds == 2
    assert (read.name, read.classes, read.streams) == ("fälle", CLASSES, ("rgb", "flow"))
    assert read.about["folds"] == FOLDS and read.about["training"] == TRAINING and read.about["seconds"] == 1.0
    assert read.recipe.flow.folder("flow") == "flow_fälle_bninception"
    card = read_card(read.file("flow", 2))
    assert card == ModelCard("fälle", "flow", "bninception", CLASSES, {"a": "1" * 64}, 0.5, 2)


@pytest.mark.parametrize("stream", NETWORKS)
def test_each_network_is_the_one_of_its_file(weights, stream):
    hashes = []
    for fold in (None, 1, 2):
        path = weights.file(stream, fold)
        backbone = build_backbone(NETWORKS[stream])
        load_weights(backbone, path, NETWORKS[stream])
        assert identify(path) == (NETWORKS[stream], stream)
        hashes.append(fingerprint(backbone))
    part = getattr(weights.recipe, stream)
    assert hashes == [part.sha256, *part.folds] and len(set(hashes)) == 3
    sources = WeightSources(**{stream: str(weights.path)})
    assert build_network(stream, part, sources, fold=2)[1] == replace(part, sha256=hashes[2])


def test_keys_are_as_published(weights, shared):
    facts = json.loads((shared / "facts" / "resnet50_tsn_mmaction2_keys.json").read_text())
    names = {name for name in facts if not name.startswith(("_", "note"))}
    assert names <= read_state_dict(weights.file("rgb")).keys()
    flow = read_state_dict(weights.file("flow"))
    assert flow["module.base_model.conv1_7x7_s2.weight"].shape == (64, 10, 7, 7)
    assert flow["module.new_fc.weight"].shape == (len(CLASSES), 1024) and "module.new_fc.bias" in flow


def test_the_fold_of_a_video(weights):
    assert weights.fold_of("a", None) == weights.fold_of("copy of a", "1" * 64) == 1
    assert weights.fold_of("b", "2" * 64) == weights.fold_of("b", "of another encoding") == 2
    assert weights.fold_of("new", "4" * 64) is None and weights.seen_by("new", "4" * 64) == ()
    assert weights.fold_of("a", "2" * 64) == 2, "content counts for more than a name"
    assert weights.seen_by("a", "1" * 64) == ("rgb", "flow") and weights.seen_by("a", "1" * 64, 1) == ()
    everyone = [replace(card, seen=TRAINING) for card in weights.cards["rgb"]]
    assert blind_fold(everyone, "a", "1" * 64) is None


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (lambda w: (w / "fold_2" / "flow.pth").unlink(), "fold_2/flow.pth is not there"),
        (lambda w: (w / "finetune.json").unlink(), "no finished folder"),
        (lambda w: (w / "finetune.json").write_text("{"), "cannot be read"),
        (lambda w: (w / "finetune.json").write_text('{"format": "x/1"}'), "is not of lstr-weights/1"),
        (lambda w: (w / "recipe.json").write_text("{}"), "no recipe of features"),
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
        with pytest.raises(WeightsError, match="form known here"):
            read_card(tmp_path / name)
    (tmp_path / "cut").write_bytes(weights.file("flow").read_bytes()[:1000])
    with pytest.raises(WeightsError, match="damaged"):
        read_card(tmp_path / "cut")


def test_names():
    assert fit_name("/x/my weights!") == "my-weights" and fit_name("/x/..a") == "a"
    assert fit_name("/x/random") == "random-finetuned" and fit_name("/x/Kinetics") == "Kinetics-finetuned"
    assert fit_name("/") == "weights" and len(fit_name("/" + "ä" * 300)) == 48

"""Files from a stranger, through every way in: they write nothing outside of the output, and run nothing."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from lstr.checkpoint import save
from lstr.errors import ExtractorError, LabelsError, LstrError
from lstr.extractors.networks import manifest
from lstr.extractors.networks.archive import write_archive
from lstr.extractors.networks.build import fingerprint
from lstr.extractors.networks.published import fetch
from lstr.extractors.networks.weights_file import FORMAT, ModelCard, WeightSources
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.twostream import build_twostream
from lstr.kinds import configure, make_model
from lstr.pipelines.annotations.convert import convert
from lstr.pipelines.annotations.format import writable
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.model_files.packing import write_model
from tests.support.backbones import build_backbone, scale_of
from tests.support.errors import assert_error
from tests.support.feature_set import TINY
from tests.support.finetuned import SMALL
from tests.support.videos import write_video

NAMES = ("x/../../../PWNED/any", "../PWNED", "/PWNED", "..", "a/b", "a\0b", "a" * 300, ".x")
CLASSES = ("Background", "fall")


@pytest.fixture
def place(tmp_path) -> Path:
    """A folder in folders, with a video; what an attack leaves beside it is found."""
    folder = tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    write_video(folder / "v.mp4", range(0, 600, 25), (64, 64))
    return folder


def left(place: Path) -> set[str]:
    """What is in the test's folder but not in the project."""
    root = place.parents[1]
    return {str(p.relative_to(root)) for p in root.rglob("*") if place not in (p, *p.parents)} - {"home"}


@pytest.fixture(scope="module")
def sound() -> Recipe:
    """A whole recipe of one random network, which extraction follows."""
    preset = replace(SMALL.narrowed(["rgb"]), rgb=replace(SMALL.rgb, network="shufflenetv2"))
    return build_twostream(preset, WeightSources(), "cpu", "float32").recipe


def with_part(recipe: Recipe, **changes) -> dict:
    """The recipe's JSON with another network part."""
    values = json.loads(recipe.to_json())
    return values | {"rgb": values["rgb"] | changes}


def extract(lstr, place: Path, *more) -> tuple[int, str, str]:
    return lstr("extract", place / "v.mp4", "-o", place / "f", "--workers", 1, *more)


def test_the_recipe_of_these_tests_is_followed(place, sound, lstr):
    """Or the attacks below would fail for another reason."""
    (place / "recipe.json").write_text(json.dumps(with_part(sound)))
    code, _, err = extract(lstr, place, "--recipe", place / "recipe.json", "--set", "cache=none")
    assert code == 0 and (place / "f" / "rgb_random_shufflenetv2" / "v.npy").is_file(), err


@pytest.mark.parametrize(("entry", "name"), [*(("network", name) for name in NAMES), ("weights", NAMES[0])])
def test_names_in_a_recipe_make_no_folder_outside(place, sound, lstr, entry, name):
    (place / "recipe.json").write_text(json.dumps(with_part(sound, **{entry: name})))
    assert_error(extract(lstr, place, "--recipe", place / "recipe.json"), 4, f"rgb.{entry}", "recipe.json")
    assert left(place) == set() and not (place / "f").exists()


@pytest.mark.parametrize("name", NAMES[:3])
def test_the_name_in_the_card_of_weights_makes_no_folder_outside(place, lstr, name):
    backbone = build_backbone("shufflenetv2", 3)
    card = ModelCard(name, "rgb", "shufflenetv2", CLASSES, {}).to_json()
    torch.save({"state_dict": backbone.state_dict(), "lstr": card}, place / "w.pth")
    network = ["--stream", "rgb", "--set", "recipe.rgb.network=shufflenetv2", "--weights", f"rgb={place / 'w.pth'}"]
    assert_error(extract(lstr, place, "--recipe", "fast", *network), 4, "w.pth")
    assert left(place) == set() and not (place / "f").exists()


def test_the_name_of_a_weights_folder(tmp_path, lstr):
    about = {"format": FORMAT, "name": "../PWNED", "classes": []}
    (tmp_path / "finetune.json").write_text(json.dumps(about))
    assert_error(lstr("weights", "check", tmp_path), 4, "finetune.json", "'../PWNED'")


def write_labels(place: Path, video_id: str, label: str) -> Path:
    entry = {"subset": "training", "duration": 4, "annotations": [{"label": label, "segment": [0, 1]}]}
    (place / "labels.json").write_text(json.dumps({"database": {video_id: entry}}))
    return place / "labels.json"


@pytest.mark.parametrize("name", ["../PWNED", "/PWNED/x", "a/../../../PWNED", "", "a\0b", "a" * 300, "\ud800"])
def test_video_ids_in_labels_are_no_paths_outside(place, name):
    """Read for a job or converted into files per video; also in the published form, whose targets are read by id."""
    labels = write_labels(place, name, "fall")
    with pytest.raises(LstrError, match="labels.json") as caught:
        read_label_file(labels)
    assert len(str(caught.value)) < 600
    for form in writable():
        with pytest.raises(LabelsError):
            convert([labels], form, place / "out")
    (place.parent / "target_perframe").mkdir()
    info = {"S": {"class_names": list(CLASSES), "train_session_set": [name], "data_root": str(place)}}
    (place / "data_info.json").write_text(json.dumps(info))
    with pytest.raises(LstrError, match="data_info.json, S, train_session_set"):
        read_label_file(place / "data_info.json", [place])
    assert left(place) == {"home/target_perframe"} and not (place / "out").exists()


@pytest.mark.parametrize("label", ["../../PWNED", "/PWNED", "a/b", "..", "a\0b", "b" * 300])
def test_class_names_are_no_paths(place, label):
    """In the form of THUMOS a file is called after its class."""
    for form in writable():
        (place / "out" / form).mkdir(parents=True)
        try:
            convert([write_labels(place, "v", label)], form, place / "out" / form)
        except LstrError as error:
            assert error.hint
    assert left(place) == set()


@pytest.mark.parametrize("entry", ["name", "dataset"])
def test_names_in_the_list_of_published_weights(place, monkeypatch, entry):
    listed = json.loads(manifest.MANIFEST.read_text())["weights"][0]
    (place / "m.json").write_text(json.dumps({"weights": [listed | {entry: "../../PWNED"}]}))
    (place / "source").write_bytes(b"x")
    monkeypatch.setattr(manifest, "MANIFEST", place / "m.json")
    monkeypatch.setenv("LSTR_HOME", str(place / "lstr"))
    with pytest.raises(ExtractorError, match="'../../PWNED'"):
        list(fetch([listed["recipe"]], str(place / "source"), lambda *_: None))
    assert left(place) == set()


@pytest.fixture
def planted(tmp_path, monkeypatch) -> Path:
    """A module on the path of imports, whose top level leaves a file: whoever imports it runs it."""
    folder = tmp_path / "planted"
    folder.mkdir()
    code = f"open({str(tmp_path / 'RAN')!r}, 'w')\ndef run(**_): pass\n"
    (folder / "evilmodule.py").write_text(code)
    (folder / "evilpackage").mkdir()
    for name in ("__init__", "registry"):
        (folder / "evilpackage" / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(folder)
    yield tmp_path / "RAN"
    for name in [n for n in sys.modules if n.startswith("evil")]:
        del sys.modules[name]


@pytest.mark.parametrize("network", ["evilmodule", "timm:evilmodule"])
@pytest.mark.parametrize("way", ["recipe", "feature folder", "checkpoint", "model file"])
def test_no_way_in_imports_what_a_file_names(place, sound, planted, lstr, way, network):
    values = with_part(sound, network=network, width=64)
    if way in ("recipe", "feature folder"):
        (place / "given").mkdir()
        (place / "given" / "recipe.json").write_text(json.dumps(values))
        recipe = place / "given" / "recipe.json" if way == "recipe" else place / "given"
        result = extract(lstr, place, "--recipe", recipe)
    else:
        model = make_model(configure(**TINY, rgb_dim=1024, flow_dim=0), len(CLASSES)).eval()
        save(place / "c.pt", model, CLASSES, values, {})
        path = place / "c.pt" if way == "checkpoint" else write_model(place / "m.lstr", place / "c.pt", None, {}).path
        result = lstr("detect", place / "v.mp4", "-o", place / "out", "-m", path)
    assert_error(result, 4)
    assert not planted.exists() and not any(name.startswith("evil") for name in sys.modules)


def test_a_recipe_file_does_not_run_a_config_beside_it(place, planted, lstr, monkeypatch):
    """What comes with a recipe is no more trusted than the recipe."""
    monkeypatch.chdir(place)
    for name in ("net.py", "net"):
        (place / name).write_text("__import__('evilmodule')\n")
        (place / "own.json").write_text(json.dumps({"rgb": {"network": name}, "flow": None}))
        assert_error(extract(lstr, place, "--recipe", place / "own.json"), 4, "net")
    assert not planted.exists()


def test_a_name_of_weights_in_a_model_file(sound, tmp_path):
    """A member's weights are called as model.json says."""
    backbone = build_backbone("shufflenetv2", 3)
    part = NetworkRecipe("shufflenetv2", "mine", fingerprint(backbone), 1, *scale_of("shufflenetv2", "rgb"))
    document = {"networks": {"rgb": {"from": "inside", "network": "shufflenetv2", "weights": "../PWNED"}}}
    write_archive(tmp_path / "m.lstr", document | {"recipe": replace(sound, rgb=part).to_dict()}, "", {})
    with pytest.raises(ExtractorError, match="'../PWNED'"):
        manifest.dataset_of(tmp_path / "m.lstr" / "rgb.safetensors")

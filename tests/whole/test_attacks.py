"""Hostile files in every input: they write nothing outside the output and run no code."""

import json
from contextlib import suppress
from pathlib import Path

import pytest
import torch

from lstr.checkpoint import save
from lstr.errors import ExtractorError, LabelsError, LstrError
from lstr.extractors.networks import manifest
from lstr.extractors.networks.archive import write_archive
from lstr.extractors.networks.weights_file import FORMAT, ModelCard, WeightSources
from lstr.extractors.twostream import build_twostream
from lstr.kinds import configure, make_model
from lstr.pipelines.annotations.convert import convert
from lstr.pipelines.annotations.format import writable
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.model_files.packing import write_model
from tests.support.backbones import build_backbone
from tests.support.errors import assert_error
from tests.support.feature_set import TINY
from tests.support.small_set import SMALL
from tests.support.videos import write_video

NAMES = ("x/../../../PWNED/any", "../PWNED", "/PWNED", "..", "a/b", "a\0b", "a" * 300, ".x")
CLASSES = ("Background", "fall")


@pytest.fixture
def project(tmp_path) -> Path:
    """A project folder with a video, two levels below the test's folder."""
    folder = tmp_path / "home" / "project"
    folder.mkdir(parents=True)
    write_video(folder / "v.mp4", range(0, 600, 25), (64, 64))
    return folder


def files_outside(project: Path) -> set[str]:
    """Return the files of the test's folder that are not in the project."""
    root = project.parents[1]
    return {str(p.relative_to(root)) for p in root.rglob("*") if project not in (p, *p.parents)} - {"home"}


@pytest.fixture(scope="module")
def valid_recipe() -> dict:
    """The JSON of a complete recipe of one random network."""
    return build_twostream(SMALL.narrowed(["rgb"]), WeightSources(), "cpu", "float32").recipe.to_dict()


def change_network(recipe: dict, **changes) -> dict:
    return recipe | {"rgb": recipe["rgb"] | changes}


def extract(lstr, project: Path, *options) -> tuple[int, str, str]:
    return lstr("extract", project / "v.mp4", "-o", project / "f", "--workers", 1, *options)


@pytest.mark.parametrize(("entry", "name"), [*(("network", name) for name in NAMES), ("weights", NAMES[0])])
def test_names_in_a_recipe_create_no_folder_outside(project, valid_recipe, lstr, entry, name):
    (project / "recipe.json").write_text(json.dumps(change_network(valid_recipe, **{entry: name})))
    assert_error(extract(lstr, project, "--recipe", project / "recipe.json"), 4, f"rgb.{entry}", "recipe.json")
    assert files_outside(project) == set() and not (project / "f").exists()


@pytest.mark.parametrize("name", NAMES[:3])
def test_the_name_in_a_weights_file_creates_no_folder_outside(project, lstr, name):
    card = ModelCard(name, "rgb", "shufflenetv2", CLASSES, {}).to_json()
    torch.save({"state_dict": build_backbone("shufflenetv2", 3).state_dict(), "lstr": card}, project / "w.pth")
    network = ["--stream", "rgb", "--set", "recipe.rgb.network=shufflenetv2", "--weights", f"rgb={project / 'w.pth'}"]
    assert_error(extract(lstr, project, "--recipe", "fast", *network), 4, "w.pth", repr(name))
    assert files_outside(project) == set() and not (project / "f").exists()


def test_the_name_of_a_weights_folder_is_checked(tmp_path, lstr):
    (tmp_path / "finetune.json").write_text(json.dumps({"format": FORMAT, "name": "../PWNED", "classes": []}))
    assert_error(lstr("weights", "check", tmp_path), 4, "finetune.json", "'../PWNED'")


def write_labels(project: Path, video_id: str, label: str) -> Path:
    entry = {"subset": "training", "duration": 4, "annotations": [{"label": label, "segment": [0, 1]}]}
    (project / "labels.json").write_text(json.dumps({"database": {video_id: entry}}))
    return project / "labels.json"


@pytest.mark.parametrize("name", ["../PWNED", "/PWNED/x", "a/../../../PWNED", "", "a\0b", "a" * 300, "\ud800"])
def test_video_ids_in_labels_create_no_files_outside(project, name):
    """Conversion writes a file per video; the published format reads a file per video."""
    labels = write_labels(project, name, "fall")
    with pytest.raises(LstrError, match="labels.json") as caught:
        read_label_file(labels)
    assert len(str(caught.value)) < 600
    for form in writable():
        with pytest.raises(LabelsError):
            convert([labels], form, project / "out")
    (project.parent / "target_perframe").mkdir()
    info = {"S": {"class_names": list(CLASSES), "train_session_set": [name], "data_root": str(project)}}
    (project / "data_info.json").write_text(json.dumps(info))
    with pytest.raises(LstrError, match="data_info.json, S, train_session_set"):
        read_label_file(project / "data_info.json", [project])
    assert files_outside(project) == {"home/target_perframe"} and not (project / "out").exists()


@pytest.mark.parametrize("label", ["../../PWNED", "/PWNED", "a/b", "..", "a\0b", "b" * 300])
def test_class_names_which_name_files_in_thumos_create_none_outside(project, label):
    for form in writable():
        (project / "out" / form).mkdir(parents=True)
        with suppress(LstrError):
            convert([write_labels(project, "v", label)], form, project / "out" / form)
    assert files_outside(project) == set()


@pytest.mark.parametrize("network", ["evilmodule", "timm:evilmodule", "net.py", "net"])
@pytest.mark.parametrize("carrier", ["recipe", "feature folder", "checkpoint", "model file"])
def test_no_file_makes_lstr_import_a_module(project, valid_recipe, lstr, monkeypatch, carrier, network):
    """Neither a module that can be imported, nor a Python file in the working folder."""
    monkeypatch.chdir(project)
    monkeypatch.syspath_prepend(project / "site")
    (project / "site").mkdir()
    for name in ("net.py", "net", "site/evilmodule.py"):
        (project / name).write_text(f"open({str(project / 'RAN')!r}, 'w')\n")
    values = change_network(valid_recipe, network=network, width=64)
    if carrier in ("recipe", "feature folder"):
        (project / "given").mkdir()
        (project / "given" / "recipe.json").write_text(json.dumps(values))
        recipe = project / "given" / "recipe.json" if carrier == "recipe" else project / "given"
        result = extract(lstr, project, "--recipe", recipe)
    else:
        model = make_model(configure(**TINY, rgb_dim=1024, flow_dim=0), len(CLASSES)).eval()
        path = project / "c.pt"
        save(path, model, CLASSES, values, {})
        if carrier == "model file":
            path = write_model(project / "m.lstr", path, None, {}).path
        result = lstr("detect", project / "v.mp4", "-o", project / "out", "-m", path)
    assert_error(result, 4, network.removeprefix("timm:"))
    assert not (project / "RAN").exists()


def test_the_name_of_weights_in_a_model_file_is_checked(tmp_path):
    write_archive(tmp_path / "m.lstr", {"networks": {"rgb": {"weights": "../PWNED"}}}, "", {})
    with pytest.raises(ExtractorError, match="'../PWNED'"):
        manifest.dataset_of(tmp_path / "m.lstr" / "rgb.safetensors")

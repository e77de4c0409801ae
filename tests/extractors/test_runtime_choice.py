"""Converted networks on disk, and the runtime that a machine remembers."""

import os
from dataclasses import replace

import pytest

from lstr.extractors import runtime_choice as converted
from lstr.extractors.networks.runtime import Store
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.runtime_choice import recall, remember
from lstr.files.home import home

RECIPE = Recipe(NetworkRecipe("resnet50", "random", "ab", 1, (1.0,) * 3, (1.0,) * 3), None, flow_algorithm=None)


def test_damage_is_found_and_the_oldest_make_room(tmp_path):
    store = Store(tmp_path / "runtimes", most=2500)
    assert store.read("a") is None
    for age, key in enumerate("abc"):
        store.write(key, [b"12", key.encode() * 1000])
        os.utime(store.folder / f"{key}.network", (age, age))
    assert store.read("b") == b"12" + b"b" * 1000 and store.read("a") is None
    store.write("d", [b"d" * 1000])  # b was used after c
    assert store.read("c") is None and store.read("b")
    path = store.folder / "d.network"
    for content in (path.read_bytes()[:-1], path.read_bytes()[:500] + b"x" + path.read_bytes()[501:], b""):
        path.write_bytes(content)
        assert store.read("d") is None and not path.exists()
        store.write("d", [b"d" * 1000])
    assert store.read("d") == b"d" * 1000
    assert not [p for p in store.folder.iterdir() if p.suffix != ".network"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path):
    (tmp_path / "runtimes").write_text("a file")
    store = Store(tmp_path / "runtimes")
    store.write("a", [b"x"])
    assert store.read("a") is None


def test_a_machine_remembers(monkeypatch):
    assert recall(RECIPE) is None
    remember(RECIPE, "onnxruntime")
    other = replace(RECIPE, crop=64)
    remember(other, "torch")
    assert recall(RECIPE) == "onnxruntime" and recall(other) == "torch"
    assert recall(replace(RECIPE, rgb=replace(RECIPE.rgb, sha256="cd"))) == "onnxruntime"  # by layers, not weights
    with pytest.raises(ValueError):
        remember(RECIPE, "tensorrt")
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(converted, "processor_lines", lambda: ["another"])
        assert recall(RECIPE) is None
    (home() / "runtimes" / "choices.json").write_text("{damaged")
    assert recall(RECIPE) is None

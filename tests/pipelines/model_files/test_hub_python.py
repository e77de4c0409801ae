"""Addresses on the Hub where Python takes weights: `networks=`, `weights=`, `recipe=`, `init=` and `inits=`.

Each call runs in a process that asks a stand-in of the Hub, and once more with the file itself.
"""

import json
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from lstr.checkpoints import checkpoint
from lstr.extractors.networks.weights import randomise
from lstr.extractors.twostream import build_twostream
from lstr.extractors.weights.sources import WeightSources
from lstr.kinds import configure, make_model
from lstr.pipelines.demo.scenes import SceneConfig, render_scenes
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.model_files.packing import write_model
from tests.support.backbones import build_backbone
from tests.support.exportable import CLASSES
from tests.support.hub import Hub, environment
from tests.support.small_set import PICTURES, changed

NETWORK = "shufflenetv2"
ADDRESS = "hf://me/drawn/m.lstr"
BEGIN = """
import json, sys, warnings
from itertools import islice
import numpy as np
import lstr
from lstr.pipelines.detection.networks import NetworkOptions
warnings.simplefilter("ignore")
model, video, videos, labels, recipe, out = json.loads(sys.argv[1])
"""


@pytest.fixture(scope="module")
def online(tmp_path_factory):
    """A Hub with a model file that has its network's weights, three videos, and that file."""
    folder = tmp_path_factory.mktemp("hub")
    labels = render_scenes(folder, SceneConfig(n_videos=3, n_testing=1, seconds=5.0, width=96, height=64))
    network = build_backbone(NETWORK)
    randomise(network, 0)
    torch.save({f"backbone.{name}": tensor for name, tensor in network.state_dict().items()}, folder / "rgb.pth")
    preset = replace(changed({"rgb": NETWORK}, PICTURES), flow=None)
    recipe = build_twostream(preset, WeightSources.of({"rgb": str(folder / "rgb.pth")}), "cpu").recipe
    model = make_model(configure(kind="rnn", rgb_dim=1024, flow_dim=0, d_model=16), len(CLASSES)).eval()
    checkpoint.save(folder / "c.pt", model, CLASSES, recipe.to_dict(), {}, {}, {})
    path = write_model(folder / "m.lstr", folder / "c.pt", folder / "rgb.pth", {}).path
    write_json(folder / "small.json", {"based_on": "fast", "rgb": {"network": NETWORK}, **PICTURES})
    with Hub() as hub:
        hub.add("me/drawn").commit({"m.lstr": path.read_bytes()}, "main")
        variables, began = environment(hub, folder / "hf home"), recipe.parts["rgb"].sha256
        yield SimpleNamespace(folder=folder, labels=labels, model=path, variables=variables, began=began)


def run(online, output, code: str, model) -> object:
    """What a script prints last as JSON, with `model` as the address or the file."""
    videos = online.folder / "videos"
    given = [model, sorted(videos.iterdir())[0], videos, online.labels, online.folder / "small.json", output]
    command = [sys.executable, "-c", BEGIN + code, json.dumps([*map(str, given)])]
    variables = online.variables | {"LSTR_HOME": str(output / "home")}
    ran = subprocess.run(command, capture_output=True, text=True, env=variables, cwd=online.folder)
    assert ran.returncode == 0, ran.stderr
    return json.loads(ran.stdout.splitlines()[-1])


def same(online, tmp_path, code: str) -> object:
    """What a script finds with the address, which is what it finds with the file."""
    results = []
    for name, model in (("hub", ADDRESS), ("file", online.model)):
        (tmp_path / name).mkdir()
        results.append(run(online, tmp_path / name, code, model))
    assert results[0] == results[1]
    return results[0]


@pytest.mark.slow
def test_networks_of_a_detection(online, tmp_path):
    code = """
forms = None, model, {"rgb": model}, {"weights": {"rgb": model}}, NetworkOptions(weights={"rgb": model})
decisions = [lstr.detect(video, model, networks=form) for form in forms]
decisions.append(lstr.load(model, networks={"rgb": model}).detect(video))
print(json.dumps([[decision.scores.tolist() for decision in islice(some, 4)] for some in decisions]))
"""
    first, *others = same(online, tmp_path, code)
    assert len(first) == 4 and len(others) == 5 and all(scores == first for scores in others)


@pytest.mark.slow
def test_weights_and_recipe_of_an_extraction(online, tmp_path):
    code = """
given = [{"recipe": model}, {"recipe": model, "weights": {"rgb": model}}]
found = []
for n, one in enumerate(given):
    lstr.extract([video], f"{out}/{n}", device="cpu", **one)
    found.append(np.load(next(__import__("pathlib").Path(f"{out}/{n}").glob("*/*.npy"))).tolist())
print(json.dumps(found))
"""
    first, second = same(online, tmp_path, code)
    assert first == second and len(first) == 20


@pytest.mark.slow
def test_what_networks_begin_with(online, tmp_path):
    """A network of no epochs stays as it begins."""
    code = """
settings = {"epochs": "0", "short_side": "64", "crop": "64"}
found = []
for n, one in enumerate([{"init": model}, {"inits": {"rgb": model}}]):
    more = {"stream": "rgb", "recipe": recipe, "settings": settings, "device": "cpu", "seed": 0, **one}
    found.append(lstr.finetune([videos], labels, f"{out}/{n}", **more).weights.recipe.rgb.sha256)
print(json.dumps(found))
"""
    assert same(online, tmp_path, code) == [online.began] * 2


@pytest.mark.slow
def test_what_a_learning_begins_with(online, tmp_path):
    """It takes the recipe of the model file, and ends with a model of its own."""
    code = """
settings = {"epochs": "1", "draws": "16", "model.d_model": "16", "train.epochs": "2"}
more = {"settings": settings, "device": "cpu", "seed": 0, "folds": 0}
learnt = lstr.learn([videos], labels, f"{out}/better.lstr", init=model, **more)
recipe = lstr.load(learnt.model).recipe
print(json.dumps([recipe["rgb"]["network"], recipe["rgb"]["sha256"], recipe["crop"]]))
"""
    network, sha256, crop = same(online, tmp_path, code)
    assert (network, crop) == (NETWORK, PICTURES["crop"]) and sha256 != online.began

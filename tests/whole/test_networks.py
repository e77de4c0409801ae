"""Feature networks without mmaction2, and networks of timm through every job."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest
from safetensors.torch import save_file

from lstr.extractors.networks.build import identify
from lstr.extractors.networks.network import find_network
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS, StreamPreset
from lstr.extractors.twostream import rebuild_twostream
from lstr.pipelines.model_files.model_file import open_model
from lstr.pipelines.progress import result_of
from lstr.pipelines.training.networks import train_networks
from lstr.pipelines.training.recogniser import initial_weights
from tests.support.planted import planted_training
from tests.support.processes import check_process

MAPS, TOKENS, MOBILE = "timm:test_efficientnet", "timm:test_vit", "timm:mobilenetv4_conv_small"
RUNTIMES = ("torch", "openvino", "onnxruntime")


BUILD = """
from lstr.extractors.networks.network import NETWORKS
for network in NETWORKS.values():
    network.build(3)
"""
PREPARE = """
import lstr.pipelines.learning.planner, lstr.pipelines.detection.detect
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.twostream import build_twostream
build_twostream(PRESETS["live"], WeightSources(), "cpu").prepare()
"""


@pytest.mark.long
@pytest.mark.parametrize("code", [BUILD, PREPARE], ids=["all networks", "live"])
def test_networks_of_recipes_need_no_mmaction2(code):
    code += "import sys; print([n for n in ('mmaction', 'mmengine', 'mmcv', 'timm') if n in sys.modules])"
    assert check_process(sys.executable, "-c", code) == "[]\n"


@pytest.mark.parametrize(("stream", "name"), [("rgb", TOKENS), ("flow", MAPS)])
@pytest.mark.long
def test_networks_of_timm_can_be_trained(stream, name, tmp_path):
    """From a local file, with the first layer inflated for flow; one has tokens, the other has maps."""
    import timm

    file, parts = tmp_path / f"{name[5:]}.safetensors", {stream: StreamPreset(name)}
    save_file(timm.create_model(name[5:], pretrained=False).state_dict(), file)
    initial = initial_weights(replace(PRESETS["fast"].narrowed([stream]), **parts), str(file), {})
    assert initial[stream].crossed == (stream == "flow")
    training = planted_training([stream], epochs=1, initial=initial, optimiser="adamw")
    networks = replace(training.networks, preset=replace(training.networks.preset, **parts))
    training = replace(training, networks=networks)
    weights = result_of(train_networks(training, tmp_path / "weights"), lambda event: None)
    part = weights.recipe.parts[stream]
    assert (part.network, part.stem, part.dim) == (name, None, find_network(name).width)
    assert identify(weights.file(stream)) == (name, stream)
    rebuilt = rebuild_twostream(weights.recipe, WeightSources({stream: str(weights.path)}), "cpu")
    assert rebuilt.recipe.id == weights.recipe.without_folds().id


@pytest.mark.slow
@pytest.mark.parametrize("rgb, flow", [(TOKENS, MAPS), (MOBILE, MOBILE)])
def test_networks_of_timm_work_with_every_command(small_set, tmp_path, run, monkeypatch, rgb, flow):
    """learn → detect with each runtime, on RGB frames and RGB differences, by a recipe file."""
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))
    recipe = {"rgb": {"network": rgb}, "flow": {"network": flow, "crops": 1}, "flow_algorithm": "difference"}
    (tmp_path / "mine.json").write_text(json.dumps({**recipe, "short_side": 64, "crop": 64, "long_side": 96}))
    # without folds, no streams are chosen: the model takes both
    small = {"epochs": 1, "draws": 16, "model.d_model": 32, "train.epochs": 2, "learn.folds": 0}
    settings = [f"--set={name}={value}" for name, value in small.items()]
    model = tmp_path / "mine.lstr"
    words = ("--recipe", tmp_path / "mine.json", "-o", model, *settings)
    run("learn", small_set.videos, small_set.labels, *words)
    networks = open_model(model).recipe.parts
    assert (networks["rgb"].network, networks["flow"].network) == (rgb, flow)
    video = next(small_set.videos.rglob("*.mp4"))
    scores = {}
    for runtime in RUNTIMES:
        _, err = run("detect", video, "-m", model, "-o", tmp_path / runtime, "--set", f"runtime={runtime}", "-f", "npy")
        assert "Torch computes it" not in err
        scores[runtime] = np.load(next((tmp_path / runtime).glob("*.npy")))
    assert all(np.abs(other - scores["torch"]).max() < 1e-3 for other in scores.values())

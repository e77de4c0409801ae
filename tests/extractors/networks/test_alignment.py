"""Networks of folds that an earlier version gave a last, linear layer: their features still pass through it."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr.extractors.networks.build import ALIGNMENT, build_network, network_recipe, randomise, read_alignment
from lstr.extractors.networks.weights_file import ModelCard, WeightSources, network_file, read_content
from lstr.extractors.networks.weights_folder import write_network
from lstr.extractors.presets import PRESETS
from lstr.extractors.run import TwoStream
from lstr.extractors.twostream import build_twostream
from lstr.files.atomic import write_tensors
from tests.support.backbones import build_backbone


@pytest.mark.long
def test_features_pass_through_the_layer(tmp_path):
    preset = replace(PRESETS["fast"], precision="float32", short_side=40, crop=32).narrowed(["flow"])
    backbone = build_backbone("bninception", 10)
    randomise(backbone, 0)
    state = {f"backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
    for fold in (None, 1):
        write_network(tmp_path, state, ModelCard("w", "flow", "bninception", ("Background", "a"), {}, None, fold))
    file = network_file(tmp_path, "flow", 1)
    layer = {"weight": 2 * torch.eye(1024), "bias": torch.ones(1024)}
    write_tensors(file, {**read_content(file), ALIGNMENT: layer})
    assert read_alignment(network_file(tmp_path, "flow")) is None
    whole = build_twostream(preset, WeightSources({"flow": str(network_file(tmp_path, "flow"))}), "cpu")
    images = np.random.default_rng(0).integers(0, 256, (2, 1, 32, 32, 10), np.uint8)
    found = []
    for fold in (None, 1):
        sources = WeightSources({"flow": str(tmp_path)})
        network, part = build_network("flow", network_recipe("flow", preset.flow), sources, fold)
        found.append(TwoStream({"flow": network}, replace(whole.recipe, flow=part), "cpu").pooled("flow", images))
    np.testing.assert_allclose(found[1], 2 * found[0] + 1, rtol=1e-4, atol=1e-4)

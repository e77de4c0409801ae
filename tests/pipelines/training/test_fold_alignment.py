"""What makes the features of networks that were trained apart those of one space."""

from dataclasses import replace

import numpy as np
import pytest

from lstr.extractors.networks.build import (
    ALIGNMENT,
    build_network,
    load_weights,
    network_recipe,
    randomise,
    read_alignment,
)
from lstr.extractors.networks.table import NETWORKS
from lstr.extractors.networks.weights_file import ModelCard, WeightSources, network_file, read_content
from lstr.extractors.networks.weights_folder import write_network
from lstr.extractors.presets import PRESETS
from lstr.extractors.run import TwoStream
from lstr.extractors.twostream import build_twostream
from lstr.pipelines.features.chunk_cache import cached_chunks
from lstr.pipelines.training import alignment
from lstr.pipelines.training.alignment import align_folds, linear_map
from tests.support.backbones import build_backbone
from tests.support.planted import CLASSES, planted

PRESET = replace(PRESETS["fast"], precision="float32", short_side=40, crop=32)


def test_a_linear_relation_is_found():
    random = np.random.default_rng(0)
    rows, relation = random.normal(3, 2, (4000, 6)).astype(np.float32), random.normal(size=(6, 4))
    wanted = rows @ relation + 5
    weight, bias = linear_map(rows, wanted.astype(np.float32))
    found = rows @ weight.T + bias
    # the penalty takes half of each direction
    np.testing.assert_allclose(found - found.mean(0), (wanted - wanted.mean(0)) / 2, atol=0.5)
    np.testing.assert_allclose(found.mean(0), wanted.mean(0), atol=1e-3)


@pytest.fixture
def folder(tmp_path):
    """Two flow networks with unlike random weights, that of all videos and that of fold 1."""
    for fold, seed in ((None, 0), (1, 1)):
        backbone = build_backbone("bninception", 10)
        randomise(backbone, seed)
        state = {f"backbone.{name}": tensor for name, tensor in backbone.state_dict().items()}
        write_network(tmp_path, state, ModelCard("w", "flow", "bninception", CLASSES, {}, None, fold))
    return tmp_path


@pytest.mark.long
def test_the_network_of_a_fold_has_features_as_that_of_all(folder, monkeypatch):
    stream, preset = "flow", PRESET.narrowed(["flow"])
    monkeypatch.setattr(alignment, "MOST_CHUNKS", 30)  # every second one
    videos = planted(3)[1]

    def features(fold):
        network, part = build_network(
            stream, network_recipe(stream, preset.flow), WeightSources({stream: str(folder)}), fold
        )
        whole = build_twostream(preset, WeightSources({stream: str(network_file(folder, stream))}), "cpu")
        twostream = TwoStream({stream: network}, replace(whole.recipe, flow=part), "cpu")
        rows = [row.features[stream] for row in twostream.rows_with_flow(cached_chunks(videos["v0"], 1), 0)]
        return np.stack(rows), part.sha256

    wanted, before = features(None)[0], features(1)
    file = network_file(folder, stream, 1)
    align_folds(folder, PRESET, stream, {1: ["v0", "v1"]}, videos, "cpu")
    after = features(1)
    error = [np.square(found - wanted).mean() for found, _ in (before, after)]
    assert error[1] < 0.5 * error[0] and before[1] != after[1]

    load_weights(build_backbone("bninception", 10), file, NETWORKS["bninception"])
    assert read_alignment(network_file(folder, stream)) is None
    written = file.read_bytes()
    monkeypatch.setattr(alignment, "linear_map", None)
    align_folds(folder, PRESET, stream, {1: ["v0", "v1"]}, videos, "cpu")  # there already
    assert file.read_bytes() == written and ALIGNMENT in read_content(file)

"""Networks that were converted compute the same features where there is no torch."""

import subprocess
import sys

import numpy as np
import pytest

from lstr.extractors.networks import runtime as runtimes
from lstr.extractors.networks.archive import write_archive
from lstr.extractors.networks.build import fingerprint, randomise
from lstr.extractors.networks.crops import NO_FRAMES
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.run import RunOptions
from lstr.extractors.twostream import build_as
from tests.support.backbones import build_backbone, scale_of

SIDE = 64
WITHOUT_TORCH = """
import json
import sys
sys.modules["torch"] = None  # an import of it fails
from pathlib import Path

import numpy as np

from lstr.extractors.recipe import Recipe
from lstr.extractors.run import RunOptions
from lstr.extractors.twostream import build_as
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.video.frames import Chunk

folder, runtime = Path(sys.argv[1]), sys.argv[2]
recipe = Recipe.from_dict(json.loads((folder / "recipe.json").read_text()))
options = RunOptions(runtime, store=folder / "converted", threads=1)
twostream = build_as(recipe, WeightSources({"flow": str(folder / "m.lstr")}), "cpu").copy(options=options)
flows = np.load(folder / "flow.npy")
chunks = [(Chunk(i, i / 4, np.zeros((6, 1, 1, 3), np.uint8)), flow) for i, flow in enumerate(flows)]
np.save(folder / "found.npy", [row.flow for row in twostream.rows(chunks, threads=1)])
assert not twostream.warnings and twostream.runtimes == {"flow": runtime}
"""


@pytest.mark.long
@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_without_torch(runtime, tmp_path):
    """From the tensors of a model file, whose hash is that of the recipe, to feature rows."""
    if not runtimes.is_installed(runtime):
        pytest.skip(f"{runtime} is not installed")
    backbone = build_backbone("shufflenetv2", 10)
    randomise(backbone, 0)
    weights = {"flow.safetensors": (backbone.state_dict(), None)}
    write_archive(tmp_path / "m.lstr", {"networks": {"flow": {"weights": "mine"}}}, "", weights)
    part = NetworkRecipe("shufflenetv2", "mine", fingerprint(backbone), 2, *scale_of("shufflenetv2", "flow"))
    recipe = Recipe(None, part, flow_algorithm="dis-medium", long_side=160, short_side=SIDE, crop=SIDE)
    (tmp_path / "recipe.json").write_text(recipe.to_json())
    flows = np.random.default_rng(0).integers(0, 256, (3, 10, SIDE, SIDE + 20), np.uint8)
    np.save(tmp_path / "flow.npy", flows)

    options = RunOptions(runtime, store=tmp_path / "converted", threads=1)
    twostream = build_as(recipe, WeightSources({"flow": str(tmp_path / "m.lstr")}), "cpu").copy(options=options)
    twostream.prepare(1)
    subprocess.run([sys.executable, "-c", WITHOUT_TORCH, tmp_path, runtime], check=True)
    expected = twostream.pooled("flow", np.stack([twostream.views["flow"].cropped(NO_FRAMES, flow) for flow in flows]))
    found = np.load(tmp_path / "found.npy")
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max(), rtol=0)
    exact = twostream.copy(options=RunOptions())
    by_torch = exact.pooled("flow", np.stack([exact.views["flow"].cropped(NO_FRAMES, flow) for flow in flows]))
    np.testing.assert_allclose(found, by_torch, atol=1e-4 * np.abs(by_torch).max(), rtol=0)

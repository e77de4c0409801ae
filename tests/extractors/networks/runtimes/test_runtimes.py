"""Feature networks on each runtime, fused, converted and exported, against torch."""

import copy
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from lstr.errors import NetworkRuntimeError
from lstr.extractors.networks import runtime as runtimes
from lstr.extractors.networks.archive import write_archive
from lstr.extractors.networks.build import build_network, calibrate, fingerprint, network_recipe, randomise
from lstr.extractors.networks.converted_networks import open_graph, open_network
from lstr.extractors.networks.graph_file import check_graph
from lstr.extractors.networks.network import find_network
from lstr.extractors.networks.runtime import NetworkJob, choose_runtime
from lstr.extractors.networks.torch_runtime import PooledNetwork, check_features, fuse, make_network_graph
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import StreamPreset
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.run import RunOptions, TwoStream
from lstr.extractors.twostream import build_as
from lstr.extractors.video.frames import Chunk
from tests.support.backbones import build_backbone, scale_of, vary_batch_norms
from tests.support.processes import check_process

MOBILE = "timm:mobilenetv4_conv_small"
NO_FRAMES = np.zeros((6, 0, 0, 3), np.uint8)  # of chunks with flow
PART = NetworkRecipe("tiny", "custom", "", 1, (104.0, 117.0, 128.0), (58.0, 57.0, 1.5), width=24, bgr=True)


class Tiny(nn.Module):
    """Two branches that are joined, as in the real networks."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.deep = nn.Conv2d(16, 16, 3, 1, 1)
        self.wide = nn.Conv2d(16, 8, 1)

    def forward(self, x):
        x = self.stem(x).relu()
        return torch.cat([self.deep(x).relu(), self.wide(x).relu()], 1)


class Inconsistent(Tiny):
    """A network that computes something else while it is traced."""

    def forward(self, x):
        return super().forward(x) + 100 * torch.jit.is_tracing()


# importing it here would import its telemetry too
needs_openvino = pytest.mark.skipif(not runtimes.is_installed("openvino"), reason="OpenVINO is not installed")


@pytest.fixture(params=["openvino", "onnxruntime"])
def runtime(request) -> str:
    if not runtimes.is_installed(request.param) or not runtimes.is_installed("onnx"):
        pytest.skip(f"{request.param} or onnx is not installed")
    return request.param


def job_of(network: nn.Module, part: NetworkRecipe = PART, side: int = 32) -> NetworkJob:
    part = replace(part, sha256=fingerprint(network))
    return NetworkJob(lambda: network, part, "float32", (side, side), "cpu", threads=2)


def tiny_job(kind: type[Tiny] = Tiny) -> NetworkJob:
    torch.manual_seed(0)
    return job_of(kind().eval())


def images_of(job: NetworkJob, n: int) -> np.ndarray:
    """Return smooth images (n, crops, H, W, C), similar to video frames."""
    coarse = np.random.default_rng(0).integers(0, 256, (n, job.part.crops, 8, 8, len(job.part.mean)), dtype=np.uint8)
    return coarse.repeat(job.size[0] // 8, 2).repeat(job.size[1] // 8, 3)


@torch.inference_mode()
def features_by_torch(job: NetworkJob, images: np.ndarray) -> np.ndarray:
    features = PooledNetwork(job)(torch.from_numpy(images).flatten(0, 1)).numpy()
    return features.reshape(*images.shape[:2], -1).mean(1)


def test_features_equal_torchs_for_each_number_of_images(runtime):
    job = tiny_job()
    images = images_of(job, 7)[:, 0]
    network, expected = open_network(job, runtime, None), features_by_torch(job, images[:, None])
    for batches in ([4], [1, 4]):  # first a remainder that is padded
        network.prepare(batches)
        for n in (1, 4, 7):
            features = network(images[:n])
            assert features.shape == (n, 24) and features.dtype == np.float32
            assert np.abs(features - expected[:n]).max() <= 1e-5 * expected.max()
    with ThreadPoolExecutor(4) as pool:
        single = list(pool.map(lambda i: network(images[i : i + 1])[0], [*range(7)] * 5))
    assert np.abs(np.stack(single[:7]) - network(images)).max() <= 1e-6 * expected.max()
    assert all(np.array_equal(a, b) for a, b in zip(single[:7] * 4, single[7:], strict=True))


def test_converted_networks_are_stored_by_their_weights(runtime, tmp_path):
    job = tiny_job()
    images = images_of(job, 2)[:, 0]
    first, second = (open_network(job, runtime, tmp_path)(images) for _ in range(2))
    assert np.array_equal(first, second) and len([*tmp_path.iterdir()]) == 1
    job.network().wide.weight.data *= 2
    assert not np.allclose(open_network(job_of(job.network()), runtime, tmp_path)(images), first)
    assert len([*tmp_path.iterdir()]) == 2


@needs_openvino
def test_bf16_is_as_precise_as_torchs():
    job = tiny_job()
    images = images_of(job, 4)
    rounded = [open_network(replace(job, precision="bf16"), name, None)(images[:, 0]) for name in ("openvino", "torch")]
    expected = features_by_torch(job, images)
    ours, torchs = (np.abs(features - expected).max() for features in rounded)
    assert ours <= 1.5 * max(torchs, 1e-5 * expected.max())


def test_a_conversion_with_other_features_is_refused(runtime, tmp_path):
    with pytest.raises(NetworkRuntimeError) as caught:
        open_network(tiny_job(Inconsistent), runtime, tmp_path)
    assert "runtime=torch" in caught.value.hint and caught.value.exit_code == 2 and not [*tmp_path.iterdir()]


@torch.inference_mode()
def test_the_feature_check_accepts_rounding_only():
    """In a network that amplifies rounding: calibrated on plain images, torch's float32 is up to 4e-4 off, by CPU."""
    backbone, side = build_backbone("mobilenetv3"), 64
    randomise(backbone, 0)
    plain = np.repeat(np.random.default_rng(0).integers(0, 256, (64, 1, 3), np.uint8), side * side, 1)
    plain = plain.reshape(64, side, side, 3)
    plain[:, 8:20, 20:30] = (200, 90, 40)
    part = NetworkRecipe("mobilenetv3", "custom", "", 1, *scale_of("mobilenetv3", "rgb"))
    calibrate(backbone, plain, part, "cpu", 16)
    job = job_of(backbone, part, side)
    exact = PooledNetwork(job).double()
    exact.dtype = torch.float64
    check_features(job, "float64", lambda x: exact(torch.from_numpy(x)).numpy())
    float32, bf16 = PooledNetwork(job), PooledNetwork(replace(job, precision="bf16"))
    bgr = PooledNetwork(replace(job, part=replace(part, bgr=True)))
    for compute in (bf16, bgr, lambda x: float32(x.transpose(1, 2))):
        with pytest.raises(NetworkRuntimeError):
            check_features(job, "another", lambda x, compute=compute: compute(torch.from_numpy(x)).numpy())


@needs_openvino
def test_auto_falls_back_to_torch_with_a_warning():
    job = tiny_job(Inconsistent)
    images = images_of(job, 3)
    recipe = Recipe(PART, None, flow_algorithm=None, crop=32)
    twostream = TwoStream({"rgb": job.network()}, recipe, "cpu", options=RunOptions("auto"))
    for _ in range(2):
        twostream.prepare(4)
    assert np.allclose(twostream.pooled("rgb", images), features_by_torch(job, images), rtol=1e-5)
    assert len(twostream.warnings) == 1 and twostream.runtimes == {"rgb": "torch"}


def test_choice_of_the_runtime(monkeypatch):
    assert choose_runtime("auto", "cuda") == "torch"
    if runtimes.is_installed("openvino"):
        assert choose_runtime("auto", "cpu") == "openvino"
    for name, device in (("tensorrt", "cpu"), ("openvino", "cuda")):
        with pytest.raises(NetworkRuntimeError) as caught:
            choose_runtime(name, device)
    monkeypatch.setattr(runtimes, "is_installed", lambda name: name == "torch")
    assert choose_runtime("auto", "cpu") == "torch"
    with pytest.raises(NetworkRuntimeError, match="onnxruntime") as caught:
        choose_runtime("onnxruntime", "cpu")
    assert "pip install" in caught.value.hint


NO_TELEMETRY = """
import sys
from lstr.extractors.networks.converted_networks import load_openvino

load_openvino()
assert "openvino_telemetry" not in sys.modules
stub = sys.modules.get("openvino.tools.ovc.telemetry_utils")
assert stub is None or stub.tm.__name__.endswith("telemetry_stub"), stub.tm
"""


@needs_openvino
def test_openvino_sends_no_telemetry():
    """Checked in a new process, because other tests may have imported more of OpenVINO."""
    check_process(sys.executable, "-c", NO_TELEMETRY)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "network, stream, crops",
    [("bninception", "flow", 2), ("resnet18", "change", 1), (MOBILE, "flow", 1), ("timm:test_vit", "rgb", 1)],
)
def test_exported_graphs_compute_torchs_features(network, stream, crops, runtime):
    part = network_recipe(stream, StreamPreset(network, crops=crops))
    job = job_of(*build_network(stream, part, WeightSources({stream: None})), side=64)
    graph = make_network_graph(job)
    check_graph(graph, "x")
    images, exported = images_of(job, 3), open_graph(graph, stream, runtime, 2)
    expected = features_by_torch(job, images)
    exported.prepare([2 * job.part.crops])
    with ThreadPoolExecutor(2) as pool:
        results = [*map(exported, (images, images[:2])), np.concatenate([*pool.map(exported, images[:, None])])]
    for features in results:
        assert abs(features - expected[: len(features)]).max() < 1e-5 * abs(expected).max()


WITHOUT_TORCH = """
import pickle
import sys
sys.modules["torch"] = None  # an import of it fails
import numpy as np
from lstr.extractors.twostream import build_as

recipe, sources, options, chunks = pickle.load(sys.stdin.buffer)
twostream = build_as(recipe, sources, "cpu").copy(options=options)
np.save(sys.argv[1], [row.features["flow"] for row in twostream.rows(chunks, threads=1)])
assert not twostream.warnings and twostream.runtimes == {"flow": options.runtime}
"""


@pytest.mark.long
def test_stored_networks_need_no_torch(runtime, tmp_path):
    backbone, side = build_backbone("shufflenetv2", 10), 64
    randomise(backbone, 0)
    weights = {"flow.safetensors": (backbone.state_dict(), None)}
    write_archive(tmp_path / "m.lstr", {"networks": {"flow": {"weights": "mine"}}}, "", weights)
    part = NetworkRecipe("shufflenetv2", "mine", fingerprint(backbone), 2, *scale_of("shufflenetv2", "flow"))
    recipe = Recipe(None, part, flow_algorithm="dis-medium", long_side=160, short_side=side, crop=side)
    sources, options = WeightSources({"flow": str(tmp_path / "m.lstr")}), RunOptions(runtime, tmp_path / "converted", 1)
    twostream = build_as(recipe, sources, "cpu").copy(options=options)
    twostream.prepare(1)
    flows = np.random.default_rng(0).integers(0, 256, (3, 10, side, side + 20), np.uint8)
    chunks = [(Chunk(i, i / 4, NO_FRAMES), flow) for i, flow in enumerate(flows)]
    command = [sys.executable, "-c", WITHOUT_TORCH, tmp_path / "features.npy"]
    subprocess.run(command, input=pickle.dumps((recipe, sources, options, chunks)), check=True)
    exact, features = twostream.copy(options=RunOptions()), np.load(tmp_path / "features.npy")
    expected = exact.pooled("flow", np.stack([exact.views["flow"].cropped(NO_FRAMES, flow) for flow in flows]))
    assert features.dtype == np.float32
    np.testing.assert_allclose(features, expected, atol=1e-4 * np.abs(expected).max(), rtol=0)


CHANNELS = {"resnet50": 3, "bninception": 10, MOBILE: 10, "timm:test_vit": 3, "timm:resnet10t": 3}


@pytest.fixture(scope="module", params=CHANNELS)
def network(request):
    channels = CHANNELS[request.param]
    backbone = find_network(request.param).build(channels)
    randomise(backbone, 3)
    x = torch.randn(5, channels, 64, 64, generator=torch.Generator().manual_seed(4))
    return vary_batch_norms(backbone), x.to(memory_format=torch.channels_last)


@torch.inference_mode()
def test_fusing_changes_features_by_rounding_only(network):
    backbone, x = network
    before, expected = fingerprint(backbone), backbone(x)
    fused = fuse(backbone, "float32", "cpu")
    for n in (2, 1, 5):
        torch.testing.assert_close(fused(x[:n]), expected[:n], atol=1e-4 * float(expected.abs().max()), rtol=0)
    assert fingerprint(backbone) == before
    assert not [module for module in fused.modules() if isinstance(module, nn.BatchNorm2d)]


UNFUSABLE = {  # functions of a convolution's output
    "output used twice": lambda conv, norm, maps: norm(maps) + maps,
    "convolution used twice": lambda conv, norm, maps: norm(conv(maps)),
    "relu between": lambda conv, norm, maps: norm(maps.relu()),
}


@pytest.mark.parametrize("compute", UNFUSABLE.values(), ids=UNFUSABLE)
@torch.inference_mode()
def test_an_unfusable_batch_norm_stays(compute):
    class Unfusable(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
            self.norm.running_mean.fill_(0.5)

        def forward(self, x):
            return compute(self.conv, self.norm, self.conv(x))

    network = Unfusable().eval()
    fused, x = fuse(network, "float32", "cpu"), torch.randn(1, 3, 4, 4)
    assert isinstance(fused.norm, nn.BatchNorm2d)
    torch.testing.assert_close(fused(x), network(x))


@pytest.mark.gpu
@torch.inference_mode()
def test_a_gpu_computes_the_features_of_the_cpu(network):
    backbone, x = network
    expected = backbone(x).mean((2, 3))
    on_gpu = copy.deepcopy(backbone).cuda()
    for precision, dtype, min_cosine in (("float32", torch.float32, 0.9999), ("bf16", torch.bfloat16, 0.999)):
        features = fuse(on_gpu, precision, "cuda")(x.cuda().to(dtype)).float().mean((2, 3)).cpu()
        assert torch.cosine_similarity(features, expected).min() >= min_cosine

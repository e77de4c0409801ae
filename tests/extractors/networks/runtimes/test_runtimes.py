"""Networks on other runtimes than torch: the same features, kept and read again, or one sentence."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from lstr.errors import NetworkRuntimeError
from lstr.extractors.networks import runtime as runtimes
from lstr.extractors.networks.build import calibrate, fingerprint, randomise
from lstr.extractors.networks.converted_networks import open_network
from lstr.extractors.networks.runtime import NetworkJob, choose_runtime
from lstr.extractors.networks.torch_runtime import PooledNetwork, Ranges, Scale, check_features, fuse
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.run import RunOptions, TwoStream
from tests.support.backbones import build_backbone, scale_of

ROOT = Path(__file__).resolve().parents[4]
SIDE = 32
PART = NetworkRecipe("tiny", "custom", "", 1, (104.0, 117.0, 128.0), (58.0, 57.0, 1.5), width=24, bgr=True)


class Tiny(nn.Module):
    """Two branches that are joined, as in the real ones."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, 2, 1)
        self.deep = nn.Conv2d(16, 16, 3, 1, 1)
        self.wide = nn.Conv2d(16, 8, 1)

    def forward(self, x):
        x = self.stem(x).relu()
        return torch.cat([self.deep(x).relu(), self.wide(x).relu()], 1)


class Other(Tiny):
    """What is traced of it is not what it computes."""

    def forward(self, x):
        return super().forward(x) + 100 * torch.jit.is_tracing()


@pytest.fixture(params=["openvino", "onnxruntime"])
def runtime(request):
    if not runtimes.is_installed(request.param) or (
        request.param == "onnxruntime" and not runtimes.is_installed("onnx")
    ):
        pytest.skip(f"{request.param} is not installed")
    return request.param


def job_of(network: nn.Module, precision: str = "float32", part: NetworkRecipe = PART) -> NetworkJob:
    return NetworkJob(lambda: network, part, fingerprint(network), precision, (SIDE, SIDE), "cpu", threads=2)


def tiny(kind=Tiny) -> nn.Module:
    torch.manual_seed(0)
    return kind().eval()


def images(n: int) -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (n, SIDE, SIDE, 3), dtype=np.uint8)


@torch.inference_mode()
def exact(network: nn.Module, x: np.ndarray) -> np.ndarray:
    return network(Scale(PART)(torch.from_numpy(x))).mean((2, 3)).numpy()


def in_int8(network: nn.Module) -> NetworkRecipe:
    fused = fuse(network, "float32", "cpu")
    ranges = Ranges(fused, PART)
    fused(Scale(PART)(torch.from_numpy(images(8))))
    return replace(PART, ranges=ranges.result())


def test_the_same_features_of_any_number_of_images(runtime):
    network, x = tiny(), images(7)
    running = open_network(job_of(network), runtime, None)
    expected = exact(network, x)
    for batches in ([4], [1, 4]):  # first a rest that is filled up
        running.prepare(batches)
        for n in (1, 4, 7):
            found = running(x[:n])
            assert found.shape == (n, 24) and found.dtype == np.float32
            assert np.abs(found - expected[:n]).max() <= 1e-5 * expected.max()
    with ThreadPoolExecutor(4) as pool:
        alone = list(pool.map(lambda i: running(x[i : i + 1])[0], [*range(7)] * 5))
    assert np.abs(np.stack(alone[:7]) - running(x)).max() <= 1e-6 * expected.max()
    assert all(np.array_equal(a, b) for a, b in zip(alone[:7] * 4, alone[7:], strict=True))


def test_what_was_converted_is_kept_by_its_weights(runtime, tmp_path):
    """That it is not traced again is shown by test_run.py, where there is no torch."""
    network, store = tiny(), tmp_path
    first, again = (open_network(job_of(network), runtime, store)(images(2)) for _ in range(2))
    assert np.array_equal(first, again) and len([*store.iterdir()]) == 1
    network.wide.weight.data *= 2
    assert not np.allclose(open_network(job_of(network), runtime, store)(images(2)), first)
    assert len([*store.iterdir()]) == 2


def test_bf16_points_the_same_way():
    pytest.importorskip("openvino")
    network, x = tiny(), images(4)
    found = open_network(job_of(network, "bf16"), "openvino", None)(x)
    rough = open_network(job_of(network, "bf16"), "torch", None)(x)
    expected = exact(network, x)
    assert np.abs(found - expected).max() <= 1.5 * max(np.abs(rough - expected).max(), 1e-5 * expected.max())


def test_a_conversion_that_makes_other_features_is_refused(runtime, tmp_path):
    with pytest.raises(NetworkRuntimeError) as caught:
        open_network(job_of(tiny(Other)), runtime, tmp_path)
    assert "runtime=torch" in caught.value.hint and caught.value.exit_code == 2 and not [*tmp_path.iterdir()]


@torch.inference_mode()
@pytest.mark.parametrize("computed", ["float64", "bf16", "bgr", "transposed"])
def test_rounding_is_told_from_other_features(computed):
    """A network that amplifies rounding: calibrated on plain images, torch's float32 is up to 4e-4 off, by CPU."""
    backbone, side = build_backbone("mobilenetv3"), 64
    randomise(backbone, 0)
    plain = np.repeat(np.random.default_rng(0).integers(0, 256, (64, 1, 3), np.uint8), side * side, 1)
    plain = plain.reshape(64, side, side, 3)
    plain[:, 8:20, 20:30] = (200, 90, 40)
    part = NetworkRecipe("mobilenetv3", "custom", "", 1, *scale_of("mobilenetv3", "rgb"))
    calibrate(backbone, plain, part, "cpu", 16)
    job = NetworkJob(lambda: backbone, part, "", "float32", (side, side), "cpu", threads=1)
    other = {"bf16": replace(job, precision="bf16"), "bgr": replace(job, part=replace(part, bgr=True))}
    network = PooledNetwork(other.get(computed, job))
    if computed == "float64":
        network.double().dtype = torch.float64

    def compute(x: np.ndarray) -> np.ndarray:
        return network(torch.from_numpy(x.swapaxes(1, 2).copy() if computed == "transposed" else x)).numpy()

    with nullcontext() if computed == "float64" else pytest.raises(NetworkRuntimeError):
        check_features(job, "another runtime", compute)


def test_auto_falls_back_to_torch_with_one_warning():
    pytest.importorskip("openvino")
    network, x = tiny(Other), images(3)
    recipe = Recipe(PART, None, flow_algorithm=None, crop=SIDE)
    twostream = TwoStream({"rgb": network}, recipe, "cpu", options=RunOptions("auto"))
    for _ in range(2):
        twostream.prepare(4)
    assert np.allclose(twostream.pooled("rgb", x[:, None]), exact(network, x), rtol=1e-5)
    assert len(twostream.warnings) == 1 and twostream.runtimes == {"rgb": "torch"}


def test_what_auto_means_and_what_is_refused(monkeypatch):
    assert choose_runtime("auto", "cuda") == "torch"
    if runtimes.is_installed("openvino"):
        assert choose_runtime("auto", "cpu") == "openvino"
    for name, device in (("tensorrt", "cpu"), ("openvino", "cuda")):
        with pytest.raises(NetworkRuntimeError) as caught:
            choose_runtime(name, device)
        assert caught.value.hint
    monkeypatch.setattr(runtimes, "is_installed", lambda name: name == "torch")
    assert choose_runtime("auto", "cpu") == "torch"
    with pytest.raises(NetworkRuntimeError, match="onnxruntime") as caught:
        choose_runtime("onnxruntime", "cpu")
    assert "pip install" in caught.value.hint


def test_openvino_reports_nothing_to_its_makers():
    """In a process of its own: what other tests have imported of it stays imported."""
    pytest.importorskip("openvino_telemetry")
    code = """
import sys
from lstr.extractors.networks.converted_networks import load_openvino

load_openvino()
assert "openvino_telemetry" not in sys.modules
stub = sys.modules.get("openvino.tools.ovc.telemetry_utils")
assert stub is None or stub.tm.__name__.endswith("telemetry_stub"), stub.tm
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr


@torch.inference_mode()
def test_int8_is_what_torch_says_it_is(runtime):
    network, x = tiny(), images(6)
    part = in_int8(network)
    job = job_of(network, "int8", part)
    expected = exact(network, x)
    by_torch, found = (open_network(job, name, None)(x[:1]) for name in ("torch", runtime))
    for rounded in (by_torch, found):
        cosine = (rounded * expected[:1]).sum() / np.linalg.norm(rounded) / np.linalg.norm(expected[:1])
        assert 0.999 < cosine < 0.9999999
    assert np.abs(found - by_torch).max() <= 0.01 * np.abs(by_torch).max()
    assert part.ranges["stem"][0] == pytest.approx(-128 / 1.5, rel=1e-5) and part.ranges["deep"][0] == 0

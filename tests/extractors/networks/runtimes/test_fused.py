"""Networks fused for inference against the networks themselves."""

import copy
import threading

import pytest
import torch
from torch import nn

from lstr.extractors.networks.build import fingerprint, randomise
from lstr.extractors.networks.torch_runtime import DTYPES, Scale, fuse
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.twostream import build_twostream
from tests.support.backbones import build_backbone

SIDE = 64


@pytest.fixture(scope="module", params=["resnet50", "bninception"])
def network(request):
    """A random backbone whose batch norms do something, and its number of input channels."""
    backbone = build_backbone(request.param)
    randomise(backbone, 3)
    generator = torch.Generator().manual_seed(4)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
    return backbone, 3 if request.param == "resnet50" else 10


def images(n: int, channels: int) -> torch.Tensor:
    x = torch.randn(n, channels, SIDE, SIDE, generator=torch.Generator().manual_seed(5))
    return x.to(memory_format=torch.channels_last)


@torch.inference_mode()
def test_folding_changes_nothing_but_rounding(network):
    backbone, channels = network
    before = fingerprint(backbone)
    fused = fuse(backbone, "float32", "cpu")
    for n in (2, 1, 5):
        x = images(n, channels)
        expected = backbone(x)
        torch.testing.assert_close(fused(x), expected, atol=1e-4 * float(expected.abs().max()), rtol=0)
    assert fingerprint(backbone) == before
    norms = [m for m in fused.modules() if isinstance(m, nn.BatchNorm2d)]
    assert not norms, "every batch norm of both networks can be fused"


def test_other_threads_call_modules_meanwhile(network):
    """As those do that compute one stream's features while the network of another is opened."""
    failed, ended, module = [], threading.Event(), nn.Sequential(nn.Identity(), nn.Identity())

    def work():
        while not ended.is_set():
            try:
                module(torch.zeros(1))
            except Exception as error:
                failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(3):
            fuse(network[0], "float32", "cpu")
    finally:
        ended.set()
        thread.join()
    assert not failed


@torch.inference_mode()
def test_a_calibrated_network_is_fused_again():
    twostream = build_twostream(Preset(StreamPreset("resnet18"), None), WeightSources(), "cpu", "float32")
    frames = torch.randint(0, 256, (4, 1, SIDE, SIDE, 3), dtype=torch.uint8).numpy()
    before = twostream.pooled("rgb", frames)
    twostream.calibrate("rgb", frames[:, 0])
    after = twostream.pooled("rgb", frames)
    expected = twostream.networks["rgb"](Scale(twostream.recipe.parts["rgb"])(torch.from_numpy(frames[:, 0]))).mean(
        (2, 3)
    )
    torch.testing.assert_close(torch.from_numpy(after), expected, atol=1e-3 * float(expected.max()), rtol=0)
    assert abs(before - after).max() > 0.01


@pytest.mark.gpu
@torch.inference_mode()
def test_a_gpu_computes_what_the_processor_does(network):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    backbone, channels = network
    x = images(4, channels)
    expected = backbone(x).mean((2, 3))
    on_gpu = copy.deepcopy(backbone).cuda()
    for precision, least in (("float32", 0.9999), ("bf16", 0.999)):
        fused = fuse(on_gpu, precision, "cuda")
        features = fused(x.cuda().to(DTYPES[precision])).float().mean((2, 3)).cpu()
        assert torch.cosine_similarity(features, expected).min() >= least

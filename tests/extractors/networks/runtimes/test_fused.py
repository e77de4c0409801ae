"""Networks fused for inference against the networks themselves."""

import copy

import pytest
import torch
from torch import nn

from lstr.extractors.networks.build import fingerprint, randomise
from lstr.extractors.networks.network import find_network
from lstr.extractors.networks.torch_runtime import DTYPES, fuse
from tests.support.backbones import vary_batch_norms

SIDE = 64
CHANNELS = {
    "resnet50": 3,
    "bninception": 10,
    "timm:mobilenetv4_conv_small": 10,
    "timm:test_vit": 3,
    "timm:resnet10t": 3,
}


@pytest.fixture(scope="module", params=CHANNELS)
def network(request):
    """A random backbone, and images for it."""
    channels = CHANNELS[request.param]
    backbone = find_network(request.param).build(channels)
    randomise(backbone, 3)
    x = torch.randn(5, channels, SIDE, SIDE, generator=torch.Generator().manual_seed(4))
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


class Unfusable(nn.Module):
    """A network with a batch norm that cannot be fused into the convolution before it."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind, self.conv, self.norm = kind, nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        self.norm.running_mean.fill_(0.5)

    def forward(self, x):
        maps = self.conv(x)
        if self.kind == "output used twice":
            return self.norm(maps) + maps
        if self.kind == "convolution used twice":
            return self.norm(self.conv(maps))
        if self.kind == "relu between":
            return self.norm(maps.relu())
        return self.norm(maps) if maps.sum() > -1e9 else maps  # depends on a value, so it cannot be traced


@pytest.mark.parametrize("kind", ["output used twice", "convolution used twice", "relu between", "untraceable"])
@torch.inference_mode()
def test_an_unfusable_batch_norm_stays(kind):
    network = Unfusable(kind).eval()
    fused, x = fuse(network, "float32", "cpu"), torch.randn(1, 3, 4, 4)
    assert isinstance(fused.norm, nn.BatchNorm2d)
    torch.testing.assert_close(fused(x), network(x))


def pool(features: torch.Tensor) -> torch.Tensor:
    return features.flatten(2).mean(2) if features.dim() > 2 else features


@pytest.mark.gpu
@torch.inference_mode()
def test_a_gpu_computes_the_features_of_the_cpu(network):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    backbone, x = network
    expected = pool(backbone(x))
    on_gpu = copy.deepcopy(backbone).cuda()
    for precision, min_cosine in (("float32", 0.9999), ("bf16", 0.999)):
        features = pool(fuse(on_gpu, precision, "cuda")(x.cuda().to(DTYPES[precision])).float().cpu())
        assert torch.cosine_similarity(features, expected).min() >= min_cosine

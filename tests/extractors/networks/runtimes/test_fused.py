"""Networks fused for inference against the networks themselves."""

import copy

import pytest
import torch
from torch import nn

from lstr.extractors.networks.build import fingerprint, randomise
from lstr.extractors.networks.network import find_network
from lstr.extractors.networks.torch_runtime import DTYPES, fuse

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
    """A random backbone with batch norms that shift and scale, and images for it."""
    channels = CHANNELS[request.param]
    backbone = find_network(request.param).build(channels).eval()
    randomise(backbone, 3)
    generator = torch.Generator().manual_seed(4)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1, generator=generator)
            module.running_var.uniform_(0.5, 1.5, generator=generator)
    x = torch.randn(5, channels, SIDE, SIDE, generator=generator)
    return backbone, x.to(memory_format=torch.channels_last)


@torch.inference_mode()
def test_folding_changes_nothing_but_rounding(network):
    backbone, x = network
    before, expected = fingerprint(backbone), backbone(x)
    fused = fuse(backbone, "float32", "cpu")
    for n in (2, 1, 5):
        torch.testing.assert_close(fused(x[:n]), expected[:n], atol=1e-4 * float(expected.abs().max()), rtol=0)
    assert fingerprint(backbone) == before
    assert not [module for module in fused.modules() if isinstance(module, nn.BatchNorm2d)]


class Odd(nn.Module):
    """Where a batch norm cannot go into the convolution before it."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind, self.conv, self.norm = kind, nn.Conv2d(3, 3, 1), nn.BatchNorm2d(3)
        self.norm.running_mean.fill_(0.5)

    def forward(self, x):
        made = self.conv(x)
        if self.kind == "seen twice":
            return self.norm(made) + made
        if self.kind == "used twice":
            return self.norm(self.conv(made))
        if self.kind == "relu between":
            return self.norm(made.relu())
        return self.norm(made) if made.sum() > -1e9 else made  # by a value: it cannot be traced


@pytest.mark.parametrize("kind", ["seen twice", "used twice", "relu between", "untraceable"])
@torch.inference_mode()
def test_a_batch_norm_that_does_not_fit_stays(kind):
    network = Odd(kind).eval()
    fused, x = fuse(network, "float32", "cpu"), torch.randn(1, 3, 4, 4)
    assert isinstance(fused.norm, nn.BatchNorm2d)
    torch.testing.assert_close(fused(x), network(x))


@pytest.mark.gpu
@torch.inference_mode()
def test_a_gpu_computes_what_the_processor_does(network):
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    backbone, x = network
    expected = backbone(x).flatten(2).mean(2) if backbone(x).dim() > 2 else backbone(x)
    on_gpu = copy.deepcopy(backbone).cuda()
    for precision, least in (("float32", 0.9999), ("bf16", 0.999)):
        fused = fuse(on_gpu, precision, "cuda")
        features = fused(x.cuda().to(DTYPES[precision])).float().cpu()
        features = features.flatten(2).mean(2) if features.dim() > 2 else features
        assert torch.cosine_similarity(features, expected).min() >= least

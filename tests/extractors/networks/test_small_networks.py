"""The networks that are trained on a few videos of one's own: their layouts are torchvision's."""

from functools import partial

import pytest
import torch
from torchvision import models

from lstr.extractors.networks.build import identify, load_weights
from lstr.extractors.networks.network import NETWORKS
from tests.support.backbones import build_backbone

SMALL = {
    "resnet18": partial(models.resnet18, weights=None),
    "shufflenetv2": partial(models.shufflenet_v2_x1_0, weights=None),
    "mobilenetv3": partial(models.mobilenet_v3_small, weights=None),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_an_entry_says_what_its_network_does(name):
    network = NETWORKS[name]
    assert network.name == name and network.licence and network.fits(network.smallest)
    for stream, channels in (("rgb", 3), ("flow", 10)):
        given = network.inputs[stream]
        assert len(given.mean) == len(given.std) == channels
        n, side = 1, network.smallest
        made = network.build(channels).eval()(torch.zeros(n, channels, side, side))
        assert made.shape == (n, network.width, 1, 1)


@pytest.mark.parametrize("network", SMALL)
def test_torchvisions_files_load_into_both_streams(tmp_path, network):
    torch.manual_seed(0)
    published = SMALL[network]().eval()
    torch.save(published.state_dict(), tmp_path / "file.pth")
    assert identify(tmp_path / "file.pth") == (network, "rgb")
    rgb, flow = build_backbone(network, 3), build_backbone(network, 10)
    load_weights(rgb, tmp_path / "file.pth", NETWORKS[network])
    load_weights(flow, tmp_path / "file.pth", NETWORKS[network], inflate=True)
    seen = []
    last = {"resnet18": "layer4", "shufflenetv2": "conv5", "mobilenetv3": "features"}[network]
    published.get_submodule(last).register_forward_hook(lambda *call: seen.append(call[-1]))
    rgb.eval()
    with torch.inference_mode():
        images = torch.rand(1, 3, 48, 80)
        published(images)
        maps = rgb(images)
    assert maps.shape[1] == NETWORKS[network].width and torch.equal(maps, seen[0])
    stems = [next(w for w in net.state_dict().values() if w.dim() == 4) for net in (rgb, flow)]
    assert torch.allclose(stems[1], stems[0].mean(1, keepdim=True).expand_as(stems[1]))
    torch.save(flow.state_dict(), tmp_path / "flow.pth")
    assert identify(tmp_path / "flow.pth") == (network, "flow")

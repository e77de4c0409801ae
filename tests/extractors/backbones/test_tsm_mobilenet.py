"""TSM-MobileNetV2 online against mmaction2's own layers on whole clips, with the shift written down anew."""

import copy

import pytest
import torch

from lstr.extractors.backbones.mmaction_registry import quiet, registry
from lstr.extractors.backbones.networks import NETWORKS
from lstr.extractors.backbones.tsm_mobilenet import TSMMobileNetV2
from lstr.extractors.networks.weights import identify, load_weights
from tests.support.moving import unsettled

FRAMES = 6
pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def published():
    """mmaction2's network with random weights."""
    registry()
    with quiet():
        from mmaction.models.backbones import MobileNetV2TSM

        torch.manual_seed(0)
        return unsettled(MobileNetV2TSM(num_segments=FRAMES, pretrained2d=False))


@pytest.fixture(scope="module")
def network(published, tmp_path_factory):
    """Ours, from a file as mmaction2 writes it."""
    file = tmp_path_factory.mktemp("tsm") / "tsm.pth"
    state = {f"backbone.{name}": tensor for name, tensor in published.state_dict().items()}
    torch.save({"state_dict": {**state, "cls_head.fc_cls.weight": torch.zeros(400, 1280)}, "meta": {}}, file)
    ours = TSMMobileNetV2().eval()
    load_weights(ours, file, NETWORKS["tsm-mobilenetv2"])
    return ours, file


@torch.inference_mode()
def test_online_it_is_the_published_network_without_the_future(published, network, monkeypatch):
    from mmaction.models.backbones.resnet_tsm import TemporalShift

    def causal(x, num_segments, shift_div):
        clips = x.view(-1, num_segments, *x.shape[1:]).clone()
        part = x.shape[1] // shift_div
        moved = clips.clone()
        moved[:, 0, part : 2 * part] = 0
        moved[:, 1:, part : 2 * part] = clips[:, :-1, part : 2 * part]
        return moved.view_as(x)

    clip = torch.rand(FRAMES, 3, 64, 80, dtype=torch.float64)
    published.double()
    both_ways = published(clip)
    monkeypatch.setattr(TemporalShift, "shift", staticmethod(causal))
    expected = published(clip)
    ours = copy.deepcopy(network[0]).double()
    state = ours.begin(1, 64, 80)
    found = []
    for frame in clip:
        maps, state = ours.step(frame[None], state)
        found.append(maps)
    found = torch.cat(found)
    scale = expected.abs().max()
    assert (found - expected).abs().max() < 1e-10 * scale
    assert (both_ways - expected).abs().max() > 1e-2 * scale, "the future would change it"
    assert (ours(clip) - expected)[1:].abs().max() > 1e-2 * scale, "so does the past"


def test_its_file_is_told_from_others(network):
    assert identify(network[1]) == ("tsm-mobilenetv2", "rgb")

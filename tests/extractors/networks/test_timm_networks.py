"""Networks of timm: made of what timm says of them, with weights of a local file or at random."""

import copy
import sys

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file
from torch import nn

from lstr.errors import RecipeError, WeightsError
from lstr.extractors.networks.build import randomise
from lstr.extractors.networks.network import find_network
from lstr.extractors.networks.torch_runtime import fuse
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS, Preset, StreamPreset
from lstr.extractors.recipe import Recipe
from lstr.extractors.run import RunOptions
from lstr.extractors.twostream import build_twostream, rebuild_twostream
from tests.support.moving import moving_chunks

MAPS, TOKENS = "timm:mobilenetv4_conv_small", "timm:test_vit"


def preset(stream: str, network: str, **others) -> Preset:
    parts = {"rgb": None, "flow": None, stream: StreamPreset(network)}
    return Preset(**parts, flow_algorithm="difference", short_side=64, crop=64, **others)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """Networks with their classifiers as timm publishes them, and their files."""
    folder, found = tmp_path_factory.mktemp("timm"), {}
    for name in (MAPS, TOKENS):
        torch.manual_seed(3)
        kind = {"dynamic_img_size": True} if name == TOKENS else {}
        network = timm.create_model(name.removeprefix("timm:"), pretrained=False, **kind).eval()
        for module in network.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.running_mean.normal_(0, 0.1)
                module.running_var.uniform_(0.5, 1.5)
        save_file(network.state_dict(), folder / f"{name[5:]}.safetensors")
        found[name] = network, str(folder / f"{name[5:]}.safetensors")
    return found


def test_an_entry_says_what_timm_says():
    maps, tokens = find_network(MAPS), find_network(TOKENS)
    assert (maps.width, maps.depthwise, maps.multiple, maps.licence) == (1280, True, 1, "apache-2.0")
    assert maps.inputs["rgb"].mean == pytest.approx((123.675, 116.28, 103.53))
    assert maps.finetuning["rgb"]["batch_size"] == 48
    assert (tokens.width, tokens.depthwise, tokens.multiple) == (64, False, 16) and not tokens.fits(72)
    resnet, ours = find_network("timm:resnet50"), find_network("resnet50")
    assert resnet.training_cost == pytest.approx(ours.training_cost, rel=0.05)
    assert resnet.training_bytes == pytest.approx(ours.training_bytes, rel=0.1)


@pytest.mark.parametrize("network", [MAPS, TOKENS])
@torch.inference_mode()
def test_rgb_features_of_a_local_file_are_those_of_timm(published, network):
    theirs, file = published[network]
    twostream = build_twostream(preset("rgb", network), WeightSources({"rgb": file}), "cpu")
    part = twostream.recipe.rgb
    assert (part.network, part.weights, part.stem) == (network, "custom", None)
    assert part.folder("rgb") == f"rgb_custom_{network.replace(':', '-')}"
    assert Recipe.from_dict(twostream.recipe.to_dict()) == twostream.recipe
    assert rebuild_twostream(twostream.recipe, WeightSources({"rgb": file}), "cpu").recipe == twostream.recipe
    images = np.random.default_rng(0).integers(0, 256, (2, 1, 64, 64, 3), np.uint8)
    x = (torch.from_numpy(images[:, 0]).float() - torch.tensor(part.mean)) / torch.tensor(part.std)
    theirs = copy.deepcopy(theirs)
    theirs.reset_classifier(0, *([""] if network == MAPS else []))
    expected = theirs(x.permute(0, 3, 1, 2))
    expected = expected.mean((2, 3)) if network == MAPS else expected
    torch.testing.assert_close(torch.from_numpy(twostream.pooled("rgb", images)), expected, atol=1e-4, rtol=1e-3)


@torch.inference_mode()
def test_a_file_of_rgb_weights_serves_flow_with_its_stem_inflated(published):
    theirs, file = published[MAPS]
    sources = WeightSources({"flow": file})
    twostream = build_twostream(preset("flow", MAPS), sources, "cpu")
    stem = twostream.networks["flow"].conv_stem.weight
    assert stem.shape[1] == 10 and torch.equal(stem[:, 4], theirs.conv_stem.weight.mean(1))
    assert twostream.recipe.flow.stem == "mean" and twostream.recipe.to_dict()["flow"]["stem"] == "mean"
    assert rebuild_twostream(twostream.recipe, sources, "cpu").recipe == twostream.recipe
    random = build_twostream(preset("flow", MAPS), WeightSources(), "cpu").recipe
    assert random.flow.stem is None and "stem" not in random.to_dict()["flow"]
    with pytest.raises(WeightsError, match="RGB weights offered as flow"):  # of these both kinds are published
        torch_file = file.replace(".safetensors", ".pth")
        torch.save(find_network("resnet50").build(3).state_dict(), torch_file)
        build_twostream(preset("flow", "resnet50"), WeightSources({"flow": torch_file}), "cpu")


@pytest.mark.parametrize(("network", "channels"), [(MAPS, 10), (TOKENS, 3), ("timm:resnet10t", 3)])
@torch.inference_mode()
def test_every_batch_norm_goes_into_its_convolution(network, channels):
    backbone = find_network(network).build(channels)
    backbone.eval()
    randomise(backbone, 0)
    for module in backbone.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    fused = fuse(backbone, "float32", "cpu")
    assert not [module for module in fused.modules() if isinstance(module, nn.BatchNorm2d)]
    x = torch.randn(2, channels, 64, 64).to(memory_format=torch.channels_last)
    expected = backbone(x)
    torch.testing.assert_close(fused(x), expected, atol=1e-4 * float(expected.abs().max()), rtol=0)


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


@pytest.mark.long
@pytest.mark.parametrize(("stream", "network"), [("flow", MAPS), ("rgb", TOKENS)])
@pytest.mark.parametrize("runtime", ["openvino", "onnxruntime"])
def test_runtimes_compute_the_same(stream, network, runtime):
    channels = 3 if stream == "rgb" else 10
    images = np.random.default_rng(1).integers(0, 256, (2, 1, 64, 64, channels), np.uint8)
    found = []
    for chosen in ("torch", runtime):
        twostream = build_twostream(preset(stream, network), WeightSources(), "cpu", "float32")
        twostream = twostream.copy(options=RunOptions(chosen))
        found.append(twostream.pooled(stream, images))
    assert found[0].shape == (2, find_network(network).width)
    assert np.abs(found[0] - found[1]).max() <= 1e-4 * np.abs(found[0]).max()


@pytest.mark.parametrize("name", ["resnot", "hf-hub:some/network", "local-dir:/tmp", "../resnet18", ""])
def test_names_that_are_none_of_timm(name, monkeypatch):
    """Nothing is asked over the network."""
    monkeypatch.setattr("socket.socket.connect", lambda *given: pytest.fail("it asked the network"))
    with pytest.raises(RecipeError, match="has no network"):
        find_network(f"timm:{name}")


def test_without_timm(monkeypatch):
    monkeypatch.setitem(sys.modules, "timm", None)
    with pytest.raises(RecipeError, match="timm is not installed") as caught:
        find_network("timm:resnet26")
    assert "lstr-video[timm]" in caught.value.hint


@pytest.mark.parametrize("change", [{"width": None}, {"stem": "sum"}, {"network": "timm:a/b"}, {"network": "x:y"}])
def test_a_recipe_from_anywhere(change):
    recipe = build_twostream(preset("rgb", TOKENS), WeightSources(), "cpu", "float32").recipe.to_dict()
    recipe["rgb"] = {**recipe["rgb"], **change}
    with pytest.raises(RecipeError):
        Recipe.from_dict(recipe)


@pytest.mark.long
@torch.inference_mode()
def test_the_recipe_of_dinov2_is_the_class_token(tmp_path):
    """Of the middle of the fourth frame, 224 pixels of a short side of 256, by timm's network of 518 pixels."""
    torch.manual_seed(0)
    name = PRESETS["dinov2"].rgb.network
    network = timm.create_model(name.removeprefix("timm:"), pretrained=False, dynamic_img_size=True).eval()
    save_file(network.state_dict(), tmp_path / "dinov2.safetensors")
    sources = WeightSources({"rgb": str(tmp_path / "dinov2.safetensors")})
    twostream = build_twostream(PRESETS["dinov2"], sources, "cpu")
    (chunk,) = moving_chunks(1, side=256)
    (row,) = twostream.rows([chunk], None)
    image = torch.from_numpy(chunk.frames[3][16:240, 16:240]).permute(2, 0, 1)[None] / 255
    mean, std = (torch.tensor(values).view(3, 1, 1) for values in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))
    expected = network.forward_features((image - mean) / std)[0, 0].numpy()
    assert row.rgb.shape == (384,) and np.abs(row.rgb - expected).max() < 1e-4 * np.abs(expected).max()

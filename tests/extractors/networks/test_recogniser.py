"""Networks from configs of mmaction2 against mmaction2 itself."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from lstr.errors import RecipeError
from lstr.extractors.networks.crops import NO_FRAMES
from lstr.extractors.networks.mmaction import FETCHING, build_recogniser
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.recipe import Recipe
from lstr.extractors.twostream import build_twostream, rebuild_twostream
from tests.support.backbones import vary_batch_norms

RGB = """
model = dict(
    type='Recognizer2D',
    backbone=dict(type='ResNet', depth=18, pretrained='torchvision://resnet18', norm_eval=False),
    cls_head=dict(type='TSNHead', num_classes=5, in_channels=512),
    data_preprocessor=dict(
        type='ActionDataPreprocessor', mean=[120.0, 110.0, 100.0], std=[50.0, 60.0, 70.0], to_rgb=True))
"""
FLOW = """
_base_ = ['rgb.py']
img_norm_cfg = dict(mean=[128, 126], std=[64, 32], to_bgr=False)
model = dict(backbone=dict(in_channels=10), data_preprocessor=None)
"""
RESNET = {"type": "ResNet", "depth": 18}


@pytest.fixture(scope="module")
def configs(tmp_path_factory) -> Path:
    """A folder of configs, and of checkpoints of random networks that mmaction2 built."""
    folder = tmp_path_factory.mktemp("configs")
    for name, text in (("rgb", RGB), ("flow", FLOW)):
        (folder / f"{name}.py").write_text(text)
        torch.save({"meta": {}, "state_dict": recogniser(folder / f"{name}.py").state_dict()}, folder / f"{name}.pth")
    return folder


def recogniser(path: Path) -> torch.nn.Module:
    """Return the network that mmaction2 builds from a config, with random weights."""
    from mmaction.registry import MODELS
    from mmengine.config import Config
    from mmengine.registry import init_default_scope

    init_default_scope("mmaction")
    model = Config.fromfile(str(path)).model
    model.backbone.pop("pretrained")
    torch.manual_seed(7)
    return vary_batch_norms(MODELS.build(model))


@pytest.mark.parametrize("stream", ["rgb", "flow"])
@torch.inference_mode()
def test_features_equal_mmaction2s(configs, stream):
    sources = WeightSources({stream: str(configs / f"{stream}.pth")})
    parts = {"rgb": None, "flow": None, stream: StreamPreset(str(configs / f"{stream}.py"))}
    twostream = build_twostream(Preset(**parts), sources, "cpu")
    part, model = twostream.recipe.parts[stream], recogniser(configs / f"{stream}.py")
    assert (part.dim, part.weights, part.folder(stream)) == (512, "custom", f"{stream}_custom_{stream}")
    stored = Recipe.from_dict(json.loads(twostream.recipe.to_json()))  # works without the config
    assert rebuild_twostream(stored, sources, "cpu").recipe == twostream.recipe
    channels = 3 if stream == "rgb" else 10
    noise = np.random.default_rng(1).integers(0, 256, (6, 23, 40, channels), np.uint8).repeat(8, 1).repeat(8, 2)
    if stream == "rgb":
        images = twostream.views["rgb"].cropped(noise)
        x = model.data_preprocessor({"inputs": [torch.from_numpy(images.transpose(0, 3, 1, 2))], "data_samples": None})
        maps, _ = model.extract_feat(x["inputs"], stage="backbone")
    else:
        assert (part.mean, part.std) == ((128.0, 126.0) * 5, (64.0, 32.0) * 5)
        images = twostream.views["flow"].cropped(NO_FRAMES, noise[0].transpose(2, 0, 1))
        x = (torch.from_numpy(images).float() - torch.tensor(part.mean)) / torch.tensor(part.std)
        maps = model.backbone(x.permute(0, 3, 1, 2))
    ours, theirs = twostream.pooled(stream, images[None])[0], maps.mean((2, 3)).mean(0).numpy()
    assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())


CHANGED = "_base_ = ['rgb.py']\nmodel = dict({})"
REFUSED = ["model = 3", "model = dict(", "_base_ = ['none.py']", "raise SystemError('one\\ntwo')"]
REFUSED += [CHANGED.format(f"backbone=dict({change})") for change in ("depth=19", "in_channels=4", "strides=2")]
REFUSED += [CHANGED.format(change) for change in ("type='A'", "data_preprocessor=None", "neck=dict(type='A')")]


@pytest.mark.parametrize("text", REFUSED)
def test_an_unusable_config_is_refused(configs, text):
    (configs / "own.py").write_text(text)
    with pytest.raises(RecipeError) as caught:
        build_twostream(Preset(StreamPreset(str(configs / "own.py")), None), WeightSources(), "cpu")
    assert caught.value.hint and "\n" not in str(caught.value)


HOSTILE = [{**RESNET, name: "torchvision://resnet18"} for name in FETCHING]
HOSTILE += [{**RESNET, "norm_cfg": norm} for norm in ({"type": "evilmodule.run"}, {"type": "BN", "_scope_": "evil"})]
HOSTILE += [{"type": kind} for kind in ("evilmodule", "torchvision.get_model", "timm.resnet18", ["ResNet"])]
HOSTILE += [{}, {**RESNET, "style": "https://a.example/x"}, {"type": "MobileNetV2", "widen_factor": 1e9}]


@pytest.mark.parametrize("backbone", HOSTILE, ids=str)
def test_a_recipes_backbone_imports_and_fetches_nothing(backbone, tmp_path, monkeypatch):
    (tmp_path / "evilmodule.py").write_text("raise SystemExit(99)")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RecipeError):
        build_recogniser(backbone)
    assert "evilmodule" not in sys.modules

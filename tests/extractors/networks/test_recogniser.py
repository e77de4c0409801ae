"""Networks of mmaction2's own, by config and checkpoint: what comes out is what mmaction2 computes."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from lstr.errors import ExtractorError, MissingPathError, RecipeError, WeightsError
from lstr.extractors.networks.build import build_network, network_recipe
from lstr.extractors.networks.crops import NO_FRAMES
from lstr.extractors.networks.fused import scaled
from lstr.extractors.networks.mmaction import registry
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import Preset, StreamPreset
from lstr.extractors.twostream import build_twostream, rebuild_twostream
from tests.support.videos import write_video

TSM = "tsm_imagenet-pretrained-mobilenetv2_8xb16-1x1x8-100e_kinetics400-rgb"  # as mmaction2 ships it

BASE = """
model = dict(
    type='Recognizer2D',
    backbone=dict(type='ResNet', depth=18, pretrained='torchvision://resnet18', norm_eval=False),
    cls_head=dict(type='TSNHead', num_classes=5, in_channels=512),
    data_preprocessor=dict(
        type='ActionDataPreprocessor', mean=[120.0, 110.0, 100.0], std=[50.0, 60.0, 70.0], to_rgb=True))
"""
FLOW = """
_base_ = ['tsn_r18.py']
img_norm_cfg = dict(mean=[128, 126], std=[64, 32], to_bgr=False)
model = dict(backbone=dict(in_channels=10), data_preprocessor=None)
"""


@pytest.fixture(scope="module")
def configs(tmp_path_factory) -> Path:
    """Configs and checkpoints as a user of mmaction2 has them, of random networks."""
    folder = tmp_path_factory.mktemp("configs")
    (folder / "tsn_r18.py").write_text(BASE)
    (folder / "flow r18.py").write_text(FLOW)
    for name in ("tsn_r18.py", "flow r18.py", TSM):
        model = recogniser(folder / name if name != TSM else name)
        torch.save({"meta": {}, "state_dict": model.state_dict()}, folder / f"{Path(name).stem}.pth")
    return folder


def recogniser(config) -> torch.nn.Module:
    """What mmaction2 itself makes of a config, with lively batch norms."""
    models = registry()
    from mmengine.config import Config

    from lstr.extractors.networks.mmaction import find_config

    model = Config.fromfile(str(find_config(str(config)))).model
    for gone in ("pretrained", "init_cfg"):
        model.backbone.pop(gone, None)
    torch.manual_seed(7)
    model = models.build(model)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    model.eval()
    return model


def picture(side: int, n: int, channels: int) -> np.ndarray:
    """Blocks of noise (n, H, W, C): a crop that is a pixel off shows."""
    noise = np.random.default_rng(n).integers(0, 256, (n, side // 8 + 1, side // 5 + 1, channels), dtype=np.uint8)
    return noise.repeat(8, 1).repeat(8, 2)[:, :side]


def close(ours: np.ndarray, theirs: np.ndarray) -> None:
    assert ours.shape == theirs.shape
    assert ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) >= 0.9999
    assert np.allclose(ours, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())


@pytest.mark.parametrize(("config", "width", "segments"), [("tsn_r18.py", 512, 1), (TSM, 1280, 8)])
@torch.inference_mode()
def test_rgb_features_are_those_of_mmaction2s_own_pipeline(configs, config, width, segments):
    """A chunk as a video of six frames through its sampling, resize, crop, preprocessor and recogniser."""
    from mmaction.datasets.transforms import CenterCrop, FormatShape, Resize, SampleFrames

    network = str(configs / config) if config != TSM else TSM
    preset = Preset(StreamPreset(network), None)
    weights = WeightSources({"rgb": str(configs / f"{Path(config).stem}.pth")})
    twostream = build_twostream(preset, weights, "cpu")
    part = twostream.recipe.rgb
    assert (part.dim, part.segments, part.weights, part.bgr) == (width, segments, "custom", config != TSM)
    assert part.folder("rgb") == f"rgb_custom_{Path(config).stem}"

    frames = picture(180, 6, 3)
    results = {"total_frames": 6, "start_index": 0, "modality": "RGB"}
    results = SampleFrames(clip_len=1, frame_interval=1, num_clips=segments, test_mode=True)(results)
    results |= {"imgs": [frames[i] for i in results["frame_inds"]]}
    results |= {"original_shape": frames.shape[1:3], "img_shape": frames.shape[1:3]}
    for step in (Resize(scale=(-1, 256)), CenterCrop(crop_size=224), FormatShape(input_format="NCHW")):
        results = step(results)
    model = recogniser(network)
    batch = model.data_preprocessor({"inputs": [torch.from_numpy(results["imgs"])], "data_samples": None})
    maps, _ = model.extract_feat(batch["inputs"], stage="backbone")
    close(twostream.pooled("rgb", twostream.inputs.cropped("rgb", frames)[None])[0], maps.mean((2, 3)).mean(0).numpy())


@torch.inference_mode()
def test_flow_features_of_a_recogniser(configs):
    """Ten channels, x and y in turn, with the two means and deviations that 0.x configs have beside the model."""
    preset = Preset(None, StreamPreset(str(configs / "flow r18.py"), crops=10))
    twostream = build_twostream(preset, WeightSources({"flow": str(configs / "flow r18.pth")}), "cpu")
    part = twostream.recipe.flow
    assert (part.mean, part.std, part.folder("flow")) == ((128.0, 126.0) * 5, (64.0, 32.0) * 5, "flow_custom_flow-r18")
    images = twostream.inputs.cropped("flow", NO_FRAMES, picture(180, 1, 10)[0].transpose(2, 0, 1))
    assert images.shape == (10, 224, 224, 10)
    x = (torch.from_numpy(images).float() - torch.tensor(part.mean)) / torch.tensor(part.std)
    maps = recogniser(configs / "flow r18.py").backbone(x.permute(0, 3, 1, 2))
    close(twostream.pooled("flow", images[None])[0], maps.mean((2, 3)).mean(0).numpy())


def test_a_recipe_rebuilds_its_networks_without_the_config(configs, tmp_path):
    weights = WeightSources({"rgb": str(configs / "tsn_r18.pth")})
    made = build_twostream(Preset(StreamPreset(str(configs / "tsn_r18.py")), None), weights, "cpu").recipe
    assert rebuild_twostream(made, weights, "cpu").recipe == made
    with pytest.raises(WeightsError, match="weights.rgb|no file"):
        rebuild_twostream(made, WeightSources(), "cpu")
    for seed in (1, 2):  # random ones are the same wherever they are built
        torch.manual_seed(seed)
        made = build_twostream(Preset(StreamPreset(TSM), None), WeightSources(), "cpu").recipe
        assert rebuild_twostream(made, WeightSources(), "cpu").recipe == made


@torch.inference_mode()
def test_a_backbone_of_torchvision(configs):
    """Pooled by torchvision itself; nothing is downloaded."""
    import torchvision

    path = own(
        configs,
        "_base_ = ['tsn_r18.py']\nmodel = dict(backbone=dict("
        "_delete_=True, type='torchvision.resnet18', pretrained=True))",
    )
    network = torchvision.models.resnet18()
    torch.save(network.state_dict(), configs / "tv.pth")
    twostream = build_twostream(
        Preset(StreamPreset(path), None), WeightSources({"rgb": str(configs / "tv.pth")}), "cpu"
    )
    assert twostream.recipe.rgb.config == {"type": "torchvision.resnet18"} and twostream.recipe.rgb.dim == 512
    network.fc = torch.nn.Identity()
    network.eval()
    images = picture(224, 1, 3)[:, :224, :224]
    x = (torch.from_numpy(images).flip(-1).float() - torch.tensor([120.0, 110, 100])) / torch.tensor([50.0, 60, 70])
    close(twostream.pooled("rgb", images[None])[0], network(x.permute(0, 3, 1, 2))[0].numpy())


def own(configs: Path, text: str) -> str:
    (configs / "own.py").write_text(text)
    return str(configs / "own.py")


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("model = dict(type='Recognizer3D', backbone=dict(type='ResNet3d', depth=18))", RecipeError, "Recognizer3D"),
        ("model = 3", RecipeError, "no model with a backbone"),
        ("model = dict(", RecipeError, "no mmaction2 config"),
        ("_base_ = ['none.py']", MissingPathError, "does not exist"),
        ("_base_ = ['tsn_r18.py']\nmodel = dict(neck=dict(type='TPN'))", RecipeError, "neck"),
        (
            "_base_ = ['tsn_r18.py']\nmodel = dict(backbone=dict(type='ResNot'))",
            RecipeError,
            "'ResNot', which is not known",
        ),
        ("_base_ = ['tsn_r18.py']\nmodel = dict(backbone=dict(depth=19))", RecipeError, "cannot be built"),
        ("_base_ = ['tsn_r18.py']\nmodel = dict(backbone=dict(in_channels=10))", RecipeError, "takes five flow fields"),
        ("_base_ = ['tsn_r18.py']\nmodel = dict(backbone=dict(in_channels=4))", RecipeError, "takes 4 channels"),
        (
            "_base_ = ['tsn_r18.py']\nmodel = dict(backbone=dict(_delete_=True, type='C3D'))",
            RecipeError,
            "'C3D', which is not known",
        ),
        ("_base_ = ['tsn_r18.py']\nmodel = dict(backbone=dict(deep=3))", RecipeError, "'deep' that it does not take"),
        ("model = dict(type='Recognizer2D', backbone=dict(depth=18))", RecipeError, "type 'None'"),
        ("_base_ = ['tsn_r18.py']\nmodel = dict(backbone=dict(out_indices=(2, 3)))", RecipeError, "several maps"),
        ("_base_ = ['tsn_r18.py']\nmodel = dict(data_preprocessor=None)", RecipeError, "does not state the mean"),
        ("_base_ = ['tsn_r18.py']\nmodel = dict(data_preprocessor=dict(mean=[1.0, 2.0]))", RecipeError, "2 means"),
    ],
)
def test_what_cannot_serve_is_refused_in_a_sentence(configs, text, kind, words):
    with pytest.raises(kind, match=words) as caught:
        build_twostream(Preset(StreamPreset(own(configs, text)), None), WeightSources(), "cpu")
    assert caught.value.hint and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("stream", "network", "weights", "words"),
    [
        ("rgb", "none.py", None, "neither a file nor a config"),
        ("flow", "tsn_r18.py", None, "takes frames"),
        ("flow", TSM, None, "takes frames"),
        ("rgb", "tsn_r18.py", f"{TSM}.pth", "lacks .* tensors of tsn_r18"),
        ("rgb", "resnet50", "tsn_r18.pth", "lacks .* tensors of resnet50"),
        ("rgb", "tsn_r18.py", "flow r18.pth", "flow weights offered as RGB weights"),
        ("rgb", "tsn_r18.py", "tsn_r18.py", "no plain weights file|damaged"),
    ],
)
def test_config_and_checkpoint_must_fit_each_other_and_the_stream(configs, stream, network, weights, words):
    network = str(configs / network) if network.endswith(".py") else network
    parts = {"rgb": None, "flow": None, stream: StreamPreset(network)}
    sources = WeightSources({stream: weights and str(configs / weights)})
    with pytest.raises(ExtractorError, match=words) as caught:
        build_twostream(Preset(**parts), sources, "cpu")
    assert caught.value.hint and caught.value.exit_code in (2, 4)


def test_bn_inception_can_be_the_rgb_network():
    """Published for RGB too: blue first, and the means of Caffe."""
    part = network_recipe("rgb", StreamPreset("bninception"))
    assert (part.bgr, part.mean, part.dim) == (True, (104.0, 117.0, 128.0), 1024)
    assert build_network("rgb", part, WeightSources())[1].bgr
    x = scaled(torch.tensor([104, 117, 128], dtype=torch.uint8).flip(0).expand(1, 1, 1, 3), part)
    assert not x.any() and x.shape == (1, 3, 1, 1), "a frame is RGB, what the network sees is BGR"
    assert not network_recipe("rgb", StreamPreset("resnet50")).bgr


@pytest.mark.long
def test_a_recogniser_from_the_command_line(configs, tmp_path, lstr):
    (tmp_path / "videos").mkdir()
    write_video(tmp_path / "videos" / "a.mp4", range(0, 300, 20))
    network = ["--set", f"recipe.rgb.network={configs / 'tsn_r18.py'}", "--weights", f"rgb={configs / 'tsn_r18.pth'}"]
    features = tmp_path / "features"
    code, _, err = lstr("extract", tmp_path / "videos", "-o", features, "--stream", "rgb", *network)
    assert code == 0 and "random" not in err, err
    described = json.loads(lstr("info", features, "--json")[1])
    assert described["streams"] == ["rgb_custom_tsn_r18"] and described["faults"] == []
    assert described["recipe"]["rgb"]["width"] == 512

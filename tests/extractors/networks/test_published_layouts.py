"""Networks against published references: key lists, file layouts, mmaction2's pipeline and configs, SSN's crops."""

import io
import json
import re
import sys
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lstr.errors import MissingPathError, RecipeError, WeightsError
from lstr.extractors.networks.build import fingerprint, load_weights, randomise
from lstr.extractors.networks.crops import View, fit, frames_seen, picture_of, shaken, views_of
from lstr.extractors.networks.mmaction import FETCHING, build_recogniser
from lstr.extractors.networks.network import NETWORKS, quiet
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS, Preset, StreamPreset
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.run import TwoStream
from lstr.extractors.streams import PICTURES
from lstr.extractors.twostream import build_twostream, rebuild_twostream
from lstr.extractors.video.frames import CHUNK, Chunk
from lstr.extractors.video.reader import SourceFrame, chunks_of
from tests.support.backbones import build_backbone, vary_batch_norms


def random_network(name: str, seed: int) -> torch.nn.Module:
    backbone = build_backbone(name)
    randomise(backbone, seed)
    return vary_batch_norms(backbone, seed)


@pytest.fixture(scope="module")
def bninception():
    return random_network("bninception", 1)


@pytest.fixture(scope="module")
def resnet():
    return random_network("resnet50", 2)


def reference_bninception(
    state: dict[str, Tensor], x: Tensor, *, last_pool="max", pad_counts=True, relu_first=True
) -> Tensor:
    """Compute (B, 10, 224, 224) → (B, 1024, 7, 7) from the published names; the options are likely errors."""

    def norm(name: str, x: Tensor) -> Tensor:
        parts = (state[f"{name}_bn.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *parts, eps=1e-5)

    def before_relu(name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = state[f"{name}.weight"]
        return norm(name, F.conv2d(x, weight, state[f"{name}.bias"], stride, weight.shape[-1] // 2))

    def unit(name: str, x: Tensor, stride: int = 1) -> Tensor:
        return F.relu(before_relu(name, x, stride))

    x = F.max_pool2d(unit("conv1_7x7_s2", x, 2), 3, 2, ceil_mode=True)
    x = F.max_pool2d(unit("conv2_3x3", unit("conv2_3x3_reduce", x)), 3, 2, ceil_mode=True)
    for block in ("3a", "3b", "3c", "4a", "4b", "4c", "4d", "4e", "5a", "5b"):
        name, stride = f"inception_{block}", 2 if block in ("3c", "4e") else 1
        three = before_relu(f"{name}_3x3", unit(f"{name}_3x3_reduce", x), stride)
        double = unit(f"{name}_double_3x3_1", unit(f"{name}_double_3x3_reduce", x))
        double = before_relu(f"{name}_double_3x3_2", double, stride)
        if stride == 2:
            branches = [three, double]
        elif block == "5b" and last_pool == "max":
            branches = [three, double, before_relu(f"{name}_pool_proj", F.max_pool2d(x, 3, 1, 1))]
        else:
            pooled = F.avg_pool2d(x, 3, 1, 1, count_include_pad=pad_counts)
            branches = [three, double, before_relu(f"{name}_pool_proj", pooled)]
        if stride == 1:
            branches.insert(0, before_relu(f"{name}_1x1", x))
        if relu_first:
            branches = [F.relu(branch) for branch in branches]
        if stride == 2:
            branches.append(F.max_pool2d(x, 3, 2, ceil_mode=True))  # passes through
        x = torch.cat(branches, 1)
    return x


@torch.inference_mode()
def test_bninception_equals_the_reference(bninception):
    x = torch.randn(1, 10, 224, 224, generator=torch.Generator().manual_seed(0))
    ours, state = bninception(x), bninception.state_dict()
    assert torch.allclose(ours, reference_bninception(state, x), atol=1e-4, rtol=1e-4)
    for error in ({"last_pool": "average"}, {"pad_counts": False}, {"relu_first": False}):
        difference = (ours - reference_bninception(state, x, **error)).abs().mean() / ours.abs().mean()
        assert difference > 0.01, f"{error} would go unnoticed"


def hash_after_loading(path, content, network: torch.nn.Module, name: str = "bninception") -> str:
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    load_weights(network, path, NETWORKS[name])
    return fingerprint(network)


@pytest.mark.parametrize("layout", ["cadene", "tsn_pytorch_base_model", "mmaction_v0_backbone", "mmaction2"])
def test_published_keys_load(shared, tmp_path, bninception, resnet, layout):
    """All names and shapes with prefix and classifier; batch norms of old files have the shape of torch 0.1.12."""
    if layout == "mmaction2":
        entries = json.loads((shared / "facts" / "resnet50_tsn_mmaction2_keys.json").read_text())
        entries = {key: shape for key, shape in entries.items() if isinstance(shape, list)}
        name, network, prefix = "resnet50", resnet, ""
        assert len(entries) == 320
    else:
        lists = json.loads((shared / "facts" / "bninception_keys.json").read_text())
        entries = lists[layout]["entries"] | lists["flow_override"]
        name, network, prefix = "bninception", bninception, lists[layout]["prefix"].split(" ")[0]
    state, published = network.state_dict(), {}
    for key, shape in entries.items():
        tensor = state.get(key.removeprefix("backbone."), torch.zeros(shape))
        assert list(tensor.shape) == shape
        if layout == "mmaction2" or not key.endswith("num_batches_tracked"):
            published[prefix + key] = tensor[None] if "_bn." in key else tensor
    content = {"meta": {"mmaction_version": "0.6"}, "state_dict": published}
    assert hash_after_loading(tmp_path / "w.pth", content, build_backbone(name), name) == fingerprint(network)


WRAPPERS = {
    "bare": lambda s: s,
    "state_dict": lambda s: {"state_dict": s, "meta": {"epoch": 1}},
    "model_state_dict": lambda s: {"epoch": 3, "model_state_dict": s, "optimizer_state_dict": {}},
    "tsn-pytorch": lambda s: {"epoch": 3, "arch": "BNInception", "best_prec1": 62.1, "state_dict": s},
}
CLASSIFIERS = ("fc", "last_linear", "new_fc", "fc_action", "cls_head.fc_cls")
PREFIXES = ("", "module.", "base_model.", "module.base_model.", "backbone.", "flow.", "module.flow.base_model.")


def first_layer() -> torch.nn.Module:
    """Return the first convolution of BN-Inception with its batch norm, enough to test names."""
    layers = {"conv1_7x7_s2": torch.nn.Conv2d(10, 64, 7), "conv1_7x7_s2_bn": torch.nn.BatchNorm2d(64)}
    return torch.nn.ModuleDict(layers)


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_wrappers_prefixes_and_classifiers(tmp_path, wrapper, prefix):
    published = first_layer()
    state = {prefix + name: tensor for name, tensor in published.state_dict().items()}
    state |= {f"{head}{name}.weight": torch.zeros(5) for name in CLASSIFIERS for head in ("", "module.")}
    sha256 = hash_after_loading(tmp_path / "w.pth", WRAPPERS[wrapper](state), first_layer())
    assert sha256 == fingerprint(published)


def test_files_written_by_python_2(tmp_path):
    """Their texts are byte strings: opcode U and a length of one byte, where Python 3 writes X and four bytes."""
    published, saved = first_layer(), io.BytesIO()
    torch.save({"state_dict": published.state_dict()}, saved, _use_new_zipfile_serialization=False)
    content = re.sub(rb"X(.)\0\0\0(?=\w)", rb"U\1", saved.getvalue(), flags=re.DOTALL)
    assert b"U\x13conv1_7x7_s2.weight" in content
    assert hash_after_loading(tmp_path / "w.pth", content, first_layer()) == fingerprint(published)


class Trap:
    """Fails the test when it is unpickled."""

    def __reduce__(self):
        return (pytest.fail, ("a file ran code",))


BIAS = "inception_4a_1x1.bias"
UNSUITABLE = {
    "rgb": (lambda state: {**state, "conv1_7x7_s2.weight": torch.zeros(64, 3, 7, 7)}, "RGB"),
    "short": (lambda state: {k: v for k, v in state.items() if k != BIAS}, BIAS),
    "odd": (lambda state: {**state, "odd.weight": torch.zeros(1)}, "odd.weight"),
    "other network": (lambda state: build_backbone("resnet50").state_dict(), "bninception"),
    "no tensors": (lambda state: [1, 2], "w.pth"),
    "code": (lambda state: {"state_dict": Trap()}, "w.pth"),
    "text": (lambda state: b"hello", "w.pth"),
    "cut": (lambda state: b"PK\x03\x04 cut", "w.pth"),
}


@pytest.mark.parametrize("change, reason", UNSUITABLE.values(), ids=UNSUITABLE)
def test_unsuitable_weights_are_refused(tmp_path, bninception, change, reason):
    before = fingerprint(bninception)
    with pytest.raises(WeightsError, match=reason) as caught:
        hash_after_loading(tmp_path / "w.pth", change(bninception.state_dict()), bninception)
    assert caught.value.exit_code == 4 and fingerprint(bninception) == before
    with pytest.raises(MissingPathError):
        load_weights(bninception, tmp_path / "none.pth", NETWORKS["bninception"])


@pytest.fixture(scope="module")
def twostream(bninception, resnet, tmp_path_factory):
    """The networks that `lstr extract --recipe faithful` builds from files in mmaction2's layout."""
    files = {stream: str(tmp_path_factory.mktemp("weights") / f"{stream}.pth") for stream in ("rgb", "flow")}
    for stream, network in (("rgb", resnet), ("flow", bninception)):
        state = {f"backbone.{name}": tensor for name, tensor in network.state_dict().items()}
        torch.save({"state_dict": state}, files[stream])
    return build_twostream(PRESETS["faithful"], WeightSources(files), "cpu")


def build_by_mmaction(model: dict) -> torch.nn.Module:
    """Return the network that mmaction2 builds from the `model` of a config, with random weights."""
    with quiet():
        import mmaction.models  # noqa: F401  (registers ResNet and Recognizer2D)
        from mmaction.registry import MODELS
        from mmengine.registry import init_default_scope
    init_default_scope("mmaction")
    torch.manual_seed(7)
    return vary_batch_norms(MODELS.build(model))


@torch.inference_mode()
def features_by_mmaction(recogniser: torch.nn.Module, images: np.ndarray) -> np.ndarray:
    x = [torch.from_numpy(images.transpose(0, 3, 1, 2))]
    processed = recogniser.data_preprocessor({"inputs": x, "data_samples": None})["inputs"]
    return recogniser.extract_feat(processed, stage="backbone")[0].mean((0, 2, 3)).numpy()


def assert_close(ours: np.ndarray, theirs: np.ndarray) -> None:
    """Compare features; the cosine of random networks would hardly change if a crop is a pixel off."""
    np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-3 * np.abs(theirs).max())


def blocks(height: int, width: int, channels: int = 3) -> np.ndarray:
    """Return noise (6, H, W, C) in blocks of 8 pixels, in which a crop that is a pixel off shows."""
    noise = np.random.default_rng(height).integers(0, 256, (6, height // 8 + 1, width // 8 + 1, channels), np.uint8)
    return noise.repeat(8, 1).repeat(8, 2)[:, :height, :width]


@pytest.mark.long
def test_rgb_features_equal_mmaction2s_pipeline(twostream, resnet):
    scale = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375], "format_shape": "NCHW"}
    backbone = {"type": "ResNet", "depth": 50, "pretrained": None, "norm_eval": False}
    preprocessor = {"type": "ActionDataPreprocessor", **scale}
    recogniser = build_by_mmaction({"type": "Recognizer2D", "backbone": backbone, "data_preprocessor": preprocessor})
    recogniser.backbone.load_state_dict(resnet.state_dict())
    from mmaction.datasets.transforms import CenterCrop, Resize

    rgb_alone = TwoStream({"rgb": twostream.networks["rgb"]}, twostream.recipe, "cpu")
    for height, width in ((180, 320), (319, 179)):
        frames = blocks(height, width)
        results = {"imgs": [frames[3]], "modality": "RGB", "img_shape": (height, width)}
        for step in (Resize(scale=(-1, 256)), CenterCrop(crop_size=224)):
            results = step(results)
        (row,) = rgb_alone.rows([Chunk(0, 0.25, frames)], None)
        assert_close(row.features["rgb"], features_by_mmaction(recogniser, np.stack(results["imgs"])))


@pytest.mark.parametrize(("height", "width"), [(256, 341), (256, 455), (341, 256), (256, 256)])
def test_crops_and_their_mirror_images(height, width):
    """Ten crops are the corners in quarter steps and the centre, each followed by its mirror image."""
    image = np.random.default_rng(0).integers(0, 256, (height, width, 10), dtype=np.uint8)
    h, w, centre = (height - 224) // 4, (width - 224) // 4, ((height - 224) // 2, (width - 224) // 2)
    expected = []
    for y, x in ((0, 0), (0, 4 * w), (4 * h, 0), (4 * h, 4 * w), (2 * h, 2 * w), centre):
        crop = image[y : y + 224, x : x + 224]
        mirrored = crop[:, ::-1].copy()
        mirrored[..., ::2] = 255 - mirrored[..., ::2]  # x flow is inverted, y flow is not
        expected += [crop, mirrored]
    for crops, wanted in ((10, expected[:10]), (2, expected[10:]), (1, expected[10:11])):
        assert np.array_equal(View((224, 224), crops, flow=True).of(image), wanted)


FRAMES = np.random.default_rng(0).integers(0, 256, (6, 30, 40, 3), np.uint8)
GREYS = np.stack([cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in FRAMES])


def test_grey_has_three_frames_as_channels():
    image = picture_of("grey", FRAMES, None, 3)
    assert image.shape == (30, 40, 3) and np.array_equal(image, GREYS[[0, 2, 5]].transpose(1, 2, 0))


def test_differences_are_doubled_and_clipped():
    greys = np.full((6, 2, 2), 100, np.uint8)
    greys[1] += 10  # the differences are 10, -10 and 155, which is clipped
    greys[5] = 255
    assert [*picture_of("difference", greys, None, 3)[0, 0]] == [147, 107, 255]


@pytest.mark.parametrize("stream", PICTURES[1:])
def test_a_network_gets_the_centre_and_its_mirror_image(stream):
    part = NetworkRecipe("resnet18", "random", "", 2, (0.0,) * 3, (1.0,) * 3, size=(24, 32), margin=1.25)
    parts = {"rgb": None, "flow": None, stream: part}
    recipe = Recipe(**parts, flow_algorithm=None)
    view = views_of(recipe)[stream]
    assert view == View((24, 32), 2, margin=1.25, stream=stream) and view.whole == (30, 40)
    centre, mirrored = view.cropped(FRAMES)
    assert np.array_equal(centre, picture_of(stream, FRAMES, None, 3)[3:27, 4:36])
    assert np.array_equal(mirrored, centre[:, ::-1])
    assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("stream", PICTURES)
def test_only_the_frames_that_a_network_uses_are_converted(stream):
    converted, seen = [], frames_seen([stream], 2)
    step = Fraction(1, 24)
    frames = [SourceFrame(n * step, step, lambda n=n: converted.append(n) or FRAMES[n]) for n in range(6)]
    (chunk,) = chunks_of(frames, seen=seen)
    assert {*converted} == seen < frames_seen(["flow", stream], 2) == {*range(6)}
    assert np.array_equal(picture_of(stream, chunk.frames, None, 2), picture_of(stream, FRAMES, None, 2))
    assert np.array_equal(chunk.frames[-1], FRAMES[-1])


@pytest.mark.parametrize("frame", [FRAMES[0], GREYS[0]], ids=["colour", "grey"])
def test_camera_movement_shifts_frames_and_repeats_the_edge(frame):
    movement = np.zeros((CHUNK, 2))
    movement[2], movement[5] = (3 / 40, 1 / 40), (-2 / 40, 0)  # of the frame's width
    moved = shaken(np.stack([frame] * CHUNK), movement)
    for still in (0, 1, 3, 4):
        np.testing.assert_array_equal(moved[still], frame)
    np.testing.assert_array_equal(moved[2, 1:, 3:], frame[:-1, :-3])
    np.testing.assert_array_equal(moved[5, :, :-2], frame[:, 2:])
    np.testing.assert_array_equal(moved[2, 1:, 0], frame[:-1, 0])
    np.testing.assert_array_equal(moved[2, 0, 3:], frame[0, :-3])


@torch.inference_mode()
def test_flow_features_are_the_mean_over_the_crops(twostream, bninception):
    """The input is bytes minus 128, not divided by a deviation."""
    flow = np.random.default_rng(0).integers(90, 166, (10, 180, 320), dtype=np.uint8)  # (10, H, W), x and y in turn
    ours = twostream.pooled("flow", twostream.views["flow"].cropped(FRAMES, flow)[None])[0]
    crops = View((224, 224), 10, flow=True).of(fit(np.ascontiguousarray(flow.transpose(1, 2, 0)), 256))
    single = bninception(torch.from_numpy(crops.astype(np.float32) - 128).permute(0, 3, 1, 2)).mean((0, 2, 3))
    assert_close(ours, single.numpy())


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
    from mmengine.config import Config

    model = Config.fromfile(str(path)).model
    model.backbone.pop("pretrained")
    return build_by_mmaction(model)


@pytest.mark.parametrize("stream", ["rgb", "flow"])
@torch.inference_mode()
def test_features_of_configs_equal_mmaction2s(configs, stream):
    sources = WeightSources({stream: str(configs / f"{stream}.pth")})
    parts = {"rgb": None, "flow": None, stream: StreamPreset(str(configs / f"{stream}.py"))}
    twostream = build_twostream(Preset(**parts), sources, "cpu")
    part, model = twostream.recipe.parts[stream], recogniser(configs / f"{stream}.py")
    assert (part.dim, part.weights, part.folder(stream)) == (512, "custom", f"{stream}_custom_{stream}")
    stored = Recipe.from_dict(json.loads(twostream.recipe.to_json()))  # works without the config
    assert rebuild_twostream(stored, sources, "cpu").recipe == twostream.recipe
    if stream == "rgb":
        images = twostream.views["rgb"].cropped(blocks(184, 320))
        theirs = features_by_mmaction(model, images)
    else:
        assert (part.mean, part.std) == ((128.0, 126.0) * 5, (64.0, 32.0) * 5)
        images = twostream.views["flow"].cropped(FRAMES, blocks(184, 320, 10)[0].transpose(2, 0, 1))
        x = (torch.from_numpy(images).float() - torch.tensor(part.mean)) / torch.tensor(part.std)
        theirs = model.backbone(x.permute(0, 3, 1, 2)).mean((0, 2, 3)).numpy()
    assert_close(twostream.pooled(stream, images[None])[0], theirs)


CHANGED = "_base_ = ['rgb.py']\nmodel = dict({})"
REFUSED = ["model = 3", "model = dict(", "_base_ = ['none.py']", "raise SystemError('one\\ntwo')"]
REFUSED += [CHANGED.format(f"backbone=dict({change})") for change in ("depth=19", "in_channels=4", "strides=2")]
REFUSED += [CHANGED.format(change) for change in ("type='A'", "data_preprocessor=None", "neck=dict(type='A')")]


@pytest.mark.parametrize("text", REFUSED)
def test_an_unusable_config_is_refused(configs, text):
    (configs / "own.py").write_text(text)
    with pytest.raises(RecipeError) as caught:
        build_twostream(Preset(StreamPreset(str(configs / "own.py")), None), WeightSources(), "cpu")
    assert "\n" not in str(caught.value)


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

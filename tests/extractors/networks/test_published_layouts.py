"""The two TSN networks held against what was published: key lists, file layouts, mmaction2's pipeline, SSN's crops."""

import io
import json
import pickle
import pickletools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from lstr.extractors.networks.build import fingerprint, load_weights, randomise
from lstr.extractors.networks.crops import NO_FRAMES, View, fit
from lstr.extractors.networks.network import NETWORKS, quiet
from lstr.extractors.networks.weights_file import WeightSources
from lstr.extractors.presets import PRESETS
from lstr.extractors.run import TwoStream
from lstr.extractors.twostream import build_twostream
from lstr.extractors.video.frames import Chunk
from tests.support.backbones import build_backbone

BN_EPSILON = 1e-5


def lively(network: str, seed: int) -> torch.nn.Module:
    """A network whose batch norms shift and scale, so that every trap shows in its output."""
    backbone = build_backbone(network)
    randomise(backbone, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for module in backbone.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                for tensor, low, high in (
                    (module.running_mean, -0.5, 0.5),
                    (module.running_var, 0.5, 2),
                    (module.weight, 0.5, 1.5),
                    (module.bias, -0.5, 0.5),
                ):
                    tensor.uniform_(low, high, generator=generator)
    backbone.eval()
    return backbone


@pytest.fixture(scope="module")
def bninception():
    return lively("bninception", 1)


@pytest.fixture(scope="module")
def resnet():
    return lively("resnet50", 2)


def bninception_again(
    state: dict[str, Tensor], x: Tensor, *, last_pool="max", pad_counts=True, relu_first=True
) -> Tensor:
    """(B, 10, 224, 224) → (B, 1024, 7, 7), by the published names alone; the options are the traps."""

    def norm(name: str, x: Tensor) -> Tensor:
        parts = (state[f"{name}_bn.{part}"] for part in ("running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, *parts, eps=BN_EPSILON)

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
def test_bninception_is_the_specified_network(bninception):
    x = torch.randn(1, 10, 224, 224, generator=torch.Generator().manual_seed(0))
    ours, state = bninception(x), bninception.state_dict()
    assert torch.allclose(ours, bninception_again(state, x), atol=1e-4, rtol=1e-4)
    for trap in ({"last_pool": "average"}, {"pad_counts": False}, {"relu_first": False}):
        apart = (ours - bninception_again(state, x, **trap)).abs().mean() / ours.abs().mean()
        assert apart > 0.01, f"{trap} would go unnoticed"


def loaded(path, content, network: torch.nn.Module, name: str = "bninception") -> str:
    """The hash of a network after it has loaded a file of the content."""
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    load_weights(network, path, NETWORKS[name])
    return fingerprint(network)


@pytest.mark.parametrize("layout", ["cadene", "tsn_pytorch_base_model", "mmaction_v0_backbone"])
def test_the_published_key_lists_load(shared, tmp_path, bninception, layout):
    """Every name and shape of the list, its prefix and classifier included, batch norm as torch ≤ 0.1.12 wrote it."""
    lists = json.loads((shared / "facts" / "bninception_keys.json").read_text())
    state, prefix = bninception.state_dict(), lists[layout]["prefix"].split(" ")[0]
    published = {}
    for name, shape in (lists[layout]["entries"] | lists["flow_override"]).items():
        tensor = state.get(name, torch.zeros(shape))
        assert list(tensor.shape) == shape
        if not name.endswith("num_batches_tracked"):
            published[prefix + name] = tensor[None] if "_bn." in name else tensor
    found = loaded(tmp_path / "w.pth", {"state_dict": published}, build_backbone("bninception"))
    assert found == fingerprint(bninception)


def test_the_resnet_key_list_loads_whole(shared, tmp_path, resnet):
    """All 320 published names, the classifier's two among them."""
    entries = json.loads((shared / "facts" / "resnet50_tsn_mmaction2_keys.json").read_text())
    entries = {name: shape for name, shape in entries.items() if isinstance(shape, list)}
    assert len(entries) == 320
    state = resnet.state_dict()
    content = {name: state.get(name.removeprefix("backbone."), torch.zeros(shape)) for name, shape in entries.items()}
    content = {"meta": {"mmaction_version": "0.6"}, "state_dict": content}
    assert loaded(tmp_path / "w.pth", content, build_backbone("resnet50"), "resnet50") == fingerprint(resnet)


WRAPPERS = {
    "bare": lambda s: s,
    "state_dict": lambda s: {"state_dict": s, "meta": {"epoch": 1}},
    "model_state_dict": lambda s: {"epoch": 3, "model_state_dict": s, "optimizer_state_dict": {}},
    "tsn-pytorch": lambda s: {"epoch": 3, "arch": "BNInception", "best_prec1": 62.1, "state_dict": s},
}
CLASSIFIERS = ("fc", "last_linear", "new_fc", "fc_action", "cls_head.fc_cls")


PREFIXES = ("", "module.", "base_model.", "module.base_model.", "backbone.", "flow.", "module.flow.base_model.")


def first_layer() -> torch.nn.Module:
    """The first convolution of BN-Inception and its batch norm, which is enough for questions of names."""
    return torch.nn.ModuleDict(
        {"conv1_7x7_s2": torch.nn.Conv2d(10, 64, 7), "conv1_7x7_s2_bn": torch.nn.BatchNorm2d(64)}
    )


@pytest.mark.parametrize("wrapper", WRAPPERS)
@pytest.mark.parametrize("prefix", PREFIXES)
def test_wrappers_prefixes_and_classifiers(tmp_path, wrapper, prefix):
    published = first_layer()
    content = {prefix + name: tensor for name, tensor in published.state_dict().items()}
    content |= {f"{head}{name}.weight": torch.zeros(5) for name in CLASSIFIERS for head in ("", "module.")}
    assert loaded(tmp_path / "w.pth", WRAPPERS[wrapper](content), first_layer()) == fingerprint(published)


def as_python2(saved: bytes) -> bytes:
    """A file of torch's old format with its text as Python 2 wrote it: byte strings instead of unicode."""
    file, written = io.BytesIO(saved), bytearray()
    for _ in range(5):  # magic number, protocol, system, object, storage keys
        operations = list(pickletools.genops(file))
        ends = [start for _, _, start in operations[1:]] + [file.tell()]
        for (opcode, text, start), end in zip(operations, ends, strict=True):
            is_text = opcode.name == "BINUNICODE"
            written += b"U" + bytes([len(text)]) + text.encode() if is_text else saved[start:end]
    return bytes(written) + file.read()


def test_files_written_by_python_2(tmp_path):
    published, saved = first_layer(), io.BytesIO()
    torch.save({"state_dict": published.state_dict()}, saved, _use_new_zipfile_serialization=False)
    content = as_python2(saved.getvalue())
    assert pickle.SHORT_BINSTRING + b"\x13conv1_7x7_s2.weight" in content
    assert loaded(tmp_path / "w.pth", content, first_layer()) == fingerprint(published)


@pytest.fixture(scope="module")
def twostream(bninception, resnet, tmp_path_factory):
    """Both networks as `lstr extract --recipe faithful` builds them from files in mmaction2's layout."""
    folder = tmp_path_factory.mktemp("weights")
    for stream, network in (("rgb", resnet), ("flow", bninception)):
        state = {f"backbone.{name}": tensor for name, tensor in network.state_dict().items()}
        torch.save({"state_dict": state}, folder / f"{stream}.pth")
    return build_twostream(
        PRESETS["faithful"], WeightSources({"rgb": str(folder / "rgb.pth"), "flow": str(folder / "flow.pth")}), "cpu"
    )


@pytest.mark.parametrize(("height", "width"), [(180, 320), (319, 179)])
def test_rgb_features_are_those_of_mmaction2s_own_pipeline(twostream, resnet, height, width):
    """Its resize, crop, formatting, preprocessor, recogniser and pooling on the frame that we take of a chunk."""
    with quiet():
        import mmaction.models  # noqa: F401  (registers ResNet and Recognizer2D)
        from mmaction.datasets.transforms import CenterCrop, FormatShape, Resize
        from mmaction.registry import MODELS
        from mmengine.registry import init_default_scope
    init_default_scope("mmaction")
    scale = {"mean": [123.675, 116.28, 103.53], "std": [58.395, 57.12, 57.375], "format_shape": "NCHW"}
    recogniser = MODELS.build(
        {
            "type": "Recognizer2D",
            "backbone": {"type": "ResNet", "depth": 50, "pretrained": None, "norm_eval": False},
            "data_preprocessor": {"type": "ActionDataPreprocessor", **scale},
        }
    )
    recogniser.backbone.load_state_dict(resnet.state_dict())
    recogniser.eval()
    noise = np.random.default_rng(height).integers(0, 256, (6, height // 8 + 1, width // 8 + 1, 3), dtype=np.uint8)
    frames = noise.repeat(8, 1).repeat(8, 2)[:, :height, :width]  # blocks: a crop that is a pixel off shows

    results = {"imgs": [frames[3]], "modality": "RGB", "num_clips": 1, "clip_len": 1}
    results |= {"original_shape": (height, width), "img_shape": (height, width)}
    for step in (Resize(scale=(-1, 256)), CenterCrop(crop_size=224), FormatShape(input_format="NCHW")):
        results = step(results)
    with torch.inference_mode():
        processed = recogniser.data_preprocessor({"inputs": [torch.from_numpy(results["imgs"])], "data_samples": None})
        maps, _ = recogniser.extract_feat(processed["inputs"], stage="backbone")
        theirs = maps.mean((2, 3))[0].numpy()

    rgb_alone = TwoStream({"rgb": twostream.networks["rgb"]}, twostream.recipe, "cpu")
    (row,) = rgb_alone.rows([Chunk(0, 0.25, frames)], None)
    cosine = row.rgb @ theirs / np.linalg.norm(row.rgb) / np.linalg.norm(theirs)
    assert theirs.shape == (2048,) and cosine >= 0.9999
    assert np.allclose(row.rgb, theirs, rtol=1e-3, atol=1e-3 * theirs.max()), (
        "random networks' cosine hardly moves: a crop a pixel off shows here"
    )


@pytest.mark.parametrize(("height", "width"), [(256, 341), (256, 455), (341, 256), (256, 256)])
def test_all_ten_crops(height, width):
    """Corners in quarter steps, then the centre; each with its mirror image, x flow inverted in it and y flow not."""
    image = np.random.default_rng(0).integers(0, 256, (height, width, 10), dtype=np.uint8)
    crops = View((224, 224), 10, flow=True).of(image)
    w, h = (width - 224) // 4, (height - 224) // 4
    for i, (x, y) in enumerate([(0, 0), (4 * w, 0), (0, 4 * h), (4 * w, 4 * h), (2 * w, 2 * h)]):
        patch = image[y : y + 224, x : x + 224]
        assert (crops[2 * i] == patch).all()
        for field in range(5):
            assert (crops[2 * i + 1][..., 2 * field] == 255 - patch[:, ::-1, 2 * field]).all(), "x"
            assert (crops[2 * i + 1][..., 2 * field + 1] == patch[:, ::-1, 2 * field + 1]).all(), "y"
    x, y = (width - 224) // 2, (height - 224) // 2
    centre = image[y : y + 224, x : x + 224]
    one, (first, mirrored) = (View((224, 224), views, flow=True).of(image) for views in (1, 2))
    assert np.array_equal(one, [centre]) and np.array_equal(first, centre)
    assert (mirrored[..., ::2] == 255 - centre[:, ::-1, ::2]).all()
    assert (mirrored[..., 1::2] == centre[:, ::-1, 1::2]).all()


@torch.inference_mode()
def test_flow_features_are_the_mean_over_the_crops(twostream, bninception):
    """Bytes minus 128, never divided; each crop through the network, pooled, and the ten averaged."""
    flow = np.random.default_rng(0).integers(90, 166, (10, 180, 320), dtype=np.uint8)  # (10, H, W), x and y in turn
    ours = twostream.pooled("flow", twostream.views["flow"].cropped(NO_FRAMES, flow)[None])[0]
    crops = View((224, 224), 10, flow=True).of(fit(np.ascontiguousarray(flow.transpose(1, 2, 0)), 256))
    single = [
        bninception(torch.from_numpy(crop.astype(np.float32) - 128).permute(2, 0, 1)[None]).mean((2, 3))[0]
        for crop in crops
    ]
    assert np.allclose(ours, torch.stack(single).mean(0).numpy(), rtol=1e-3, atol=1e-4)

"""MoViNet frame by frame against a computation over whole clips that shares nothing with it but the tensors."""

import itertools

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional

from lstr.extractors.backbones.movinet import REMEMBERED, SIZES, Gate, MoViNet
from lstr.extractors.backbones.networks import NETWORKS
from lstr.extractors.errors import WeightsError
from lstr.extractors.networks.weights import identify, load_weights
from tests.support.moving import unsettled


def hard_swish(x):
    return x * (x + 3).clamp(0, 6) / 6


def normalised(x, tensors, name):
    """Batch norm of a clip (B, C, T, H, W) by its formula, with TensorFlow's epsilon."""
    weight, bias, mean, var = (
        tensors[f"{name}.{part}"].view(1, -1, 1, 1, 1) for part in ("weight", "bias", "running_mean", "running_var")
    )
    return (x - mean) / torch.sqrt(var + 0.001) * weight + bias


def same(size, kernel, stride):
    """TensorFlow's zeros before and after a side, by its definition: outputs are sides over strides, rounded up."""
    total = max((-(-size // stride) - 1) * stride + kernel - size, 0)
    return total // 2, total - total // 2


def over_space(x, kernel, stride=1, groups=1):
    """A clip by a kernel (out, in, h, w), each frame by itself."""
    side = kernel.shape[-1]
    x = functional.pad(x, (*same(x.shape[4], side, stride), *same(x.shape[3], side, stride)))
    return functional.conv3d(x, kernel[:, :, None], stride=(1, stride, stride), groups=groups)


def block_of_clip(x, tensors, name, kernel, stride):
    """One block on a whole clip (B, C, T, H, W), its time convolved at once, its means by cumulative sums."""
    mine = {key.removeprefix(f"{name}."): tensor for key, tensor in tensors.items() if key.startswith(f"{name}.")}
    wide = hard_swish(normalised(over_space(x, mine["expand.conv.weight"]), mine, "expand.norm"))
    channels = wide.shape[1]
    wide = over_space(wide, mine["space.conv.weight"], stride, channels)
    wide = hard_swish(normalised(wide, mine, "space.norm"))
    if kernel[0] > 1:
        wide = functional.pad(wide, (0, 0, 0, 0, kernel[0] - 1, 0))
        wide = functional.conv3d(wide, mine["time.conv.weight"][..., None], groups=channels)
        wide = hard_swish(normalised(wide, mine, "time.norm"))
    here = wide.mean((3, 4), keepdim=True)
    counts = torch.arange(1, x.shape[2] + 1, dtype=x.dtype).view(1, 1, -1, 1, 1)
    seen = torch.cat([here.cumsum(2) / counts, here], 1)
    hidden = hard_swish(over_space(seen, mine["gate.reduce.weight"]) + mine["gate.reduce.bias"].view(1, -1, 1, 1, 1))
    gate = over_space(hidden, mine["gate.expand.weight"]) + mine["gate.expand.bias"].view(1, -1, 1, 1, 1)
    wide = wide * (0.2 * gate + 0.5).clamp(0, 1)
    made = mine["scale"] * normalised(over_space(wide, mine["project.conv.weight"]), mine, "project.norm")
    past = x
    if stride == 2:
        around = (*same(x.shape[4], 3, 2), *same(x.shape[3], 3, 2))
        total = functional.avg_pool3d(functional.pad(x, around), (1, 3, 3), (1, 2, 2)) * 9
        past = total / (functional.avg_pool3d(functional.pad(torch.ones_like(x), around), (1, 3, 3), (1, 2, 2)) * 9)
    if "skip.project.conv.weight" in mine:
        past = normalised(over_space(past, mine["skip.project.conv.weight"]), mine, "skip.project.norm")
    return past + made


def places(size):
    """(name, kernel, stride) of each block."""
    for s, stage in enumerate(size.stages):
        for b, kernel in enumerate(stage.kernels):
            yield f"stages.{s}.{b}", kernel, 2 if stage.halves and b == 0 else 1


def maps_of_clip(clip, tensors, size):
    x = hard_swish(normalised(over_space(clip, tensors["stem.conv.weight"], 2), tensors, "stem.norm"))
    for name, kernel, stride in places(size):
        x = block_of_clip(x, tensors, name, kernel, stride)
    return hard_swish(normalised(over_space(x, tensors["head.conv.weight"]), tensors, "head.norm"))


def stepped(module, clip, state):
    """What a module makes of a clip (B, C, T, H, W) frame by frame."""
    made = []
    for frame in clip.unbind(2):
        maps, state = module(frame, state)
        made.append(maps)
    return torch.stack(made, 2)


@torch.inference_mode()
def test_each_block_equals_a_whole_clip():
    """Of A0, which has every kernel but one; sides are odd where maps are halved, and even."""
    size = SIZES["a0"]
    network = unsettled(MoViNet(size)).double()
    tensors = network.state_dict()
    for block, (name, kernel, stride) in zip(network.blocks, places(size), strict=True):
        channels = block.expand.conv.in_channels
        for height, width in ((9, 6), (4, 7)):
            clip = torch.randn(2, channels, 7, height, width, dtype=torch.float64)
            found = stepped(block, clip, block.begin(2, -(-height // stride), -(-width // stride)))
            expected = block_of_clip(clip, tensors, name, kernel, stride)
            assert found.shape == expected.shape and torch.allclose(found, expected, rtol=1e-10, atol=1e-10), name


@pytest.mark.parametrize("name", ["a0", *(pytest.param(name, marks=pytest.mark.long) for name in ("a1", "a2"))])
@torch.inference_mode()
def test_a_stream_equals_a_whole_clip(name):
    network = unsettled(MoViNet(SIZES[name])).double()
    clip = torch.rand(1, 3, 7, 44, 60, dtype=torch.float64)
    found = stepped(network.step, clip, network.begin(1, 44, 60))
    expected = maps_of_clip(clip, network.state_dict(), SIZES[name])
    assert found.shape == expected.shape == (1, SIZES[name].width, 7, 2, 2)
    assert torch.allclose(found, expected, rtol=1e-9, atol=1e-9 * expected.abs().max())
    alone = maps_of_clip(clip[:, :, -1:], network.state_dict(), SIZES[name])
    assert (found[:, :, -1:] - alone).abs().max() > 1e-3 * expected.abs().max(), "the past changes nothing"


@torch.inference_mode()
def test_what_is_remembered_has_an_end():
    """A gate's mean is that of all frames up to so many; a later frame then weighs as one of these."""
    gate, frames = Gate(4).double(), torch.randn(2 * REMEMBERED, 1, 4, 3, 3, dtype=torch.float64)
    mean, count, means = torch.zeros(1, 4, 1, 1).double(), torch.zeros(1, 1, 1, 1).double(), []
    for frame in frames:
        _, mean, count = gate(frame, mean, count)
        means.append(mean.flatten())
    here = frames.mean((1, 3, 4)).view(-1, 4)
    for n in (1, 2, REMEMBERED):
        assert torch.allclose(means[n - 1], here[:n].mean(0))
    after = means[REMEMBERED - 1] * (1 - 1 / REMEMBERED) + here[REMEMBERED] / REMEMBERED
    assert torch.allclose(means[REMEMBERED], after)


LAYERS = {"expand": "expansion", "space": "feature", "time": "feature", "project": "projection"}
TENSORS = {"weight": "gamma", "bias": "beta", "running_mean": "moving_mean", "running_var": "moving_variance"}


def variable_name(name, form):
    """TensorFlow's name of one of our tensors: `hub` as its published models have it, `garden` as its code names it."""
    places, conv = name.split("."), "conv3d" if form == "3d" else "conv2d"
    *where, layer, tensor = places
    part = where[-1] if where else ""
    if tensor == "scale":
        part, layer = "scale", ""
    block = ""
    if places[0] == "stages":
        s, b = places[1:3]
        block = f"b{s}/l{b}/bneck/" if form == "hub" else f"block{s}_layer{b}/bneck/"
    if name.endswith(".scale"):
        return f"{block}scale:0"
    if ".gate." in name:
        kind = "kernel" if tensor == "weight" else "bias"
        return f"{block}se/se_{layer}/{conv}/{conv}_1/{kind}:0"
    path = {"stem": "stem/stem", "head": "head/project"}.get(places[0], LAYERS.get(part, ""))
    path = f"{block}skip/skip_project" if ".skip." in name else f"{block}{path}"
    time = "_temporal" if part == "time" else ""
    if layer == "norm":
        inner = f"{conv}{time}/" if form == "garden" else ""
        return f"{path}/{inner}bn{time}/{TENSORS[tensor]}:0"
    if part in ("space", "time") and form != "3d":
        return f"{path}/{conv}{time}/depthwise_conv2d/depthwise_kernel:0"
    return f"{path}/{conv}{time}/{conv}/kernel:0"


def variable_of(name, tensor, form):
    """One of our tensors as TensorFlow has it."""
    if tensor.dim() != 4:
        return tensor
    if form == "3d":
        tensor = tensor[:, :, :, None, :] if ".time." in name else tensor[:, :, None]  # (out, in, t, h, w)
        return tensor.permute(2, 3, 4, 1, 0).contiguous()
    depthwise = ".space." in name or ".time." in name
    return tensor.permute((2, 3, 0, 1) if depthwise else (2, 3, 1, 0)).contiguous()


@pytest.mark.parametrize("form", ["hub", *(pytest.param(form, marks=pytest.mark.long) for form in ("garden", "3d"))])
def test_tensorflows_variables_load(form, tmp_path):
    """By the names of the published models and of the code, of two dimensions and of three, with the classifier."""
    network, other = unsettled(MoViNet(SIZES["a0"])), MoViNet(SIZES["a0"])
    ours = {name: t for name, t in network.state_dict().items() if not name.endswith("num_batches_tracked")}
    held = {variable_name(name, form): variable_of(name, tensor, form) for name, tensor in ours.items()}
    assert len(held) == len(ours)
    held["classifier_head/head/conv2d/conv2d/kernel:0"] = torch.zeros(1, 1, 480, 2048)
    save_file(held, tmp_path / "a0.safetensors")
    entry = NETWORKS["movinet-a0-stream"]
    load_weights(other, tmp_path / "a0.safetensors", entry)
    assert all(torch.equal(other.state_dict()[name], tensor) for name, tensor in ours.items())
    if form != "hub":
        assert identify(tmp_path / "a0.safetensors") == ("movinet-a0-stream", "rgb")
    with pytest.raises(WeightsError, match="movinet-a1-stream"):
        load_weights(MoViNet(SIZES["a1"]), tmp_path / "a0.safetensors", NETWORKS["movinet-a1-stream"])


def torch_name(name):
    """Atze00/MoViNet-pytorch's name of one of our tensors."""
    for ours, theirs in (("stem.", "conv1.conv_1."), ("head.", "conv7.conv_1."), (".conv.", ".conv2d.")):
        name = name.replace(ours, theirs) if ours.startswith(".") or name.startswith(ours) else name
    if name.startswith("stages."):
        _, s, b, rest = name.split(".", 3)
        pairs = [("expand.", "expand.conv_1."), ("project.", "project.conv_1."), ("skip.project.", "res.1.conv_1.")]
        pairs += [("space.", "deep.conv_1."), ("time.", "deep.conv_2."), ("scale", "alpha")]
        pairs += [("gate.reduce.", "se.fc1.conv_1.conv2d."), ("gate.expand.", "se.fc2.conv_1.conv2d.")]
        ours, theirs = next(pair for pair in pairs if rest.startswith(pair[0]))
        name = f"blocks.b{s}_l{b}.{rest.replace(ours, theirs, 1)}"
    return name


def test_a_file_of_movinet_pytorch_loads(tmp_path):
    network, other = unsettled(MoViNet(SIZES["a1"])), MoViNet(SIZES["a1"])
    held = {torch_name(name): tensor for name, tensor in network.state_dict().items()}
    some = ("conv1.conv_1.conv2d.weight", "blocks.b2_l0.deep.conv_2.norm.running_var", "blocks.b4_l6.alpha")
    assert {*some, "blocks.b0_l0.se.fc1.conv_1.conv2d.bias", "conv7.conv_1.norm.weight"} < held.keys()
    torch.save({**held, "classifier.0.conv_1.conv2d.weight": torch.zeros(2048, 600, 1, 1)}, tmp_path / "a1.pth")
    load_weights(other, tmp_path / "a1.pth", NETWORKS["movinet-a1-stream"])
    pairs = itertools.zip_longest(network.state_dict().items(), other.state_dict().items())
    assert all(a == b and torch.equal(x, y) for (a, x), (b, y) in pairs)

"""Published weight files into the networks, and seeded random weights in their place.

ResNet-50 and mmaction2's other backbones: its 0.x and 1.x files (`backbone.` keys, classifier dropped), and
torchvision's names of a ResNet.
BN-Inception: the tsn-pytorch, Cadene and mmaction v0 layouts, with their prefixes and wrappers, and the [1, C]
batch-norm tensors of torch ≤ 0.1.12. Only `num_batches_tracked` may be missing; nothing may be left over.
"""

import math
import re
import shlex
from collections.abc import Callable, Collection, Container, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from lstr.extractors.errors import WeightsError
from lstr.extractors.networks.backbones.backbones import build_backbone
from lstr.extractors.recipe import CHANNELS
from lstr.extractors.weights.content import read_content, read_state_dict
from lstr.extractors.weights.fingerprint import CLASSIFIERS, bare_name, fingerprint_of

ALIGNMENT = "align"  # of a weights file of `lstr finetune --folds`, beside its state_dict


def _resnet_name(name: str) -> str:
    """torchvision's names as mmaction2's: layer1.0.conv1.weight → layer1.0.conv1.conv.weight."""
    name = re.sub(r"(^|\.)conv(\d)\.(weight|bias)$", r"\1conv\2.conv.\3", name)
    name = re.sub(r"(^|\.)bn(\d)\.", r"\1conv\2.bn.", name)
    return name.replace("downsample.0.", "downsample.conv.").replace("downsample.1.", "downsample.bn.")


def _renamed(path: str | Path, wanted: Container[str]) -> dict[str, Tensor]:
    """The tensors of a file under our names: prefixes off, classifier dropped, old batch-norm tensors as (C,)."""
    rename: Callable[[str], str] = _resnet_name if "conv1.conv.weight" in wanted else str
    tensors = {}
    for name, tensor in read_state_dict(path).items():
        name = bare_name(name)
        if CLASSIFIERS.match(name):
            continue
        if "_bn." in name and tensor.dim() == 2 and tensor.shape[0] == 1:
            tensor = tensor[0]  # (1, C) → (C,)
        tensors[rename(name)] = tensor
    return tensors


def load_weights(backbone: nn.Module, path: str | Path, network: str) -> None:
    """Load a file in mmaction2's or another published layout into a network of that name, in place.

    Raises WeightsError that names the first tensor which is missing, left over, or of another shape.
    """
    backbone = getattr(backbone, "backbone", backbone)  # of a recogniser
    wanted = backbone.state_dict()
    loaded = _renamed(path, wanted)
    _check(loaded, {name: tensor.shape for name, tensor in wanted.items()}, path, network)
    backbone.load_state_dict({**wanted, **loaded})


def load_crossed(backbone: nn.Module, path: str | Path, network: str) -> None:
    """Load an RGB network's weights into one that takes flow, in place: its kernels for the first layer are averaged
    over the colours, and repeated for each flow plane (TSN, section 3.3). Raises WeightsError as `load_weights`.
    """
    wanted = backbone.state_dict()
    shapes = {name: tensor.shape for name, tensor in wanted.items()}
    loaded, stem = _renamed(path, wanted), _stem(shapes)
    if stem in loaded and loaded[stem].dim() == 4:
        loaded[stem] = loaded[stem].mean(1, keepdim=True).repeat(1, shapes[stem][1], 1, 1)  # (out, 10, 7, 7)
    _check(loaded, shapes, path, network)
    backbone.load_state_dict({**wanted, **loaded})


def read_alignment(path: str | Path) -> nn.Conv2d | None:
    """The linear map (D, D) of features that a fold's network ends with; None where the file has none.

    Raises WeightsError where it cannot be read.
    """
    content = read_content(path, mapped=True)
    if not isinstance(content, Mapping) or ALIGNMENT not in content:
        return None
    try:
        weight, bias = content[ALIGNMENT]["weight"], content[ALIGNMENT]["bias"]
        layer = nn.Conv2d(weight.shape[1], weight.shape[0], 1)  # of maps: their mean is taken afterwards
        layer.load_state_dict({"weight": weight[..., None, None], "bias": bias})
    except (TypeError, KeyError, AttributeError, IndexError, RuntimeError) as error:
        raise WeightsError(f"{path} has an alignment that cannot be read.", "train it again.") from error
    return layer


def _check(loaded: Mapping[str, Tensor], wanted: Mapping[str, torch.Size], path: str | Path, network: str) -> None:
    holds = f"`lstr weights check {shlex.quote(str(path))}` shows what a file holds"
    hint = f"choose {network} weights for this stream ({holds})."
    needed = [n for n in wanted if not n.endswith("num_batches_tracked")]
    missing = [n for n in needed if n not in loaded]
    if len(missing) == len(needed):
        raise WeightsError(f"{path} holds no {network} tensor (its first is {next(iter(loaded), 'none')!r}).", hint)
    if missing:
        raise WeightsError(f"{path} lacks {len(missing)} tensors of {network}; the first is {missing[0]!r}.", hint)
    extra = [n for n in loaded if n not in wanted]
    if extra:
        raise WeightsError(f"{path} has {len(extra)} tensors that {network} has not; the first is {extra[0]!r}.", hint)
    stem = _stem(wanted)
    for name, tensor in loaded.items():
        if tensor.shape != wanted[name]:
            shapes = f"{list(tensor.shape)} where {list(wanted[name])} is needed"
            reason = _swapped(tensor.shape, wanted[name]) if name == stem else ""
            raise WeightsError(f"{path}: {name} is {shapes}{reason}.", hint)


def _stem(shapes: Mapping[str, torch.Size]) -> str:
    """Name of the first convolution's weight."""
    return next((name for name, shape in shapes.items() if len(shape) == 4), "")


def _swapped(found: torch.Size, wanted: torch.Size) -> str:
    """Why two stems differ, where one is of the other stream; nothing where they differ otherwise."""
    streams = [CHANNELS.get(shape[1], "") for shape in (found, wanted) if len(shape) == 4]
    names = {"rgb": "RGB", "flow": "flow"}
    if len(streams) < 2 or not all(streams) or streams[0] == streams[1]:
        return ""
    return f" ({names[streams[0]]} weights offered as {names[streams[1]]} weights)"


def identify(path: str | Path) -> tuple[str, str]:
    """The network and the stream that a weights file is for, after looking at every tensor's name and shape.

    Raises WeightsError when it fits no network, or takes neither frames nor five flow fields.
    """
    network = _network_of(read_state_dict(path))
    wanted = {name: tensor.shape for name, tensor in build_backbone(network).state_dict().items()}
    loaded, stem = _renamed(path, wanted), _stem(wanted)
    channels = loaded[stem].shape[1] if stem in loaded and loaded[stem].dim() == 4 else None
    if channels in CHANNELS:
        wanted[stem] = torch.Size((wanted[stem][0], channels, *wanted[stem][2:]))
    _check(loaded, wanted, path, network)
    return network, CHANNELS[wanted[stem][1]]


def _network_of(names: Collection[str]) -> str:
    """The network that a file's names are most like."""
    if any("inception_" in name for name in names):
        return "bninception"
    for part, network in ((".branch2.", "shufflenetv2"), (".block.", "mobilenetv3")):
        if any(part in name for name in names):
            return network
    blocks = any("layer1." in name for name in names)
    return "resnet18" if blocks and not any("layer1.0.conv3" in name for name in names) else "resnet50"


def randomise(backbone: nn.Module, seed: int) -> None:
    """Seeded random weights in place: He-normal convolutions (fan out), unit batch norm, zero biases."""
    generator = torch.Generator().manual_seed(seed)
    for module in backbone.modules():
        if isinstance(module, nn.Conv2d):
            fan_out = module.out_channels * module.kernel_size[0] * module.kernel_size[1] // module.groups
            with torch.no_grad():
                module.weight.normal_(0, math.sqrt(2 / fan_out), generator=generator)
                if module.bias is not None:
                    module.bias.zero_()
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()


def fingerprint(backbone: nn.Module) -> str:
    """16 hex digits of the SHA-256 over the network's tensors in float32, by sorted name; counters left out."""
    return fingerprint_of(
        {name: tensor.detach().cpu().float().numpy() for name, tensor in backbone.state_dict().items()}
    )


def statistics(backbone: nn.Module) -> dict[str, Tensor]:
    """The running means and variances of every batch norm, by state-dict name."""
    return {n: t.clone() for n, t in backbone.state_dict().items() if n.endswith(("running_mean", "running_var"))}


def load_statistics(backbone: nn.Module, stored: Mapping[str, Tensor]) -> None:
    """Put calibrated batch-norm statistics back, in place."""
    state = backbone.state_dict()
    if stored.keys() != statistics(backbone).keys():
        raise WeightsError(
            "The stored batch-norm statistics belong to another network.",
            "make the features again with `lstr extract`.",
        )
    backbone.load_state_dict({**state, **stored})

"""Published weight files into the networks, and seeded random weights in their place.

A file may have the prefixes and wrappers of mmaction2 (0.x, 1.x), tsn-pytorch, Cadene, mmaction v0 or timm, and the
[1, C] batch-norm tensors of torch ≤ 0.1.12; its classifier is dropped. Only `num_batches_tracked` may be missing;
nothing may be left over.
"""

import math
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lstr.errors import WeightsError
from lstr.extractors.networks.network import CHANNELS, Network
from lstr.extractors.networks.table import NETWORKS, known_network
from lstr.extractors.networks.torch_runtime import scaled
from lstr.extractors.networks.weights_content import bare_name, fingerprint_of, read_content, read_state_dict
from lstr.extractors.networks.weights_files import read_card
from lstr.extractors.recipe import NetworkRecipe

RGB = 3  # channels of a frame
ALIGNMENT = "align"  # of a weights file of `lstr finetune --folds`, beside its state_dict


def _renamed(held: Mapping[str, Tensor], network: Network) -> dict[str, Tensor]:
    """The tensors of a file under our names: prefixes off, classifier dropped, old batch-norm tensors as (C,)."""
    classifier = re.compile(rf"^({network.classifier})(\.|$)")
    tensors = {}
    for name, tensor in held.items():
        name = bare_name(name)
        if classifier.match(name):
            continue
        if "_bn." in name and tensor.dim() == 2 and tensor.shape[0] == 1:
            tensor = tensor[0]  # (1, C) → (C,)
        tensors[name] = tensor
    return _as_here(tensors, network)


def _as_here(held: Mapping[str, Tensor], network: Network) -> dict[str, Tensor]:
    """Tensors of bare names under ours."""
    return {network.rename(name): held[name] for name in held}


def load_weights(backbone: nn.Module, path: str | Path, network: Network, inflate: bool = False) -> bool:
    """Load a file in a published layout into a network, in place; whether its stem was inflated.

    With `inflate` a file for frames serves a network of other channels. Raises WeightsError that names the first tensor
    which is missing, left over, or of another shape.
    """
    backbone = getattr(backbone, "backbone", backbone)  # of a network in a module of ours, or a recogniser
    wanted = backbone.state_dict()
    shapes = {name: tensor.shape for name, tensor in wanted.items()}
    loaded, stem = _renamed(read_state_dict(path), network), _stem(shapes)
    crossed = inflate and stem in loaded and loaded[stem].dim() == 4
    crossed = crossed and loaded[stem].shape[1] == RGB != shapes[stem][1]
    if crossed:
        loaded[stem] = inflate_stem(loaded[stem], shapes[stem][1])
    _check(loaded, shapes, path, network.name)
    backbone.load_state_dict({**wanted, **loaded})
    return crossed


def inflate_stem(kernels: Tensor, channels: int) -> Tensor:
    """Kernels (out, 3, h, w) for frames as (out, channels, h, w): their mean over the colours, for each channel.

    As TSN's networks of flow begin (section 3.3); the recipe calls the rule `mean`.
    """
    return kernels.mean(1, keepdim=True).repeat(1, channels, 1, 1)


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
    """Name of the first convolution's weight, which takes a stream's channels."""
    convolutions = {name: shape for name, shape in shapes.items() if len(shape) == 4}
    return next((name for name, shape in convolutions.items() if shape[1] in CHANNELS), next(iter(convolutions), ""))


def _swapped(found: torch.Size, wanted: torch.Size) -> str:
    """Why two stems differ, where one is of the other stream; nothing where they differ otherwise."""
    streams = [CHANNELS.get(shape[1], "") for shape in (found, wanted) if len(shape) == 4]
    names = {"rgb": "RGB", "flow": "flow"}
    if len(streams) < 2 or not all(streams) or streams[0] == streams[1]:
        return ""
    return f" ({names[streams[0]]} weights offered as {names[streams[1]]} weights)"


def identify(path: str | Path, wanted: Network | None = None) -> tuple[str, str]:
    """The network and the stream that a weights file is for, after looking at every tensor's name and shape.

    It is one of NETWORKS, or `wanted`, or the one that its card names. Raises WeightsError when it fits none, or takes
    neither frames nor five flow fields.
    """
    card = read_card(path)
    if wanted is None and card:
        wanted = known_network(card.network)
    known = {**NETWORKS, **({wanted.name: wanted} if wanted else {})}
    content = read_state_dict(path)
    held = {bare_name(name): tensor for name, tensor in content.items()}
    likeness = {}
    for entry in known.values():
        shapes = shapes_of(entry)
        ours = {name: tensor.shape for name, tensor in _as_here(held, entry).items()}
        common = ours.keys() & shapes.keys()
        equal = sum(ours[name] == shapes[name] for name in common)  # networks of one family share their names
        likeness[entry.name] = len(common) / len(ours.keys() | shapes.keys()), equal
    network = known[max(likeness, key=lambda name: likeness[name])]
    shapes = shapes_of(network)
    loaded, stem = _renamed(content, network), _stem(shapes)
    channels = loaded[stem].shape[1] if stem in loaded and loaded[stem].dim() == 4 else None
    if channels in CHANNELS:
        shapes[stem] = torch.Size((shapes[stem][0], channels, *shapes[stem][2:]))
    _check(loaded, shapes, path, network.name)
    return network.name, CHANNELS[shapes[stem][1]]


def shapes_of(network: Network) -> dict[str, torch.Size]:
    """The shapes of the tensors of a network for frames, by name; no memory is taken for them."""
    with torch.device("meta"):
        backbone = network.build(RGB)
    backbone = getattr(backbone, "backbone", backbone)
    return {name: tensor.shape for name, tensor in backbone.state_dict().items()}


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


@torch.no_grad()
def calibrate(network: nn.Module, images: NDArray[np.uint8], part: NetworkRecipe, device: str, batch: int) -> None:
    """Set batch-norm statistics, in place, to those of images (N, segments, crop, crop, C), `batch` at a time.

    Without them the activations of a random network carry little, for no layer normalises.
    """
    for norm in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over the batches
    network.train()
    batch = max(2, batch // images.shape[1])
    for start in range(0, len(images), batch):
        shown = torch.from_numpy(images[start : start + batch]).to(device).flatten(0, 1)
        if len(shown) > 1:
            network(scaled(shown, part))
    network.eval()


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

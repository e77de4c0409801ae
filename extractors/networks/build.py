"""Build the network of a stream with published, custom or seeded random weights.

A weights file may have the prefixes and wrappers of mmaction2 (0.x, 1.x), tsn-pytorch, Cadene, mmaction v0 or timm, and
the [1, C] batch-norm tensors of torch ≤ 0.1.12; its classifier is dropped. Only `num_batches_tracked` may be missing,
and no other tensor may be present.
"""

import math
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lstr.errors import RecipeError, WeightsError
from lstr.extractors.networks.backbones import Wrapper
from lstr.extractors.networks.manifest import dataset_of
from lstr.extractors.networks.network import (
    CHANNELS,
    COLOURS,
    MEAN,
    MOVENET,
    NETWORKS,
    Network,
    find_network,
    get_network,
    is_network_name,
)
from lstr.extractors.networks.torch_runtime import Scale
from lstr.extractors.networks.weights_file import (
    WeightSources,
    bare_name,
    fingerprint_of,
    network_file,
    read_card,
    read_state_dict,
)
from lstr.extractors.recipe import NetworkRecipe
from lstr.extractors.streams import CHANNELS_OF

if TYPE_CHECKING:
    from lstr.extractors.presets import StreamPreset

SEED = 2021  # of random weights


class Change(Wrapper):
    """Apply a network to two frames (B, 6, H, W) and return the difference of their maps; it needs no training."""

    def forward(self, x: Tensor) -> Tensor:
        """Return (B, D, h, w) for pairs of RGB frames (B, 6, H, W), the channels of the first frame first."""
        first, second = self.backbone(torch.cat(x.chunk(2, 1))).chunk(2)  # (2 B, D, h, w)
        return (first - second).abs()


def network_recipe(stream: str, preset: "StreamPreset") -> NetworkRecipe:
    """Return the recipe of a stream's network from its preset, without weights.

    A network that is a path is read as an mmaction2 config; recipe files must not contain paths, because a config is a
    program. Raises MissingPathError or RecipeError.
    """
    if is_network_name(preset.network):
        entry = get_network(preset.network)
    else:
        from lstr.extractors.networks.mmaction import read_recogniser

        entry = read_recogniser(preset.network, stream)
    given = entry.input_of(stream)
    return NetworkRecipe(
        network=entry.name,
        weights="",
        sha256="",
        crops=preset.crops,
        mean=preset.mean or given.mean,
        std=preset.std or given.std,
        config=entry.config,
        width=None if entry.name in NETWORKS and entry.config is None else entry.width,
        bgr=given.bgr,
        size=preset.size,
        margin=preset.margin if preset.size else 1.0,
    )


def backbone_of(stream: str, part: NetworkRecipe, entry: Network) -> nn.Module:
    """Return the module of a stream's network with its initial weights. Raises RecipeError as `build_network`."""
    channels = CHANNELS_OF[stream]
    if len(part.mean) != channels or len(part.std) != channels:
        raise RecipeError(
            f"{part.network} has {len(part.mean)} means and {len(part.std)} deviations of its input, and the {stream} "
            f"stream {channels} channels.",
            "write one of each per channel.",
        )
    if (stream == "pose") != (entry is MOVENET):
        hint = f"use {MOVENET.name} for the stream pose, and another network for the others."
        raise RecipeError(f"The {stream} stream cannot use {entry.name}.", hint)
    if stream == "pose":
        from lstr.extractors.networks.movenet import Poses

        return Poses(entry.build(COLOURS)).eval()
    return (Change(entry.build(COLOURS)) if stream == "change" else entry.build(channels)).eval()


def build_network(
    stream: str, part: NetworkRecipe, sources: WeightSources, fold: int | None = None
) -> tuple[nn.Module, NetworkRecipe]:
    """Return the network of a stream with its weights, and `part` completed with their hash.

    Args:
        stream: One of STREAMS.
        part: The recipe of the network.
        sources: The weights by stream.
        fold: The fold of a weights folder, from 1; None for the network of all videos.

    Raises:
        RecipeError: The network does not accept the stream's channels.
        WeightsError, MissingPathError: The weights file cannot be used.
    """
    source = sources.files.get(stream)
    path = source and network_file(source, stream, fold)
    entry = part.entry
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)  # for layers that `randomise` leaves as they were built
        backbone = backbone_of(stream, part, entry)
    if path:
        inflated = load_weights(backbone, path, entry, inflate=entry.inflates)
        card = read_card(path)
        weights, stem = card.name if card else dataset_of(path), MEAN if inflated else None
        part = replace(part, weights=weights, seed=None, calibrated_on=(), stem=stem)
    else:
        # seeded, so that the recipe is enough to compute the same features again
        randomise(backbone, SEED)
        calibrated_on: tuple[str, ...] = ()
        if stored := sources.calibration.get(stream):
            calibrated_on, state = sources.calibrated_on, backbone.state_dict()
            if stored.keys() != statistics(backbone).keys():
                raise WeightsError(
                    "The stored batch-norm statistics belong to another network.",
                    "make the features again with `lstr extract`.",
                )
            backbone.load_state_dict({**state, **stored})
        part = replace(part, weights="random", seed=SEED, calibrated_on=calibrated_on, stem=None)
    # the hash uses the tensor names of weights files
    return backbone, replace(part, sha256=fingerprint(getattr(backbone, "backbone", backbone)))


def load_weights(backbone: nn.Module, path: str | Path, network: Network, inflate: bool = False) -> bool:
    """Load a file in a published layout into a network, in place; return whether its stem was inflated.

    With `inflate`, RGB weights can initialise a network with other input channels: the first kernels become their mean
    over the colours, repeated for each channel, as in TSN's flow networks (section 3.3); the recipe calls this `mean`.
    Raises WeightsError that names the first missing or unexpected tensor, or the first one with another shape.
    """
    backbone = getattr(backbone, "backbone", backbone)  # unwraps `Change`, `Poses`, or a recogniser
    wanted = backbone.state_dict()
    shapes = {name: tensor.shape for name, tensor in wanted.items()}
    loaded, stem = _renamed(read_state_dict(path), network), _stem(shapes)
    inflate = inflate and stem in loaded and loaded[stem].dim() == 4
    inflate = inflate and loaded[stem].shape[1] == COLOURS != shapes[stem][1]
    if inflate:
        loaded[stem] = loaded[stem].mean(1, keepdim=True).repeat(1, shapes[stem][1], 1, 1)
    _check(loaded, shapes, path, network.name)
    backbone.load_state_dict({**wanted, **loaded})
    return inflate


def _renamed(held: Mapping[str, Tensor], network: Network) -> dict[str, Tensor]:
    """Return the tensors of a file by our names: without prefixes and classifier, old batch-norm tensors as (C,)."""
    classifier = re.compile(rf"^({network.classifier})(\.|$)")
    tensors = {}
    for name, tensor in held.items():
        name = bare_name(name)
        if not classifier.match(name):
            if "_bn." in name and tensor.dim() == 2 and tensor.shape[0] == 1:
                tensor = tensor[0]  # (1, C) → (C,)
            tensors[network.rename(name)] = tensor
    return tensors


def _stem(shapes: Mapping[str, torch.Size]) -> str:
    """Return the name of the first convolution's weight; its shape shows the number of input channels."""
    convolutions = {name: shape for name, shape in shapes.items() if len(shape) == 4}
    return next((name for name, shape in convolutions.items() if shape[1] in CHANNELS), next(iter(convolutions), ""))


def _check(loaded: Mapping[str, Tensor], wanted: Mapping[str, torch.Size], path: str | Path, network: str) -> None:
    hint = f"choose {network} weights for this stream"
    hint += f" (see its content with `lstr weights check {shlex.quote(str(path))}`)."
    needed = [n for n in wanted if not n.endswith("num_batches_tracked")]
    missing = [n for n in needed if n not in loaded]
    if len(missing) == len(needed):
        raise WeightsError(f"{path} has no {network} tensor (its first is {next(iter(loaded), 'none')!r}).", hint)
    if missing:
        raise WeightsError(f"{path} lacks {len(missing)} tensors of {network}; the first is {missing[0]!r}.", hint)
    extra = [n for n in loaded if n not in wanted]
    if extra:
        raise WeightsError(f"{path} has {len(extra)} tensors that {network} lacks; the first is {extra[0]!r}.", hint)
    stem = _stem(wanted)
    for name, tensor in loaded.items():
        if tensor.shape != wanted[name]:
            shapes = f"{list(tensor.shape)} where {list(wanted[name])} is needed"
            streams = [CHANNELS.get(shape[1]) for shape in (tensor.shape, wanted[name]) if len(shape) == 4]
            if name == stem and len({*streams} - {None}) == 2:
                found, needs = ("RGB" if stream == "rgb" else stream for stream in streams)
                shapes += f" ({found} weights offered as {needs} weights)"
            raise WeightsError(f"{path}: {name} is {shapes}.", hint)


@lru_cache(32)  # building every network takes half a second, and a job identifies several files
def tensor_shapes(build: Callable[[int], nn.Module]) -> Mapping[str, torch.Size]:
    """Return the shapes of a network's tensors by name, for RGB frames."""
    with torch.device("meta"):  # takes no memory
        backbone = build(COLOURS)
    state = getattr(backbone, "backbone", backbone).state_dict()
    return {name: tensor.shape for name, tensor in state.items()}


def identify(path: str | Path, wanted: Network | None = None) -> tuple[str, str]:
    """Return the network and the stream of a weights file, found by the names and shapes of its tensors.

    The network is one of NETWORKS, `wanted`, or the network that the card names. Raises WeightsError if the file fits
    no network, or if its input is neither RGB frames nor five flow fields.
    """
    card = read_card(path)
    if wanted is None and card:
        wanted = find_network(card.network)
    known = {**NETWORKS, **({wanted.name: wanted} if wanted else {})}
    content = read_state_dict(path)
    likeness = {}
    for entry in known.values():
        shapes = tensor_shapes(entry.build)
        ours = {entry.rename(bare_name(name)): tensor.shape for name, tensor in content.items()}
        common = ours.keys() & shapes.keys()
        equal = sum(ours[name] == shapes[name] for name in common)  # networks of one family share tensor names
        likeness[entry.name] = len(common) / len(ours.keys() | shapes.keys()), equal
    network = known[max(likeness, key=lambda name: likeness[name])]
    shapes = {**tensor_shapes(network.build)}
    loaded, stem = _renamed(content, network), _stem(shapes)
    # the stem shows the stream: it takes three channels or ten
    channels = loaded[stem].shape[1] if stem in loaded and loaded[stem].dim() == 4 else None
    if channels in CHANNELS:
        shapes[stem] = torch.Size((shapes[stem][0], channels, *shapes[stem][2:]))
    _check(loaded, shapes, path, network.name)
    return network.name, CHANNELS[shapes[stem][1]]


def randomise(backbone: nn.Module, seed: int) -> None:
    """Set seeded random weights, in place: He-normal convolutions (fan out), unit norms, zero biases."""
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
    """Compute batch-norm statistics, in place, from images (N, H, W, C), `batch` at a time.

    Without them the features of a random network carry little information, because no layer normalises.
    """
    for norm in (module for module in network.modules() if isinstance(module, nn.BatchNorm2d)):
        norm.reset_running_stats()
        norm.momentum = None  # a plain average over the batches
    network.train()
    scale = Scale(part).to(device)
    for start in range(0, len(images), batch):
        shown = torch.from_numpy(images[start : start + batch]).to(device)
        # one image with maps of one pixel has no variance
        if len(shown) > 1:
            network(scale(shown))
    network.eval()


def fingerprint(backbone: nn.Module) -> str:
    """Return 16 hex digits of the SHA-256 over the network's tensors in float32, by sorted name, without counters."""
    return fingerprint_of(
        {name: tensor.detach().cpu().float().numpy() for name, tensor in backbone.state_dict().items()}
    )


def statistics(backbone: nn.Module) -> dict[str, Tensor]:
    """Return the running means and variances of every batch norm, by state-dict name."""
    return {n: t.clone() for n, t in backbone.state_dict().items() if n.endswith(("running_mean", "running_var"))}

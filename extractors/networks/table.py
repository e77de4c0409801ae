"""The feature networks by name. One that is added here is known everywhere: recipes, commands, plans, training.

Another package adds its own by an entry point of the group `lstr.networks`, which names a `Network`.
"""

import re
from functools import cache, partial
from importlib import import_module
from typing import TYPE_CHECKING

from lstr.errors import RecipeError
from lstr.extractors.networks.network import (
    FEW_WEIGHTS,
    FIVE_PIXELS,
    RESNET50_COST,
    TIMM,
    Cost,
    Input,
    Network,
    torchvision_name,
)
from lstr.files.entry_points import find_others, load_other

if TYPE_CHECKING:
    from torch import nn

GROUP = "lstr.networks"

# Those of the two published networks are as the authors of LSTR have them in the code of their later work (Stochastic
# Backpropagation, src/lstr/models/backbones/backbones.py; facts, section 0).
IMAGENET = Input((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
HALVES = Input((127.5,) * 10, (127.5,) * 10)  # .5 and .5 of the 0–1 scale
SIGNED = Input((127.0,) * 3, (128.0,) * 3)  # EfficientNet-Lite's, as its authors' builder has it
CAFFE = Input((104.0, 117.0, 128.0), (1.0,) * 3, bgr=True)
UNDIVIDED = Input((128.0,) * 10, (1.0,) * 10)


def _build(module: str, name: str, channels: int, **sizes: float) -> "nn.Module":
    return getattr(import_module(f"lstr.extractors.networks.{module}"), name)(in_channels=channels, **sizes)


def _efficientnet_name(name: str) -> str:
    """Return our name of a published tensor: _blocks.3._bn1.bias → blocks.3.depthwise.norm.bias."""
    if block := re.fullmatch(r"_blocks\.(\d+)\._(expand_conv|depthwise_conv|project_conv|bn\d)\.(\w+)", name):
        number, layer, tensor = block.groups()
        part = layer.removesuffix("_conv") if "conv" in layer else ("expand", "depthwise", "project")[int(layer[2:])]
        return f"blocks.{number}.{part}.{'conv' if 'conv' in layer else 'norm'}.{tensor}"
    ends = {"_conv_stem": "stem.conv", "_bn0": "stem.norm", "_conv_head": "head.conv", "_bn1": "head.norm"}
    module, dot, tensor = name.partition(".")
    return ends.get(module, module) + dot + tensor


RESNET50 = Network(
    "resnet50",
    2048,
    partial(_build, "resnet", "ResNet", depth=50),
    {"rgb": IMAGENET, "flow": HALVES},  # of rgb_kinetics, rgb_anet and mmaction2's configs; of flow_anet
    RESNET50_COST,
    "Apache-2.0",
    rename=torchvision_name,
    last_norm="conv3.bn",
)
BNINCEPTION = Network(
    "bninception",
    1024,
    partial(_build, "bninception", "BNInception"),
    {"rgb": CAFFE, "flow": UNDIVIDED},  # of rgb_kinetics_bninception, flow_kinetics_bninception
    Cost(130e6, 1.0),
    "BSD-2-Clause",
    multiple=32,  # strides round down and pools round up, so its branches meet only there (facts, section 2)
    written_as=(("backbone.", "module.base_model."), ("cls_head.fc_cls.", "module.new_fc.")),  # tsn-pytorch
)
RESNET18 = Network(
    "resnet18",
    512,
    partial(_build, "resnet", "ResNet", depth=18),
    {"rgb": IMAGENET, "flow": FIVE_PIXELS},
    Cost(134e6, 0.9),
    "BSD-3-Clause",
    rename=torchvision_name,
    last_norm="conv2.bn",
)
# Networks made for phones, torchvision's.
MOBILE = [
    Network(
        name,
        width,
        partial(_build, "mobile", name),
        {"rgb": IMAGENET, "flow": FIVE_PIXELS},
        Cost(megabytes * 1e6, 0.25),
        "BSD-3-Clause",
        depthwise=True,
        finetuning=FEW_WEIGHTS,
        fuses=False,
    )
    for name, width, megabytes in (("shufflenetv2", 1024, 15), ("mobilenetv3", 576, 11))
]
EFFICIENTNETS = [
    Network(
        f"efficientnet-lite{n}",
        1280,
        partial(_build, "efficientnet_lite", "EfficientNetLite", width=width, depth=depth),
        {"rgb": SIGNED, "flow": FIVE_PIXELS},
        Cost(megabytes * 1e6, 0.3 * share),
        "Apache-2.0",
        inflates=True,
        rename=_efficientnet_name,
        classifier="_fc|cls_head",
        depthwise=True,
        finetuning=FEW_WEIGHTS,
    )
    for n, width, depth, share, megabytes in ((0, 1.0, 1.0, 1.0, 41), (1, 1.0, 1.1, 1.36, 50), (2, 1.1, 1.2, 1.85, 58))
]
# The two with published features first, then smaller ones for one's own videos.
NETWORKS = {entry.name: entry for entry in (RESNET50, BNINCEPTION, RESNET18, *MOBILE, *EFFICIENTNETS)}


def known_network(name: str) -> Network | None:
    """Return the entry of a name in NETWORKS, of another package, or of `timm:NAME`; None for any other name.

    Raises RecipeError where timm is not installed or lacks the network, and where another package's cannot be used.
    """
    if name.startswith(TIMM):
        from lstr.extractors.networks.timm_networks import timm_network

        return timm_network(name.removeprefix(TIMM))
    return NETWORKS.get(name) or _of_another_package(name)


@cache
def _of_another_package(name: str) -> Network | None:
    place = find_others(GROUP, NETWORKS).get(name)
    if place is None:
        return None
    return load_other(
        place,
        "network",
        lambda network: network if isinstance(network, Network) and network.name == name else None,
        "a lstr.extractors.networks.network.Network of that name",
        RecipeError,
    )


def entry_of(name: str, stream: str) -> Network:
    """Return the entry that a recipe file or a command means by a name: a known one, or one of a mmaction2 config.

    Raises MissingPathError where there is no such config, RecipeError where it cannot serve the stream.
    """
    if entry := known_network(name):
        return entry
    from lstr.extractors.networks.mmaction import read_recogniser

    return read_recogniser(name, stream)


def network_of(name: str, config: dict | None = None) -> Network:
    """Return the entry of a network in a recipe, by name and backbone. Raises RecipeError as `known_network`."""
    if config is not None:
        from lstr.extractors.networks.mmaction import described

        return described(name, config)
    if entry := known_network(name):
        return entry
    raise RecipeError(f"The network {name} is unknown here.", f"known are {', '.join(NETWORKS)}.")

"""The feature networks by name. One that is added here is known everywhere: recipes, commands, plans, training."""

from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from lstr.errors import RecipeError
from lstr.extractors.networks.mmaction import registry
from lstr.extractors.networks.network import (
    CAFFE,
    FEW_WEIGHTS,
    FIVE_PIXELS,
    HALVES,
    IMAGENET,
    RESNET50_COST,
    SIGNED,
    TIMM,
    UNDIVIDED,
    Cost,
    Network,
    efficientnet_name,
    torchvision_name,
)

if TYPE_CHECKING:
    from torch import nn


def _build(module: str, name: str, channels: int, **sizes: float) -> "nn.Module":
    """Build one of our networks; its module imports torch, and this table is read by every command."""
    return getattr(import_module(f"lstr.extractors.networks.{module}"), name)(in_channels=channels, **sizes)


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
SHUFFLENETV2 = Network(
    "shufflenetv2",
    1024,
    partial(_build, "mobile", "ShuffleNetV2"),
    {"rgb": IMAGENET, "flow": FIVE_PIXELS},
    Cost(15e6, 0.25),
    "BSD-3-Clause",
    depthwise=True,
    finetuning=FEW_WEIGHTS,
    fuses=False,
)
MOBILENETV3 = Network(
    "mobilenetv3",
    576,
    partial(_build, "mobile", "MobileNetV3Small"),
    {"rgb": IMAGENET, "flow": FIVE_PIXELS},
    Cost(11e6, 0.25),
    "BSD-3-Clause",
    depthwise=True,
    finetuning=FEW_WEIGHTS,
    fuses=False,
)
EFFICIENTNETS = [
    Network(
        f"efficientnet-lite{n}",
        1280,
        partial(_build, "efficientnet_lite", "EfficientNetLite", width=width, depth=depth),
        {"rgb": SIGNED, "flow": FIVE_PIXELS},
        Cost(megabytes * 1e6, 0.3 * share),
        "Apache-2.0",
        inflates=True,
        rename=efficientnet_name,
        classifier="_fc|cls_head",
        depthwise=True,
        finetuning=FEW_WEIGHTS,
    )
    for n, width, depth, share, megabytes in ((0, 1.0, 1.0, 1.0, 41), (1, 1.0, 1.1, 1.36, 50), (2, 1.1, 1.2, 1.85, 58))
]
SMALL = (RESNET18, SHUFFLENETV2, MOBILENETV3, *EFFICIENTNETS)
# The two with published features first, then smaller ones for videos of one's own.
NETWORKS = {entry.name: entry for entry in (RESNET50, BNINCEPTION, *SMALL)}


def known_network(name: str) -> Network | None:
    """The entry of a name in NETWORKS, or of `timm:NAME`; None for another, as a recogniser's config.

    Raises RecipeError where timm is not installed or has no such network.
    """
    if name.startswith(TIMM):
        from lstr.extractors.networks.timm_networks import timm_network

        return timm_network(name.removeprefix(TIMM))
    return NETWORKS.get(name)


def entry_of(name: str, stream: str) -> Network:
    """The entry that a recipe file or a command means by a name: one that is known, or of a mmaction2 config.

    Raises MissingPathError where there is no such config, RecipeError where it cannot serve the stream.
    """
    return known_network(name) or _recogniser().read_recogniser(name, stream)


def network_of(name: str, config: dict | None = None) -> Network:
    """The entry of a network in a recipe, by its name there and its backbone. Raises RecipeError as `known_network`."""
    if config is not None:
        return _recogniser().described(name, config)
    entry = known_network(name)
    if entry is None:
        raise RecipeError(f"{name} is no network that is known here.", f"known are {', '.join(NETWORKS)}.")
    return entry


def _recogniser() -> ModuleType:
    """The module of mmaction2's recognisers; mmaction2 is imported where it is first needed."""
    registry()  # quietly, or with an error of ours
    from lstr.extractors.networks import recogniser

    return recogniser

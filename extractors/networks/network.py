"""The class `Network`, which describes a feature network, and the table of all networks by name.

A network that is added here works everywhere: in recipes, commands, plans and training. A plugin adds a network by an
entry point of the group `lstr.networks` that names a `Network`. Torch is imported only in `build`, because every
command reads the table.
"""

import contextlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from lstr.errors import RecipeError
from lstr.extractors.streams import CHANNELS_OF
from lstr.files.home import find_added, load_added
from lstr.files.names import is_slug

if TYPE_CHECKING:
    from torch import nn

GROUP = "lstr.networks"
CHANNELS = {3: "rgb", 10: "flow"}  # input channels: a frame, or the five flow fields of a chunk
COLOURS = 3
MIDDLE = 127  # of the 0–255 scale: no difference between frames
SMALLEST = 32  # pixels of a side; the networks reduce it by 32, so the last map is one pixel
TIMM = "timm:"  # prefix of timm's networks
PUBLISHED_HEADS = r"fc|last_linear|new_fc|fc_action\w*|cls_head|classifier"
# The rule that converts kernels for RGB frames to kernels for other channels: the mean over the colours, repeated.
MEAN = "mean"


@dataclass(frozen=True)
class Input:
    """The input of a network: mean and standard deviation per channel on the 0–255 scale, and the channel order."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    bgr: bool = False


FIVE_PIXELS = Input((128.0,) * 10, (32.0,) * 10)  # no motion becomes 0, motion by five pixels becomes 1
# Training settings from random weights, by stream, for networks with a tenth of the weights. They need more steps, at a
# quarter of the cost each. The values were chosen on the first fold of UT-Interaction (benchmarks/finetuned.py).
FEW_WEIGHTS = {
    "rgb": {"batch_size": 48, "lr": 2e-3, "epochs": 40},
    "flow": {"batch_size": 48, "lr": 2e-3, "epochs": 60},
}


@dataclass(frozen=True)
class Network:
    """A feature network: images (B, C, H, W) → maps (B, width, h, w), with one pixel if the network pools itself."""

    name: str
    width: int  # number of features per image
    # builds the module for a number of channels, with initial weights. Raises ExtractorError.
    build: Callable[[int], "nn.Module"]
    inputs: Mapping[str, Input]  # by stream
    licence: str  # licence of the published weights
    smallest: int = SMALLEST  # smallest side of an image, in pixels
    multiple: int = 1  # sides must be a multiple of this, in pixels
    # whether a file of RGB weights may initialise a flow network, by the rule MEAN. It may not if weights for flow are
    # published too, because such a file is then an error.
    inflates: bool = False
    rename: Callable[[str], str] = str  # maps the name of a tensor in a published file to our name
    classifier: str = PUBLISHED_HEADS  # pattern of the classifier's modules in a published file
    # prefixes of tensor names in files that are trained here, with the published prefixes
    written_as: tuple[tuple[str, str], ...] = ()
    last_norm: str | None = None  # suffix of the name of the last batch norm of a residual block
    # whether it has depthwise convolutions, which bfloat16 slows down on a CPU: 5.2 ms per image instead of 3.0 ms.
    # `lstr finetune` trains such a network with FEW_WEIGHTS.
    depthwise: bool = False
    # Whether each batch norm that follows a convolution is fused into it. It is False for networks that have stored
    # features from before: these would change by rounding, and int8 features by whole steps.
    fuses: bool = True
    # backbone in mmaction2's config format, for a network that was built from a config
    config: dict | None = field(default=None, hash=False)
    # memory in bytes during training, and time per image relative to the other networks; the defaults are a ResNet-50's
    training_bytes: float = 280e6
    training_cost: float = 2.0

    def input_of(self, stream: str) -> Input:
        """Return the input scale for a stream.

        Three grey images are scaled like an RGB frame, differences are centred in the middle of the scale, and the
        scale of two frames is the scale of one, repeated.
        """
        if stream in self.inputs:
            return self.inputs[stream]
        frame = self.inputs["rgb"]
        if stream == "difference":
            return Input((float(MIDDLE),) * COLOURS, frame.std)
        has_two_frames = CHANNELS_OF[stream] == 2 * COLOURS
        return Input(frame.mean * 2, frame.std * 2, frame.bgr) if has_two_frames else frame

    def fits(self, side: int) -> bool:
        """Return whether it accepts square images with this side in pixels."""
        return side >= self.smallest and side % self.multiple == 0

    @property
    def sides(self) -> str:
        """The requirement of `fits` as text, for messages."""
        return f"a multiple of {self.multiple}" if self.multiple > 1 else f"{self.smallest} or more"


def is_network_name(name: object) -> bool:
    """Return whether a recipe may use this name for a network: it must be safe in a path, after an optional `timm:`."""
    return isinstance(name, str) and is_slug(name.removeprefix(TIMM))


def torchvision_name(name: str) -> str:
    """Return mmaction2's name of a ResNet tensor: layer1.0.conv1.weight → layer1.0.conv1.conv.weight."""
    name = re.sub(r"(^|\.)conv(\d)\.(weight|bias)$", r"\1conv\2.conv.\3", name)
    name = re.sub(r"(^|\.)bn(\d)\.", r"\1conv\2.bn.", name)
    return name.replace("downsample.0.", "downsample.conv.").replace("downsample.1.", "downsample.bn.")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings and logs of other packages, for example of torch's exporter."""
    disabled = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(disabled)


# The inputs of the two published networks follow the authors' code of their later work (Stochastic Backpropagation,
# src/lstr/models/backbones/backbones.py).
IMAGENET = Input((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
HALVES = Input((127.5,) * 10, (127.5,) * 10)  # mean 0.5 and deviation 0.5 on the 0–1 scale
SIGNED = Input((127.0,) * 3, (128.0,) * 3)  # from the EfficientNet-Lite authors' builder
CAFFE = Input((104.0, 117.0, 128.0), (1.0,) * 3, bgr=True)
UNDIVIDED = Input((128.0,) * 10, (1.0,) * 10)


def _build(name: str, channels: int, module: str = "backbones", **options: Any) -> "nn.Module":
    return getattr(import_module(f"lstr.extractors.networks.{module}"), name)(in_channels=channels, **options)


def efficientnet_name(name: str) -> str:
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
    partial(_build, "ResNet", depth=50),
    {"rgb": IMAGENET, "flow": HALVES},  # as rgb_kinetics, rgb_anet and mmaction2's configs; as flow_anet
    "Apache-2.0",
    rename=torchvision_name,
    last_norm="conv3.bn",
)
BNINCEPTION = Network(
    "bninception",
    1024,
    partial(_build, "BNInception"),
    {"rgb": CAFFE, "flow": UNDIVIDED},  # as rgb_kinetics_bninception, flow_kinetics_bninception
    "BSD-2-Clause",
    multiple=32,  # strides round down but pools round up, so its branches have equal sizes only then
    written_as=(("backbone.", "module.base_model."), ("cls_head.fc_cls.", "module.new_fc.")),  # tsn-pytorch
    training_bytes=130e6,
    training_cost=1.0,
)
RESNET18 = Network(
    "resnet18",
    512,
    partial(_build, "ResNet", depth=18),
    {"rgb": IMAGENET, "flow": FIVE_PIXELS},
    "BSD-3-Clause",
    rename=torchvision_name,
    last_norm="conv2.bn",
    training_bytes=134e6,
    training_cost=0.9,
)
# torchvision's networks for phones.
MOBILE = [
    Network(
        name,
        width,
        partial(_build, "phone_network", model=name),
        {"rgb": IMAGENET, "flow": FIVE_PIXELS},
        "BSD-3-Clause",
        depthwise=True,
        fuses=False,
        training_bytes=megabytes * 1e6,
        training_cost=0.25,
    )
    for name, width, megabytes in (("shufflenetv2", 1024, 15), ("mobilenetv3", 576, 11))
]
EFFICIENTNETS = [
    Network(
        f"efficientnet-lite{n}",
        1280,
        partial(_build, "EfficientNetLite", width=width, depth=depth),
        {"rgb": SIGNED, "flow": FIVE_PIXELS},
        "Apache-2.0",
        inflates=True,
        rename=efficientnet_name,
        classifier="_fc|cls_head",
        depthwise=True,
        training_bytes=megabytes * 1e6,
        training_cost=0.3 * share,
    )
    for n, width, depth, share, megabytes in ((0, 1.0, 1.0, 1.0, 41), (1, 1.0, 1.1, 1.36, 50), (2, 1.1, 1.2, 1.85, 58))
]
# Its input is from -1 to 1, by a factor that the published graph stores in half precision.
MOVENET = Network(
    "movenet-multipose",
    326,
    partial(_build, "MoveNet", module="movenet"),
    {"rgb": Input((127.501946,) * 3, (127.501946,) * 3)},
    "Apache-2.0",
    multiple=32,
    depthwise=True,
)
# The two networks with published features first, then smaller ones for custom videos.
NETWORKS = {entry.name: entry for entry in (RESNET50, BNINCEPTION, RESNET18, *MOBILE, *EFFICIENTNETS, MOVENET)}


def find_network(name: str) -> Network | None:
    """Return the network with a name from NETWORKS, a plugin or `timm:NAME`; None for an unknown name.

    Raises RecipeError if timm is not installed or lacks the network, or if a plugin's network cannot be used.
    """
    if name.startswith(TIMM):  # timm_networks imports torch and this module
        return import_module("lstr.extractors.networks.timm_networks").timm_network(name.removeprefix(TIMM))
    if name in NETWORKS or (place := find_added(GROUP, NETWORKS).get(name)) is None:
        return NETWORKS.get(name)
    return load_added(
        place,
        "network",
        lambda network: network if isinstance(network, Network) and network.name == name else None,
        "a lstr.extractors.networks.network.Network of that name",
        RecipeError,
    )


def get_network(name: str) -> Network:
    """Return the network with a name. Raises RecipeError as `find_network`, and for an unknown name."""
    if entry := find_network(name):
        return entry
    hint = f"choose one of {', '.join(NETWORKS)}, or timm:NAME; a config of mmaction2 is named by `--set` alone."
    raise RecipeError(f"Unknown network: {name}.", hint)

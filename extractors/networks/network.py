"""Feature networks: what a `Network` is, and the table of them by name.

A network that is added here is known everywhere: recipes, commands, plans, training. Another package adds its own by an
entry point of the group `lstr.networks`, which names a `Network`. `build` imports torch when it is called, because
every command reads the table.
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
from lstr.files.home import find_added, load_added
from lstr.files.names import is_slug

if TYPE_CHECKING:
    from torch import nn

GROUP = "lstr.networks"
CHANNELS = {3: "rgb", 10: "flow"}  # that a stem takes: a frame, or the five flow fields of a chunk
COLOURS = 3
MIDDLE = 127  # of the 0–255 scale: no difference
SMALLEST = 32  # pixels of an image, whose last map is one pixel then
TIMM = "timm:"  # prefix of the name of a network of timm
PUBLISHED_HEADS = r"fc|last_linear|new_fc|fc_action\w*|cls_head|classifier"
# The one rule by which kernels for frames become kernels for other channels: their mean over the colours, repeated.
MEAN = "mean"


@dataclass(frozen=True)
class Input:
    """How a network is given images: mean and deviation per channel on the 0–255 scale, and whether blue is first."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    bgr: bool = False


FIVE_PIXELS = Input((128.0,) * 10, (32.0,) * 10)  # 0 where nothing moves, 1 where something moves by five
# Settings for networks with a tenth of the weights, which need more steps, each of which costs a quarter; found on
# the first fold of UT-Interaction (benchmarks/finetuned.py).
FEW_WEIGHTS = {
    "rgb": {"batch_size": 48, "lr": 2e-3, "epochs": 40},
    "flow": {"batch_size": 48, "lr": 2e-3, "epochs": 60},
}


@dataclass(frozen=True)
class Network:
    """One feature network: images (B, C, H, W) → maps (B, width, h, w), of one pixel where it makes no maps."""

    name: str
    # features of an image
    width: int
    # builds the module for a number of channels, with its own first weights. Raises ExtractorError.
    build: Callable[[int], "nn.Module"]
    # by stream
    inputs: Mapping[str, Input]
    # the licence of the weights that its authors published
    licence: str
    # pixels of an image's side
    smallest: int = SMALLEST
    # pixels that a side is a multiple of
    multiple: int = 1
    # whether features of flow may come from a file of RGB weights, by the rule MEAN; where both kinds are published,
    # such a file is an error
    inflates: bool = False
    # returns the name here of a tensor in a published file
    rename: Callable[[str], str] = str
    # pattern of the modules in a published file that are its classifier
    classifier: str = PUBLISHED_HEADS
    # prefixes of names in a file that is trained here, and in the published one
    written_as: tuple[tuple[str, str], ...] = ()
    # ending of the name of the batch norm that ends a residual block
    last_norm: str | None = None
    # whether it convolves channel by channel, which a processor's bfloat16 makes slower: 5.2 ms an image for 3.0
    depthwise: bool = False
    # settings of `lstr finetune` from random weights that differ from the usual ones, by stream
    finetuning: Mapping[str, Mapping[str, float]] = field(default_factory=dict, hash=False)
    # whether batch norms go into convolutions wherever they follow one. They stay in networks whose features were made
    # without: features would differ by rounding, those in int8 by steps.
    fuses: bool = True
    # backbone in the language of mmaction2's configs, of a network that was built from a config
    config: dict | None = field(default=None, hash=False)
    # bytes with its state while it trains, and the time for an image relative to the other networks; a ResNet-50's
    training_bytes: float = 280e6
    training_cost: float = 2.0

    def input_of(self, stream: str) -> Input:
        """Return its input for a stream.

        Three images without colour count as a frame, differences lie about the middle of the scale, two frames are
        twice one.
        """
        if stream in self.inputs:
            return self.inputs[stream]
        frame = self.inputs["rgb"]
        if stream == "difference":
            return Input((float(MIDDLE),) * COLOURS, frame.std)
        return Input(frame.mean * 2, frame.std * 2, frame.bgr) if stream == "change" else frame

    def fits(self, side: int) -> bool:
        """Return whether it takes square images of this many pixels."""
        return side >= self.smallest and side % self.multiple == 0

    @property
    def sides(self) -> str:
        """What `fits` demands, for messages."""
        return f"a multiple of {self.multiple}" if self.multiple > 1 else f"{self.smallest} or more"


def is_network_name(name: object) -> bool:
    """Return whether a recipe may call a network so: a part of a path, after `timm:` or not."""
    return isinstance(name, str) and is_slug(name.removeprefix(TIMM))


def torchvision_name(name: str) -> str:
    """Return mmaction2's name of a ResNet's tensor: layer1.0.conv1.weight → layer1.0.conv1.conv.weight."""
    name = re.sub(r"(^|\.)conv(\d)\.(weight|bias)$", r"\1conv\2.conv.\3", name)
    name = re.sub(r"(^|\.)bn(\d)\.", r"\1conv\2.bn.", name)
    return name.replace("downsample.0.", "downsample.conv.").replace("downsample.1.", "downsample.bn.")


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Silence warnings and logs of other packages, such as those of torch's exporter."""
    disabled = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)


# Those of the two published networks are as the authors of LSTR have them in the code of their later work (Stochastic
# Backpropagation, src/lstr/models/backbones/backbones.py; facts, section 0).
IMAGENET = Input((123.675, 116.28, 103.53), (58.395, 57.12, 57.375))
HALVES = Input((127.5,) * 10, (127.5,) * 10)  # .5 and .5 of the 0–1 scale
SIGNED = Input((127.0,) * 3, (128.0,) * 3)  # EfficientNet-Lite's, as its authors' builder has it
CAFFE = Input((104.0, 117.0, 128.0), (1.0,) * 3, bgr=True)
UNDIVIDED = Input((128.0,) * 10, (1.0,) * 10)


def _build(name: str, channels: int, **options: Any) -> "nn.Module":
    return getattr(import_module("lstr.extractors.networks.backbones"), name)(in_channels=channels, **options)


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
    partial(_build, "ResNet", depth=50),
    {"rgb": IMAGENET, "flow": HALVES},  # of rgb_kinetics, rgb_anet and mmaction2's configs; of flow_anet
    "Apache-2.0",
    rename=torchvision_name,
    last_norm="conv3.bn",
)
BNINCEPTION = Network(
    "bninception",
    1024,
    partial(_build, "BNInception"),
    {"rgb": CAFFE, "flow": UNDIVIDED},  # of rgb_kinetics_bninception, flow_kinetics_bninception
    "BSD-2-Clause",
    multiple=32,  # strides round down and pools round up, so its branches meet only there (facts, section 2)
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
# Networks made for phones, torchvision's.
MOBILE = [
    Network(
        name,
        width,
        partial(_build, "phone_network", model=name),
        {"rgb": IMAGENET, "flow": FIVE_PIXELS},
        "BSD-3-Clause",
        depthwise=True,
        finetuning=FEW_WEIGHTS,
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
        rename=_efficientnet_name,
        classifier="_fc|cls_head",
        depthwise=True,
        finetuning=FEW_WEIGHTS,
        training_bytes=megabytes * 1e6,
        training_cost=0.3 * share,
    )
    for n, width, depth, share, megabytes in ((0, 1.0, 1.0, 1.0, 41), (1, 1.0, 1.1, 1.36, 50), (2, 1.1, 1.2, 1.85, 58))
]
# The two with published features first, then smaller ones for one's own videos.
NETWORKS = {entry.name: entry for entry in (RESNET50, BNINCEPTION, RESNET18, *MOBILE, *EFFICIENTNETS)}


def find_network(name: str) -> Network | None:
    """Return the entry of a name in NETWORKS, of another package, or of `timm:NAME`; None for any other name.

    Raises RecipeError where timm is not installed or lacks the network, and where another package's cannot be used.
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
    """Return the entry of a network by its name. Raises RecipeError as `find_network`, and for an unknown name."""
    if entry := find_network(name):
        return entry
    hint = f"choose one of {', '.join(NETWORKS)}, or timm:NAME; a config of mmaction2 is named by `--set` alone."
    raise RecipeError(f"Unknown network: {name}.", hint)

"""A feature network: everything that is true of it, in one value.

`build` imports torch when it is called, because every command reads the table of networks.
"""

import contextlib
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lstr.files.names import is_slug

if TYPE_CHECKING:
    from torch import nn

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


@dataclass(frozen=True)
class Cost:
    """What a network costs, for plans."""

    bytes: float
    """With its state while it trains."""
    training: float
    """For an image, relative to the other networks."""


FIVE_PIXELS = Input((128.0,) * 10, (32.0,) * 10)  # 0 where nothing moves, 1 where something moves by five
# The cost of other networks follows from their multiply-adds and weights.
RESNET50_COST = Cost(280e6, 2.0)
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
    width: int
    """Features of an image."""
    build: Callable[[int], "nn.Module"]
    """Builds the module for a number of channels, with its own first weights. Raises ExtractorError."""
    inputs: Mapping[str, Input]
    """By stream."""
    cost: Cost
    licence: str
    """The licence of the weights that its authors published."""
    smallest: int = SMALLEST
    """Pixels of an image's side."""
    multiple: int = 1
    """Pixels that a side is a multiple of."""
    segments: int = 1
    """Frames of a chunk that it sees together."""
    config: dict | None = field(default=None, hash=False)
    """Its backbone in mmaction2's config language, where the recipe needs that to build it."""
    inflates: bool = False
    """Whether features of flow may come from a file of RGB weights, by the rule MEAN; where both kinds are published,
    such a file is an error."""
    rename: Callable[[str], str] = str
    """Returns the name here of a tensor in a published file."""
    classifier: str = PUBLISHED_HEADS
    """Pattern of the modules in a published file that are its classifier."""
    written_as: tuple[tuple[str, str], ...] = ()
    """Prefixes of names in a file that is trained here, and in the published one."""
    last_norm: str | None = None
    """Ending of the name of the batch norm that ends a residual block."""
    depthwise: bool = False
    """Whether it convolves channel by channel, which a processor's bfloat16 makes slower: 5.2 ms an image for 3.0."""
    finetuning: Mapping[str, Mapping[str, float]] = field(default_factory=dict, hash=False)
    """Settings of `lstr finetune` from random weights that differ from the usual ones, by stream."""
    fuses: bool = True
    """Whether batch norms go into convolutions wherever they follow one. They stay in networks whose features were made
    without: features would differ by rounding, those in int8 by steps."""

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
    """Silence warnings and logs of other packages, such as mmcv-lite's about operators that TSN does not use."""
    disabled = logging.root.manager.disable
    logging.disable(logging.INFO)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)

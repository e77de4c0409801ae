"""The choices of a recipe, before it has weights: those of the published features, and files of one's own.

`kinetics` is what the published features of LSTR are made with (3,072 numbers per chunk), `activitynet` their variant
with a ResNet-50 on both streams (4,096). Each comes as published, and fast. The others are for networks of one's own,
which `lstr learn` and `lstr finetune` train, many times faster than real time on two cores.
"""

import json
import math
import os
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from lstr.errors import MissingPathError, RecipeError
from lstr.extractors.flow.workers import ALGORITHMS
from lstr.extractors.networks.manifest import published_as
from lstr.extractors.networks.network import find_network, get_network
from lstr.extractors.recipe import RGB_FRAME, Crops, Recipe, brief
from lstr.extractors.streams import STREAMS, OfStreams
from lstr.extractors.video.frames import CHUNK
from lstr.files.content import MOST_TEXT, Text, built, read_text

LITE, IMAGENET = "efficientnet-lite0", "imagenet"
FAST = "fast"  # a precision: bf16 where the device gains by it, else float32
WIDEST = 2.5  # width by height that a size follows, and height by width


@dataclass(frozen=True)
class StreamPreset:
    """One stream's network."""

    network: Text
    """A name in NETWORKS, `timm:NAME`, another package's name, or the path of a config of mmaction2, which is run."""
    weights: Text | None = None
    """A file, or the name or recipe of a published one; None for random weights, or those of the command line."""
    crops: Crops = 1
    """Features averaged over 1 (centre), 2 (and its mirror image) or 10 (corners, centre, their mirror images)."""
    mean: tuple[Annotated[float, Meta(ge=-1e6, le=1e6)], ...] | None = None
    """By channel, on the 0–255 scale; None for the network's own. So `std`."""
    std: tuple[Annotated[float, Meta(gt=0, le=1e6)], ...] | None = None
    size: tuple[Annotated[int, Meta(ge=32, le=4096)], Annotated[int, Meta(ge=32, le=4096)]] | None = None
    """Height and width of what the network sees of the whole picture; None for the square of `crop` pixels."""
    margin: Annotated[float, Meta(ge=1, le=4)] = 1.0
    """How many times larger than `size` the picture is made, whose middle is seen."""
    follows: bool = False
    """Whether `size` is that for pictures of 4:3, and others have one as large that is shaped as they are."""


@dataclass(frozen=True)
class Preset(OfStreams[StreamPreset]):
    """The part of a recipe that is a choice. The defaults are the authors' (LSTR issues 2 and 5; facts, section 0)."""

    rgb: StreamPreset | None
    flow: StreamPreset | None
    flow_algorithm: Annotated[str, Meta(pattern=rf"^({'|'.join(ALGORITHMS)})\Z")] = "tvl1"
    """`tvl1` as published (denseflow -a=tvl1 -b=20), or `dis`."""
    precision: Annotated[str, Meta(pattern=r"^(float32|bf16|fast)\Z")] = "float32"
    rgb_frame: Annotated[int, Meta(ge=0, lt=CHUNK)] = RGB_FRAME
    long_side: Annotated[int, Meta(ge=64, le=4096)] = 320
    """320 × 180 for THUMOS'14."""
    short_side: Annotated[int, Meta(ge=32, le=4096)] = 256
    crop: Annotated[int, Meta(ge=32, le=4096)] = 224
    grey: StreamPreset | None = None
    difference: StreamPreset | None = None
    change: StreamPreset | None = None

    def size_of(self, stream: str) -> tuple[int, int]:
        """Height and width of what a stream's network sees, in pixels."""
        return self.parts[stream].size or (self.crop, self.crop)

    @property
    def algorithm(self) -> str | None:
        """The algorithm of optical flow; None without flow."""
        return self.flow_algorithm if self.flow else None

    def seeing(self, shape: float | None) -> "Preset":
        """Return it for videos of this shape, width by height; None leaves it as it is.

        A size that follows keeps its number of pixels in that shape, where the network takes such sides.
        """
        if shape is None:
            return self
        parts: dict[str, StreamPreset] = {}
        for stream, part in self.parts.items():
            if part.follows and part.size:
                pixels, entry = math.prod(part.size), find_network(part.network)
                height = round(math.sqrt(pixels / min(max(shape, 1 / WIDEST), WIDEST)))
                size = height, round(pixels / height)
                fits = entry is None or all(map(entry.fits, size))
                parts[stream] = replace(part, size=size if fits else part.size)
        return self.having(parts)

    def seeing_as(self, recipe: Recipe) -> "Preset":
        """It with the sizes of a recipe where they follow."""
        sizes = {stream: part.size for stream, part in recipe.parts.items() if part.size}
        parts = {stream: part for stream, part in self.parts.items() if part.follows and stream in sizes}
        return self.having({stream: replace(part, size=sizes[stream]) for stream, part in parts.items()})

    def narrowed(self, streams: Collection[str]) -> "Preset":
        """The part of it that makes the features of some streams."""
        preset = self.having({stream: None for stream in self.streams if stream not in streams})
        return preset if preset.rgb else replace(preset, rgb_frame=RGB_FRAME)


def shape_of(sizes: Iterable[tuple[int, int]]) -> float | None:
    """The shape of most videos, width by height, by the (width, height) of each; None of none."""
    shapes = sorted(width / height for width, height in sizes)
    return shapes[len(shapes) // 2] if shapes else None


# Ten crops of flow, "use the multiple crops" (LSTR issue 5), ResNet-50 on the centre of the central frame
KINETICS = Preset(StreamPreset("resnet50"), StreamPreset("bninception", crops=10))
# Found by measurement, for the most cameras: cheap flow costs far more mAP than none
SMALLEST = Preset(
    None,
    StreamPreset("shufflenetv2", crops=2),
    flow_algorithm="difference",
    long_side=160,
    short_side=64,
    crop=64,
)
# Three frames without colour as the channels of one picture, all of it: how things move, in one pass of a small network
# that ImageNet has taught to see
_WHOLE_FRAME = StreamPreset(LITE, IMAGENET, crops=2, size=(112, 149), margin=1.15, follows=True)
GREY = Preset(None, None, long_side=256, grey=_WHOLE_FRAME)
# the differences of such frames in their place
DIFFERENCE = replace(GREY, grey=None, difference=GREY.grey)
# and how the maps of two frames differ, which needs no training
MOTION = replace(DIFFERENCE, change=StreamPreset(LITE, IMAGENET, size=(160, 213), follows=True))
# what moves, and how it looks: the default of `lstr learn`
PRETRAINED = replace(DIFFERENCE, grey=GREY.grey)
# The class token of the fourth of six frames at 224 pixels, as CMeRT's features of DINOv2 are (its issue 3), by the
# smallest of the networks
DINOV2 = Preset(StreamPreset("timm:vit_small_patch14_dinov2.lvd142m"), None, long_side=512)
# ResNet-50 twice (LSTR issue 14, README). The authors' later code takes the centre crop of its flow alone: that is
# `activitynet-fast` with --precision float32
ACTIVITYNET = replace(KINETICS, flow=StreamPreset("resnet50", crops=10))


def _fast(preset: Preset) -> Preset:
    """One crop per stream, and bf16 where it is faster."""
    return replace(preset, flow=preset.flow and replace(preset.flow, crops=1), precision=FAST)


# By what `--recipe` takes; `faithful` and `fast` are the short names of the first two, and `live` says what suits
# cameras: of what two cores do with less than .05 processor seconds for a second of video, `difference` learns most.
PRESETS = {
    "kinetics": KINETICS,
    "kinetics-fast": _fast(KINETICS),
    "activitynet": ACTIVITYNET,
    "activitynet-fast": _fast(ACTIVITYNET),
    "faithful": KINETICS,
    "fast": _fast(KINETICS),
    "live": DIFFERENCE,
    "smallest": SMALLEST,
    "grey": GREY,
    "difference": DIFFERENCE,
    "motion": MOTION,
    "pretrained": PRETRAINED,
    "dinov2": DINOV2,
}

ENTRIES = ("based_on", *(f.name for f in fields(Preset)))
STREAM_ENTRIES = tuple(f.name for f in fields(StreamPreset))


def preset_of(recipe: Recipe) -> Preset:
    """The choices that a recipe was made by, without its weights."""
    kept = ("network", "crops", "mean", "std", "size", "margin")
    parts = {n: StreamPreset(**{name: getattr(part, name) for name in kept}) for n, part in recipe.parts.items()}
    names = (field.name for field in fields(Preset) if field.name not in (*STREAMS, "flow_algorithm"))
    shared = {name: getattr(recipe, name) for name in names}
    whole = Preset(None, None, recipe.algorithm or KINETICS.flow_algorithm, **shared)
    return whole.having(parts)


def read_preset(path: str | Path) -> Preset:
    """A recipe file of one's own: a JSON object of what differs from the recipe that `based_on` names (`kinetics`).

    Paths of weights in it are relative to its folder. Raises MissingPathError, and RecipeError that names the entry.
    """
    path = Path(path)
    try:
        values = json.loads(read_text(path, most=MOST_TEXT))
    except OSError as error:
        raise MissingPathError(f"{path} cannot be read ({error.strerror}).", "check the path of the recipe.") from error
    except (ValueError, RecursionError) as error:
        raise RecipeError(f"{path} is not JSON ({error}).", "see the documentation, page Recipes.") from error
    if not isinstance(values, dict):
        raise RecipeError(f"{path} is not a JSON object.", f"write entries among: {', '.join(ENTRIES)}.")
    named = values.pop("based_on", "kinetics")
    if not isinstance(named, str) or named not in PRESETS:
        raise RecipeError(f"{path}: based_on is {brief(named)}.", f"choose one of: {', '.join(PRESETS)}.")
    base = PRESETS[named]
    for stream in STREAMS:
        if isinstance(part := values.get(stream), dict):
            weights, given = part.get("weights"), base.parts.get(stream)
            if isinstance(weights, str) and os.path.exists(path.parent / weights):
                if not published_as(weights, path.parent):
                    part["weights"] = str(path.parent / weights)
            if given and "size" in part:
                given = replace(given, follows=False)
            if given and part.get("network", given.network) != given.network:
                given = replace(given, mean=None, std=None)  # the scale of another network's input is its own
            values[stream] = (asdict(given) if given else {}) | part
    try:
        preset = built(Preset, asdict(base) | values)
    except ValueError as error:
        known = f"valid entries are {', '.join(ENTRIES)}; for a stream {', '.join(STREAM_ENTRIES)}."
        raise RecipeError(f"{path}: {error}.", known) from error
    if not preset.streams:
        raise RecipeError(f"{path}: rgb and flow are both null.", f"keep a stream: {', '.join(STREAMS)}.")
    if preset.crop > preset.short_side:
        raise RecipeError(f"{path}: crop is {preset.crop}.", "write a number up to short_side.")
    for stream, part in preset.parts.items():
        try:
            entry = get_network(part.network)
        except RecipeError as error:
            raise RecipeError(f"{path}: {stream}.network: {error}", error.hint) from error
        if not all(map(entry.fits, preset.size_of(stream))):
            entry_name = f"{stream}.size is {list(part.size)}" if part.size else f"crop is {preset.crop}"
            raise RecipeError(f"{path}: {entry_name}.", f"write {entry.sides} for {entry.name}.")
    return preset

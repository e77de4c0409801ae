"""Presets: the settings of a recipe without weights, built in or read from a recipe file.

`kinetics` made the published features of LSTR (3,072 values per chunk); `activitynet` is their variant with a ResNet-50
on both streams (4,096). Each has a published and a fast version. The other presets are for networks that `lstr learn`
and `lstr finetune` train; they compute features many times faster than real time on two cores.
"""

import json
import math
import os
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Annotated

from msgspec import Meta

from lstr.errors import MissingPathError, RecipeError, brief
from lstr.extractors.flow.workers import ALGORITHMS
from lstr.extractors.networks.manifest import published_as
from lstr.extractors.networks.network import MOVENET, find_network, get_network
from lstr.extractors.recipe import RGB_FRAME, Crops, Recipe
from lstr.extractors.streams import STREAMS, OfStreams
from lstr.extractors.video.frames import CHUNK
from lstr.files.content import MOST_TEXT, Text, built, read_text

LITE, IMAGENET = "efficientnet-lite0", "imagenet"
FAST = "fast"  # a precision: bf16 where the device computes faster in it, else float32
WIDEST = 2.5  # largest aspect ratio of `StreamPreset.follows`, upright or wide


@dataclass(frozen=True)
class StreamPreset:
    """The network of one stream."""

    network: Text
    """A name in NETWORKS, `timm:NAME`, a plugin's name, or the path of an mmaction2 config, which is executed."""
    weights: Text | None = None
    """A weights file, or the name or recipe of a published one; None for random weights or `--weights`."""
    crops: Crops = 1
    """Number of crops to average: 1 (centre), 2 (with its mirror image) or 10 (corners, centre, mirror images)."""
    mean: tuple[Annotated[float, Meta(ge=-1e6, le=1e6)], ...] | None = None
    """Mean per channel on the 0–255 scale; None for the network's default. The same holds for `std`."""
    std: tuple[Annotated[float, Meta(gt=0, le=1e6)], ...] | None = None
    size: tuple[Annotated[int, Meta(ge=32, le=4096)], Annotated[int, Meta(ge=32, le=4096)]] | None = None
    """Height and width of the network's input, from the whole frame; None for a square of `crop` pixels."""
    margin: Annotated[float, Meta(ge=1, le=4)] = 1.0
    """Resize the frame to this many times `size`, then take the centre."""
    follows: bool = False
    """Whether `size` is for 4:3 frames and other frames use their aspect ratio with the same number of pixels."""


@dataclass(frozen=True)
class Preset(OfStreams[StreamPreset]):
    """The settings of a recipe that a user chooses. The defaults are the authors' (LSTR issues 2 and 5)."""

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
    pose: StreamPreset | None = None

    @property
    def algorithm(self) -> str | None:
        """The algorithm of optical flow; None without flow."""
        return self.flow_algorithm if self.flow else None

    def seeing(self, shape: float | None) -> "Preset":
        """Return the preset for videos of an aspect ratio (width by height); unchanged for None.

        Sizes of streams with `follows` keep their number of pixels, rounded to sides that the network accepts.
        """
        if shape is None:
            return self
        parts: dict[str, StreamPreset] = {}
        for stream, part in self.parts.items():
            if part.follows and part.size:
                pixels, entry = math.prod(part.size), find_network(part.network)
                multiple, ratio = entry.multiple if entry else 1, min(max(shape, 1 / WIDEST), WIDEST)
                height = round(math.sqrt(pixels / ratio) / multiple) * multiple
                # with a coarse height, the ratio matters more than the number of pixels
                width = pixels / height if multiple == 1 else height * ratio
                size = height, round(width / multiple) * multiple
                fits = entry is None or all(map(entry.fits, size))
                parts[stream] = replace(part, size=size if fits else part.size)
        return self.having(parts)

    def narrowed(self, streams: Collection[str]) -> "Preset":
        """Return the preset with only these streams."""
        preset = self.having({stream: None for stream in self.streams if stream not in streams})
        return preset if preset.rgb else replace(preset, rgb_frame=RGB_FRAME)


def shape_of(sizes: Iterable[tuple[int, int]]) -> float | None:
    """Return the most common aspect ratio (width by height) of these (width, height) pairs; None without any."""
    shapes = sorted(width / height for width, height in sizes)
    return shapes[len(shapes) // 2] if shapes else None


# As published: ten crops of flow ("use the multiple crops", LSTR issue 5), and ResNet-50 on the centre of one frame.
KINETICS = Preset(StreamPreset("resnet50"), StreamPreset("bninception", crops=10))
# Chosen by measurement, for the largest number of cameras: a cheap flow loses far more mAP than no flow.
SMALLEST = Preset(
    None, StreamPreset("shufflenetv2", crops=2), flow_algorithm="difference", long_side=160, short_side=64, crop=64
)
# Three grey frames as the channels of one image: motion in one pass of a small network that was pretrained on ImageNet.
_WHOLE_FRAME = StreamPreset(LITE, IMAGENET, crops=2, size=(112, 149), margin=1.15, follows=True)
# In bf16 detection took 0.65 of the processor time of float32 (Zen 5), and mAP and F1 did not fall on either set.
GREY = Preset(None, None, precision=FAST, long_side=256, grey=_WHOLE_FRAME)
# The differences of such frames instead of the frames.
DIFFERENCE = replace(GREY, grey=None, difference=GREY.grey)
# In addition the difference of the feature maps of two frames, which needs no training.
MOTION = replace(DIFFERENCE, change=StreamPreset(LITE, IMAGENET, size=(160, 213), follows=True))
# Motion and appearance: the default of `lstr learn`.
PRETRAINED = replace(DIFFERENCE, grey=GREY.grey)
# The poses of two people, which need no training. In bf16 half of the keypoints move by at most .001 of the image's
# side, one in a hundred by .014, and mAP after one recording is equal (.786 and .784).
_POSE = StreamPreset(MOVENET.name, "pose", size=(192, 256), follows=True)
PEOPLE = Preset(None, None, precision=FAST, long_side=256, pose=_POSE)
PRETRAINED_PEOPLE = replace(PRETRAINED, pose=PEOPLE.pose)
# The class token of the fourth of six frames at 224 pixels, as in CMeRT's features of DINOv2 (its issue 3), with the
# smallest of these networks.
DINOV2 = Preset(StreamPreset("timm:vit_small_patch14_dinov2.lvd142m"), None, long_side=512)
# ResNet-50 twice (LSTR issue 14, README). The authors' later code takes the centre crop of its flow alone: that is
# `activitynet-fast` with --precision float32
ACTIVITYNET = replace(KINETICS, flow=StreamPreset("resnet50", crops=10))


def _fast(preset: Preset) -> Preset:
    """Return a preset with one crop per stream, and bf16 where it is faster."""
    return replace(preset, flow=preset.flow and replace(preset.flow, crops=1), precision=FAST)


# Presets by their `--recipe` names. `faithful` and `fast` are short names of the first two. `live` is for cameras:
# among presets below 0.05 CPU seconds per second of video on two cores, `difference` had the highest mAP.
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
    "people": PEOPLE,
    "pretrained-people": PRETRAINED_PEOPLE,
    "dinov2": DINOV2,
}

ENTRIES = ("based_on", *(f.name for f in fields(Preset)))
STREAM_ENTRIES = tuple(f.name for f in fields(StreamPreset))


def preset_of(recipe: Recipe) -> Preset:
    """Return the settings that a recipe was made with, without its weights."""
    kept = ("network", "crops", "mean", "std", "size", "margin")
    parts = {n: StreamPreset(**{name: getattr(part, name) for name in kept}) for n, part in recipe.parts.items()}
    names = (field.name for field in fields(Preset) if field.name not in (*STREAMS, "flow_algorithm"))
    shared = {name: getattr(recipe, name) for name in names}
    whole = Preset(None, None, recipe.algorithm or KINETICS.flow_algorithm, **shared)
    return whole.having(parts)


def read_preset(path: str | Path) -> Preset:
    """Read a recipe file: a JSON object of the entries that differ from the preset `based_on` (default `kinetics`).

    Paths of weights are relative to the file's folder.

    Raises:
        MissingPathError: The file does not exist.
        RecipeError: An entry is not valid; the message names it.
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
                given = replace(given, mean=None, std=None)  # each network has its own input scale
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
        if not all(map(entry.fits, part.size or [preset.crop])):
            entry_name = f"{stream}.size is {list(part.size)}" if part.size else f"crop is {preset.crop}"
            raise RecipeError(f"{path}: {entry_name}.", f"write {entry.sides} for {entry.name}.")
    return preset

"""Recipes: a frozen record of how features are computed. The hash of its canonical JSON is the recipe id."""

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import import_module
from typing import Annotated, Any, Literal

from msgspec import Meta

from lstr.errors import RecipeError, brief
from lstr.extractors.flow.workers import ALGORITHM_OF, ALGORITHMS, BOUND
from lstr.extractors.networks.network import NETWORKS, TIMM, Network, find_network, get_network, is_network_name
from lstr.extractors.streams import MODEL_STREAMS, PICTURES, STREAMS, OfStreams, model_stream
from lstr.extractors.video.frames import CHUNK, FPS
from lstr.files.content import Number, PositiveNumber, built
from lstr.files.names import is_slug

Size = Annotated[int, Meta(ge=16, le=4096)]
# Pixels. The limit allows far more than usual, but no image that needs a terabyte of memory.
Side = Annotated[int, Meta(ge=1, le=4096)]

Precision = Annotated[str, Meta(pattern=r"^(float32|bf16)\Z")]
Crops = Literal[1, 2, 10]
RGB_FRAME = 3  # in the chunk: the paper's "central" frame is the fourth
# Entries of a network that are written only if they differ from their default, so that older recipes keep their ids.
OPTIONAL = ("config", "width", "bgr", "folds", "stem", "size", "margin")


@dataclass(frozen=True)
class NetworkRecipe:
    """The network of one stream and its input. `mean` and `std` are per channel, on the 0–255 scale."""

    network: str  # a name in NETWORKS, `timm:NAME`, a plugin's name, or the name of an mmaction2 config
    # `kinetics` for the published file, `random`, the name in a file that `lstr finetune` made, or `custom`
    weights: str
    sha256: str  # hash of the network's tensors, batch-norm statistics included
    crops: Crops
    mean: tuple[Number, ...]
    std: tuple[PositiveNumber, ...]
    seed: int | None = None  # seed of random weights
    calibrated_on: tuple[str, ...] = ()  # videos whose chunks gave random weights their batch-norm statistics
    # backbone in mmaction2's config format, for a network that was built from a config
    config: dict | None = field(default=None, hash=False)
    # features per chunk, for a network that is not in NETWORKS
    width: Annotated[int, Meta(ge=1, le=1 << 16)] | None = None
    bgr: bool = False  # whether blue comes first
    # Hashes of the networks that were each trained without one fold of the training videos. A training video gets the
    # features of the network that was not trained on it, every other video the features of `sha256`.
    folds: tuple[str, ...] = ()
    # `mean` if the weights come from an RGB network: the first kernels are the mean over the colours, repeated
    stem: Annotated[str, Meta(pattern=r"^mean\Z")] | None = None
    # height and width of its input from the whole frame, in pixels; None for the recipe's square crop
    size: tuple[Size, Size] | None = None
    # the frame is resized to this many times `size`; the network sees its centre
    margin: Annotated[float, Meta(ge=1, le=4)] = 1.0

    @property
    def entry(self) -> Network:
        """The description of the network. Raises RecipeError for a network that is not available on this machine."""
        if self.config is not None:  # its module imports torch and mmaction2
            return import_module("lstr.extractors.networks.mmaction").describe_backbone(self.network, self.config)
        return get_network(self.network)

    @property
    def fuses(self) -> bool:
        """Whether each batch norm that follows a convolution is fused into it."""
        if self.config is not None:
            return False
        entry = None if self.network.startswith(TIMM) else find_network(self.network)
        return entry is None or entry.fuses

    @property
    def dim(self) -> int:
        """Number of features per chunk."""
        return NETWORKS[self.network].width if self.width is None else self.width

    def folder(self, stream: str) -> str:
        """Return the name of a stream's feature folder, such as `rgb_kinetics_resnet50`."""
        return f"{stream}_{self.weights}_{self.network.replace(':', '-')}"

    def to_dict(self) -> dict:
        """The entry of recipe.json."""
        defaults = {entry.name: entry.default for entry in fields(self)}
        return {name: v for name, v in asdict(self).items() if name not in OPTIONAL or v != defaults[name]}


@dataclass(frozen=True)
class Recipe(OfStreams[NetworkRecipe]):
    """All settings that change the value of a feature.

    Flow backend, device and decoder are not part of it, because their results are equal. A recipe has a network for
    one or more streams; `flow_algorithm` is None without flow.
    """

    rgb: NetworkRecipe | None
    flow: NetworkRecipe | None
    fps: int = FPS
    chunk: int = CHUNK
    rgb_frame: Annotated[int, Meta(ge=0, lt=CHUNK)] = RGB_FRAME  # index in the chunk of the frame the RGB network sees
    long_side: Side = 320  # pixels; aspect kept, never enlarged
    resize: str = "area"
    flow_algorithm: str | None = "tvl1-opencv5"
    flow_bound: PositiveNumber = BOUND
    short_side: Side = 256
    crop: Side = 224
    precision: Precision = "float32"  # how the networks' weights and products are rounded: float32 or bf16
    grey: NetworkRecipe | None = None
    difference: NetworkRecipe | None = None
    change: NetworkRecipe | None = None
    pose: NetworkRecipe | None = None

    def __post_init__(self):
        if not self.streams:
            raise ValueError(f"it has no network for {', '.join(STREAMS)}")
        if self.flow is None and self.flow_algorithm is not None:
            raise ValueError("it has a flow_algorithm but no flow network")
        if self.flow and self.flow_algorithm not in ALGORITHMS.values():
            raise ValueError(f"flow_algorithm {self.flow_algorithm!r} is unknown")
        if (self.fps, self.chunk) != (FPS, CHUNK):
            raise ValueError(f"fps and chunk are {self.fps} and {self.chunk}; only {FPS} and {CHUNK} are supported")

    @property
    def id(self) -> str:
        """12 hex digits of the canonical JSON's SHA-256."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    @property
    def algorithm(self) -> str | None:
        """The algorithm of optical flow, as `Preset.flow_algorithm` names it; None without flow."""
        return ALGORITHM_OF.get(self.flow_algorithm)

    @property
    def random_streams(self) -> str:
        """The streams that have random weights, as text: `rgb and flow`, `rgb`, or an empty string."""
        return " and ".join(stream for stream in self.streams if self.parts[stream].weights == "random")

    @property
    def calibrated_on(self) -> tuple[str, ...]:
        """Videos that gave the random networks their batch-norm statistics."""
        return next((c for stream in self.streams if (c := self.parts[stream].calibrated_on)), ())

    def narrowed(self, streams: Collection[str]) -> "Recipe":
        """Return the recipe with only these streams."""
        without: dict[str, Any] = {stream: None for stream in self.streams if stream not in streams}
        if "rgb" not in streams:
            without["rgb_frame"] = RGB_FRAME
        if "flow" not in streams:
            without["flow_algorithm"] = None
        return replace(self, **without)

    @property
    def dims(self) -> tuple[int, int]:
        """Feature widths of a model's rgb and flow inputs; 0 for an input without a network."""
        widths = {name: 0 for name in MODEL_STREAMS}
        for stream, part in self.parts.items():
            widths[model_stream(stream)] += part.dim
        return widths["rgb"], widths["flow"]

    def size_of(self, stream: str) -> tuple[int, int]:
        """Return height and width of the input of a stream's network, in pixels."""
        return self.parts[stream].size or (self.crop, self.crop)

    def without_folds(self) -> "Recipe":
        """Return the recipe without folds, which makes the features of videos that no network was trained on."""
        return self.having({stream: replace(part, folds=()) for stream, part in self.parts.items()})

    def to_dict(self) -> dict:
        """The entry of recipe.json."""
        older = {name: value for name, value in asdict(self).items() if value is not None or name not in PICTURES[1:]}
        return {**older, **{stream: part.to_dict() for stream, part in self.parts.items()}}

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_dict(cls, values: object, where: object = "") -> "Recipe":
        """Parse a JSON object from the file `where`, and check that names are safe as paths and sizes are in range.

        Raises:
            RecipeError: It is not a recipe of this version; the message names the file and the entry.
        """
        try:
            recipe = built(cls, values)
            for stream, part in recipe.parts.items():
                for name, fits in (("network", is_network_name), ("weights", is_slug)):
                    if not fits(found := getattr(part, name)):
                        raise ValueError(f"{stream}.{name} is {brief(found)}, which is not a valid file name")
                # stored features of a plugin's network can be read without the plugin
                if part.network not in NETWORKS and part.width is None:
                    raise ValueError(f"{stream}.network is {part.network!r}, which needs its width")
        except ValueError as error:
            place = f" of {where}" if where else ""
            raise RecipeError(
                f"The feature recipe{place} cannot be read ({error}).", "make the features again with `lstr extract`."
            ) from error
        return recipe


def differences(a: Recipe, b: Recipe) -> list[str]:
    """Return `entry: a's value against b's`, one for each entry that differs; a missing stream by its network."""

    def shown(value: Any) -> str:
        if isinstance(value, dict) and "network" in value:
            return f"{value['weights']} {value['network']}"
        return "none" if value is None else brief(value)

    def compare(a: Mapping, b: Mapping, prefix: str = "") -> Iterator[str]:
        for key in sorted(a.keys() | b.keys()):
            left, right = a.get(key), b.get(key)
            if isinstance(left, dict) and isinstance(right, dict):
                yield from compare(left, right, f"{prefix}{key}.")
            elif left != right:
                yield f"{prefix}{key}: {shown(left)} against {shown(right)}"

    return list(compare(a.to_dict(), b.to_dict()))

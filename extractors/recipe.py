"""How features were made: a frozen value whose canonical JSON gives the recipe id."""

import hashlib
import json
import math
import types
import typing
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace

from lstr.extractors.backbones.network import MEAN, TIMM, Network, is_network_name
from lstr.extractors.backbones.networks import NETWORKS, network_of
from lstr.extractors.errors import RecipeError
from lstr.extractors.flow.workers import ALGORITHMS, BOUND, algorithm_of
from lstr.extractors.names import is_slug
from lstr.extractors.video.frames import CHUNK, FPS

if typing.TYPE_CHECKING:
    from _typeshed import DataclassInstance

Part = typing.TypeVar("Part")
Built = typing.TypeVar("Built", bound="DataclassInstance")

STREAMS = ("rgb", "flow")
PRECISIONS = ("float32", "bf16")
INT8 = "int8"  # a precision too, of networks whose ranges were measured on videos
STEPS = 127  # in int8, of a weight and of a signed input, to either side of zero
LEAST = 1e-12  # a step; of a channel of zeros
CROPS = (1, 2, 10)
LARGEST = {"long_side": 4096, "short_side": 4096, "crop": 4096, "width": 1 << 16, "segments": 64}
"""Pixels of images, features of a chunk and images of it: many times the usual, and no terabyte."""
RGB_FRAME = 3  # in the chunk: the paper's "central" frame is the fourth
NOT_WRITTEN = {"config": None, "width": None, "segments": 1, "bgr": False, "folds": (), "ranges": None, "stem": None}
"""Entries of a network that are written only where they differ, so that older recipes keep their ids."""


@dataclass(frozen=True)
class NetworkRecipe:
    """One stream's network and what goes into it. `mean` and `std` are per channel, on the 0–255 scale."""

    network: str
    """A name in NETWORKS, `timm:NAME`, or the name of the mmaction2 config it was built from."""
    weights: str
    """`kinetics` for the published file, `random`, the name in a file that `lstr finetune` made, or `custom`."""
    sha256: str
    """Hash of the network's tensors, batch-norm statistics included."""
    crops: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    seed: int | None = None
    """Seed of random weights."""
    calibrated_on: tuple[str, ...] = ()
    """Videos whose chunks gave random weights their batch-norm statistics."""
    config: dict | None = field(default=None, hash=False)
    """Backbone in mmaction2's config language, of a network that was built from a config."""
    width: int | None = None
    """Features of a chunk, of a network that is not in NETWORKS."""
    segments: int = 1
    """Frames of a chunk that the network sees together (TSM and its like), evenly spread."""
    bgr: bool = False
    """Whether blue comes first."""
    folds: tuple[str, ...] = ()
    """Hashes of the networks that were each trained without one fold of the training videos: each of these has the
    features of the network that has not seen it, every other video those of `sha256`."""
    ranges: dict[str, list[float]] | None = field(default=None, hash=False)
    """Of an int8 network: the lowest and highest input of each convolution, by its name."""
    stem: str | None = None
    """`mean` where its weights are those of an RGB network, its first kernels the mean over the colours, repeated."""

    def __post_init__(self):
        if self.crops not in CROPS:
            raise ValueError(f"crops {self.crops!r} is none of {CROPS}")

    @property
    def entry(self) -> Network:
        """What is known of the network. Raises RecipeError where it is not known here."""
        return network_of(self.network, self.config)

    @property
    def fuses(self) -> bool:
        """Whether its batch norms go into convolutions wherever they follow one."""
        return self.config is None and (self.network not in NETWORKS or NETWORKS[self.network].fuses)

    @property
    def dim(self) -> int:
        """Features of a chunk."""
        return NETWORKS[self.network].width if self.width is None else self.width

    @property
    def images(self) -> int:
        """That go through the network per chunk."""
        return self.crops * self.segments

    def folder(self, stream: str) -> str:
        """Name of the stream's feature directory: `rgb_kinetics_resnet50`."""
        return f"{stream}_{self.weights}_{self.network.replace(':', '-')}"

    def to_dict(self) -> dict:
        """As recipe.json has it."""
        return {n: v for n, v in asdict(self).items() if n not in NOT_WRITTEN or v != NOT_WRITTEN[n]}


@dataclass(frozen=True)
class Recipe:
    """Everything that changes a feature's value; backend, device and decoder are exact alternatives, outside it.

    One of the two streams may be None; without flow `flow_algorithm` is None too.
    """

    rgb: NetworkRecipe | None
    flow: NetworkRecipe | None
    fps: int = FPS
    chunk: int = CHUNK
    rgb_frame: int = RGB_FRAME
    """Index in the chunk of the frame the RGB network sees."""
    long_side: int = 320
    """Pixels; aspect kept, never enlarged."""
    resize: str = "area"
    flow_algorithm: str | None = "tvl1-opencv5"
    flow_bound: float = BOUND
    short_side: int = 256
    crop: int = 224
    precision: str = "float32"
    """Of the networks' weights and products: float32, bf16 or int8."""

    def __post_init__(self):
        if self.precision not in (*PRECISIONS, INT8):
            raise ValueError(f"precision {self.precision!r} is unknown here")
        if not self.streams:
            raise ValueError("it has neither rgb nor flow")
        if any((part.ranges is None) == (self.precision == INT8) for part in self.parts.values()):
            raise ValueError(f"precision {self.precision!r} and the ranges of int8 networks do not belong together")
        if self.flow is None and self.flow_algorithm is not None:
            raise ValueError("it has a flow_algorithm and no flow network")
        if self.flow and self.flow_algorithm not in ALGORITHMS.values():
            raise ValueError(f"flow_algorithm {self.flow_algorithm!r} is unknown here")

    @property
    def id(self) -> str:
        """12 hex digits of the canonical JSON's SHA-256."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    @property
    def parts(self) -> dict[str, NetworkRecipe]:
        """The networks by stream, without a stream that is None."""
        return by_stream(self.rgb, self.flow)

    @property
    def streams(self) -> tuple[str, ...]:
        """`rgb`, `flow` or both."""
        return tuple(self.parts)

    @property
    def algorithm(self) -> str | None:
        """Of optical flow, as `--flow` names it; None without flow."""
        return algorithm_of(self.flow_algorithm)

    @property
    def is_random(self) -> bool:
        """Whether either network carries random weights."""
        return bool(self.random_streams)

    @property
    def random_streams(self) -> str:
        """`rgb and flow`, `rgb`, `flow` or nothing: the streams whose networks carry random weights."""
        return " and ".join(stream for stream in self.streams if self.parts[stream].weights == "random")

    @property
    def calibrated_on(self) -> tuple[str, ...]:
        """Videos that gave the random networks their batch-norm statistics."""
        return next((c for stream in self.streams if (c := self.parts[stream].calibrated_on)), ())

    def narrowed(self, streams: Collection[str]) -> "Recipe":
        """The part of it that makes the features of some streams."""
        recipe = self
        if "rgb" not in streams:
            recipe = replace(recipe, rgb=None, rgb_frame=RGB_FRAME)
        return recipe if "flow" in streams else replace(recipe, flow=None, flow_algorithm=None)

    def without_folds(self) -> "Recipe":
        """The part of it that makes the features of videos that no network has seen."""
        rgb, flow = (part and replace(part, folds=()) for part in (self.rgb, self.flow))
        return replace(self, rgb=rgb, flow=flow)

    def to_dict(self) -> dict:
        """As recipe.json has it."""
        return {**asdict(self), **{stream: part.to_dict() for stream, part in self.parts.items()}}

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return json.dumps(self.to_dict(), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_dict(cls, values: Mapping, where: object = "") -> "Recipe":
        """The recipe of a JSON object, in the file `where`; its names are then fit for paths, and its sizes usual ones.

        Raises RecipeError, naming file and entry, where it is not one of this version.
        """
        try:
            recipe = _rebuild(cls, values)
            _check(recipe)
        except (TypeError, ValueError, KeyError, AttributeError, OverflowError) as error:
            of, reason = f" of {where}" if where else "", error.args[0] if error.args else type(error).__name__
            raise RecipeError(
                f"The feature recipe{of} cannot be read ({reason}).", "make the features again with `lstr extract`."
            ) from error
        return recipe


def by_stream(rgb: Part | None, flow: Part | None) -> dict[str, Part]:
    """One thing per stream, without a stream that has none."""
    return {stream: part for stream, part in zip(STREAMS, (rgb, flow), strict=True) if part is not None}


def _rebuild(cls: type[Built], values: Mapping, prefix: str = "") -> Built:
    """A dataclass from its JSON object. Raises KeyError for an unknown entry, TypeError for one that is missing or of
    another type."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{prefix.rstrip('.') or 'it'} is no JSON object")
    known = {f.name: f.type for f in fields(cls)}
    built = {}
    for name, value in values.items():
        if name not in known:
            raise KeyError(f"unknown entry {prefix + str(name)!r}")
        part = _dataclass_of(known[name])
        if part and value is not None:
            value = _rebuild(part, value, f"{name}.")
        elif not _is_of(value, known[name]):
            raise TypeError(f"{prefix}{name} is {brief(value)}")
        built[name] = tuple(value) if isinstance(value, list) else value
    return cls(**built)


def _is_of(value: object, kind: typing.Any) -> bool:
    """Whether a value of JSON is of the type of an entry; a list stands for a tuple, and numbers are finite."""
    if isinstance(kind, types.UnionType):
        return any(_is_of(value, one) for one in typing.get_args(kind))
    of = typing.get_args(kind)
    match typing.get_origin(kind) or kind:
        case types.NoneType:
            return value is None
        case origin if origin in (tuple, list):
            return isinstance(value, list | tuple) and all(_is_of(one, of[0]) for one in value)
        case origin if origin is dict:
            return isinstance(value, dict) and all(_is_of(one, of[1]) for one in value.values() if of)
        case origin if origin is float:
            return type(value) in (int, float) and math.isfinite(typing.cast(float, value))
        case origin:
            return type(value) is origin


def _check(recipe: Recipe) -> None:
    """Raise ValueError, naming the entry, for what no recipe made here has and what would do harm."""
    for stream, part in recipe.parts.items():
        for name, fits in (("network", is_network_name), ("weights", is_slug)):
            if not fits(getattr(part, name)):
                raise ValueError(f"{stream}.{name} is {brief(getattr(part, name))}, which is no file name")
        described = part.config is not None or part.network.startswith(TIMM)
        if not described and part.network not in NETWORKS:
            raise ValueError(f"{stream}.network is {part.network!r}, which is unknown here and has no config")
        if part.width is None and part.network not in NETWORKS:
            raise ValueError(f"{stream}.width is missing")
        if part.stem not in (None, MEAN):
            raise ValueError(f"{stream}.stem is {brief(part.stem)}, not {MEAN}")
        if not all(part.std):
            raise ValueError(f"{stream}.std holds 0")
        for name in ("width", "segments"):
            _check_size(name, getattr(part, name), f"{stream}.")
    for name in ("long_side", "short_side", "crop"):
        _check_size(name, getattr(recipe, name))
    if not 0 <= recipe.rgb_frame < CHUNK or recipe.flow_bound <= 0:
        raise ValueError(f"rgb_frame is {brief(recipe.rgb_frame)}, and flow_bound {brief(recipe.flow_bound)}")
    for name, value in (("fps", FPS), ("chunk", CHUNK)):
        if getattr(recipe, name) != value:
            raise ValueError(f"{name} is {brief(getattr(recipe, name))}, and {value} in this version")


def _check_size(name: str, size: int | None, prefix: str = "") -> None:
    if size is not None and not 0 < size <= LARGEST[name]:
        raise ValueError(f"{prefix}{name} is {brief(size)}, not from 1 to {LARGEST[name]}")


def _dataclass_of(kind: object) -> "type[DataclassInstance] | None":
    """The dataclass in `NetworkRecipe | None`; None where it holds none."""
    kinds = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    return next((k for k in kinds if isinstance(k, type) and is_dataclass(k)), None)


def differences(a: Recipe, b: Recipe) -> list[str]:
    """`entry: a's value against b's`, one for each entry that differs."""
    return list(_differences(a.to_dict(), b.to_dict()))


def _differences(a: Mapping, b: Mapping, prefix: str = "") -> Iterator[str]:
    for key in sorted(a.keys() | b.keys()):
        left, right = a.get(key), b.get(key)
        if key == "ranges" and left != right:
            yield f"{prefix}{key}: other int8 networks"
        elif isinstance(left, dict) and isinstance(right, dict):
            yield from _differences(left, right, f"{prefix}{key}.")
        elif left != right:
            yield f"{prefix}{key}: {brief(left)} against {brief(right)}"


def brief(value: object) -> str:
    """A value of JSON in few characters, for messages."""
    if isinstance(value, dict) and "network" in value:
        return f"{value.get('weights')} {value['network']}"
    if value is None:
        return "none"
    if isinstance(value, int) and value.bit_length() > 64:  # of very many digits Python makes no text
        return f"a number of {value.bit_length()} bits"
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "…"

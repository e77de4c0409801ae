"""How features were made: a frozen value whose canonical JSON gives the recipe id."""

import hashlib
import json
from dataclasses import asdict, dataclass, fields, is_dataclass

from extractors.errors import RecipeError
from extractors.flow import ALGORITHMS, BOUND
from extractors.video import CHUNK, FPS

PRECISIONS = ("float32", "bf16")


@dataclass(frozen=True)
class NetworkRecipe:
    """One stream's network and what goes into it. `mean` and `std` are per channel, on the 0–255 scale."""

    network: str
    """`resnet50` or `bninception`."""
    weights: str
    """`kinetics` for the published file, `random`, or `custom` for any other file."""
    sha256: str
    """Hash of the network's tensors, batch-norm statistics included."""
    crops: int
    mean: tuple[float, ...]
    std: tuple[float, ...]
    seed: int | None = None
    """Seed of random weights."""
    calibrated_on: tuple[str, ...] = ()
    """Videos whose chunks gave random weights their batch-norm statistics."""

    def folder(self, stream: str) -> str:
        """Name of the stream's feature directory: `rgb_kinetics_resnet50`."""
        return f"{stream}_{self.weights}_{self.network}"


@dataclass(frozen=True)
class Recipe:
    """Everything that changes a feature's value; backend, device and decoder are exact alternatives, outside it."""

    rgb: NetworkRecipe
    flow: NetworkRecipe
    fps: int = FPS
    chunk: int = CHUNK
    rgb_frame: int = 3
    """Index in the chunk of the frame the RGB network sees (the paper's "central" frame)."""
    long_side: int = 320
    """Pixels; aspect kept, never enlarged."""
    resize: str = "area"
    flow_algorithm: str = "tvl1-opencv5"
    flow_bound: float = BOUND
    short_side: int = 256
    crop: int = 224
    precision: str = "float32"
    """Of the networks' weights and products: float32 or bf16."""

    def __post_init__(self):
        if self.precision not in PRECISIONS:
            raise ValueError(f"precision {self.precision!r} is unknown here")
        if self.flow_algorithm not in ALGORITHMS.values():
            raise ValueError(f"flow_algorithm {self.flow_algorithm!r} is unknown here")

    @property
    def id(self) -> str:
        """12 hex digits of the canonical JSON's SHA-256."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()[:12]

    @property
    def is_random(self) -> bool:
        """Whether either network carries random weights."""
        return bool(self.random_streams)

    @property
    def random_streams(self) -> str:
        """`rgb and flow`, `rgb`, `flow` or nothing: the streams whose networks carry random weights."""
        return " and ".join(stream for stream in ("rgb", "flow") if getattr(self, stream).weights == "random")

    @property
    def calibrated_on(self) -> tuple[str, ...]:
        """Videos that gave the random networks their batch-norm statistics."""
        return self.rgb.calibrated_on or self.flow.calibrated_on

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_dict(cls, values: dict) -> "Recipe":
        """The recipe of a JSON object. Raises RecipeError where it is not one of this version."""
        try:
            return _rebuild(cls, values)
        except (TypeError, ValueError, KeyError, AttributeError) as error:
            raise RecipeError(
                f"The feature recipe cannot be read ({error}).", "make the features again with `lstr extract`."
            ) from error


def _rebuild(cls, values: dict):
    known = {f.name: f.type for f in fields(cls)}
    built = {}
    for name, value in values.items():
        if name not in known:
            raise KeyError(f"unknown entry {name!r}")
        if is_dataclass(known[name]):
            value = _rebuild(known[name], value)
        built[name] = tuple(value) if isinstance(value, list) else value
    return cls(**built)


def differences(a: Recipe, b: Recipe) -> list[str]:
    """`entry: a's value against b's`, one for each entry that differs."""
    return list(_differences(asdict(a), asdict(b)))


def _differences(a: dict, b: dict, prefix: str = ""):
    for key in sorted(a.keys() | b.keys()):
        left, right = a.get(key), b.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            yield from _differences(left, right, f"{prefix}{key}.")
        elif left != right:
            yield f"{prefix}{key}: {_brief(left)} against {_brief(right)}"


def _brief(value) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "…"

"""Shape of the model, and typed changes to any frozen dataclass of settings."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from lstr.errors import ConfigError
from lstr.segment import brief

FEATURES_PER_SECOND = 4
"""Chunks per second: 24 frames per second, 6 frames per chunk (paper, Feature Encoding)."""

LARGEST = 2**63 - 1
"""Of a whole number in any setting: what an array can hold."""
MOST = 2**20 + 1
"""That no size or length of a model reaches: three days of memory, in chunks."""

CELLS = ("lstm", "gru")
SUPERVISIONS = ("segment", "video")
GRIDS = ("fixed", "sliding", "anchored")
POSITIONS = ("slot", "distance")
ENCODERS = (
    "two-stage",
    "one-stage",
    "stage2-self-attention",
    "self-attention",
    "projection",
    "none",
    "joined",
)
INTEGRATIONS = ("cross-attention", "average", "concatenation", "mlp")

Settings = TypeVar("Settings")


@dataclasses.dataclass(frozen=True)
class Uses:
    """What a kind of model uses of a configuration."""

    long_memory: bool = True
    gru: bool = False
    anticipation: bool = False
    ahead: int = 0
    """Chunks ahead that it predicts where `anticipation` is 0"""


KINDS = {
    "lstr": Uses(gru=True, anticipation=True),
    "rnn": Uses(long_memory=False),
    "trn": Uses(long_memory=False, anticipation=True, ahead=8),  # Xu et al. 2019, section 4.3
    "lfb": Uses(),
    "miniroad": Uses(long_memory=False, anticipation=True),
    "testra": Uses(anticipation=True),
    "idn": Uses(long_memory=False),
    "fats": Uses(long_memory=False),
    "woad": Uses(long_memory=False),
}
"""Their classes are in `lstr.kinds.CLASSES`."""


def check_range(
    config: Any,
    *,
    least: Mapping[str, float] = MappingProxyType({}),
    above: Mapping[str, float] = MappingProxyType({}),
    below: Mapping[str, float] = MappingProxyType({}),
    choices: Mapping[str, Iterable[str]] = MappingProxyType({}),
    prefix: str = "",
) -> None:
    """Raise ConfigError for the first setting of a dataclass that is out of its range, by name and value.

    least is the smallest value that a setting may have; above and below are bounds that it may not reach. A setting
    whose default is a whole number takes whole numbers alone. `prefix` comes before its name in the message.
    """
    for name, options in choices.items():
        value = getattr(config, name)
        if value not in options:
            raise ConfigError(f"{prefix}{name} is {value!r}.", f"Choose one of: {', '.join(options)}.")
    defaults = {field.name: field.default for field in dataclasses.fields(config)}
    for name in dict.fromkeys([*least, *above, *below]):
        value, whole = getattr(config, name), isinstance(defaults[name], int)
        fits = isinstance(value, int if whole else (int, float)) and not isinstance(value, bool)
        fits = fits and value >= least.get(name, -math.inf) and value < below.get(name, math.inf)
        if not (fits and value > above.get(name, -math.inf)):
            bounds = [f"of at least {least[name]}"] if name in least else []
            bounds += [f"above {above[name]}"] if name in above else []
            bounds += [f"below {below[name]}"] if name in below else []
            what = "a whole number" if whole else "a number"
            raise ConfigError(f"{prefix}{name} is {brief(value)}.", f"Give {what} {' and '.join(bounds)}.")


@dataclasses.dataclass(frozen=True)
class LSTRConfig:
    """What the model is made of. Lengths are in chunks of 0.25 s.

    The defaults are the published THUMOS'14 model, save for `grid`: the published batch evaluation slides
    its grid, the published stream and the models trained here keep it fixed.

    Raises ConfigError that names the field and its value.
    """

    kind: str = "lstr"
    """lstr; a baseline that the paper compares with: rnn, trn (`lstr.recurrent`), lfb (`lstr.feature_bank`); or what
    came after it: miniroad (`lstr.miniroad`), testra (`lstr.testra`)."""
    rgb_dim: int = 2048
    """Width of the appearance feature; 0 leaves that stream out."""
    flow_dim: int = 1024
    """Width of the motion feature; 0 leaves that stream out."""
    d_model: int = 1024
    n_heads: int = 16
    d_feedforward: int = 1024
    """Width inside the feed-forward layers; of kind miniroad, what enters the GRU."""
    dropout: float = 0.2
    work_length: int = 32
    """Chunks of short-term memory, all of them seen."""
    long_length: int = 2048
    """Chunks of long-term memory before the work memory; 0 leaves it out."""
    long_stride: int = 4
    """Distance in chunks between two samples of the long memory."""
    grid: str = "fixed"
    """fixed: multiples of the stride. sliding: every stride-th chunk from the start of the range. anchored: every
    stride-th chunk back from the work memory (TeSTra)."""
    decay: float = 1.0
    """What a slot of the long memory weighs beside the next newer one, in kind testra: 1 is its box kernel, less than 1
    its Laplace kernel."""
    positions: str = "slot"
    """slot: a token's place in the window (published code). distance: chunks before the newest (paper)."""
    n0: int = 16
    """Queries of encoder stage 1, which has one layer."""
    n1: int = 32
    """Queries of encoder stage 2."""
    l_enc: int = 2
    """Layers of encoder stage 2."""
    l_dec: int = 2
    encoder: str = "two-stage"
    """How the long memory is compressed; `lstr.network.Network` has a line for each choice."""
    integration: str = "cross-attention"
    """How the compressed long memory and the work memory meet; `lstr.network.Network` has a line for each choice."""
    gru: bool = False
    """Let a GRU sum up everything older than the memories, as one more token for the decoder (paper, figure 3)."""
    anticipation: int = 0
    """Chunks ahead to predict, each from a learned token after the work memory (paper, action anticipation)."""
    cell: str = "lstm"
    """Cell of kind rnn."""
    generated: int = 12
    """Chunks whose features kind fats imagines."""
    runs: int = 4
    """Beginnings that kind fats averages over."""
    unroll: int = 64
    """Chunks that kind woad trains its LSTM through, from a state of zeros."""
    supervision: str = "segment"
    """What kind woad learns from: segment, the labels of chunks; video, which classes are in a window and no more."""

    def __post_init__(self) -> None:
        least = dict.fromkeys(("d_model", "n_heads", "d_feedforward", "work_length", "long_stride"), 1)
        least |= dict.fromkeys(("n0", "n1", "l_enc", "l_dec"), 1)
        least |= dict.fromkeys(("generated", "runs", "unroll"), 1)
        least |= dict.fromkeys(("rgb_dim", "flow_dim", "long_length", "anticipation", "dropout"), 0)
        below = dict.fromkeys(least, MOST) | {"dropout": 1}
        check_range(self, least=least, above={"decay": 0}, below=below, choices=CHOICES)
        if not isinstance(self.gru, bool):
            raise ConfigError(f"gru is {self.gru!r}.", "Give true or false.")
        if self.rgb_dim + self.flow_dim == 0:
            raise ConfigError("rgb_dim is 0 and flow_dim is 0.", "Keep at least one of the two streams.")
        if self.d_model % self.n_heads:
            raise ConfigError(
                f"d_model is {self.d_model}, which n_heads {self.n_heads} does not divide.",
                f"Choose n_heads among the divisors of {self.d_model}.",
            )
        if self.d_model % 2:
            raise ConfigError(
                f"d_model is {self.d_model}.", "Give an even number: positions come in sine-cosine pairs."
            )
        if self.long_length % self.long_stride:
            raise ConfigError(
                f"long_length is {self.long_length}, which long_stride {self.long_stride} does not divide.",
                f"Use a long_length that is a multiple of {self.long_stride}.",
            )
        if self.encoder == "joined" and self.integration != "cross-attention":
            raise ConfigError(
                f'encoder is "joined", so integration cannot be {self.integration!r}.',
                "Leave integration as it is: one self-attention model over both memories has no second way.",
            )
        if self.gru and not KINDS[self.kind].gru:
            raise ConfigError(f"gru is true and kind is {self.kind}.", "Leave gru false, or use kind lstr.")
        if self.anticipation and not KINDS[self.kind].anticipation:
            raise ConfigError(
                f"anticipation is {self.anticipation}, and kind {self.kind} predicts no future.",
                f"Use kind {' or '.join(kind for kind, uses in KINDS.items() if uses.anticipation)} to anticipate.",
            )
        if self.anticipation and self.integration == "mlp":
            raise ConfigError(
                f"anticipation is {self.anticipation}, and integration mlp has no decoder for tokens of the future.",
                "Choose another integration.",
            )
        if self.decay > 1:
            raise ConfigError(f"decay is {self.decay}.", "Give a number above 0 and not above 1.")
        if self.decay != 1 and self.kind != "testra":
            raise ConfigError(f"decay is {self.decay} and kind is {self.kind}.", "Only kind testra has a kernel.")
        if self.kind == "testra":
            only = {"encoder": "two-stage", "integration": "cross-attention", "positions": "slot"}
            for name, value in only.items():
                if getattr(self, name) != value:
                    raise ConfigError(
                        f"{name} is {getattr(self, name)!r} and kind is testra.", f"Kind testra has {name} {value}."
                    )

        if self.kind == "fats" and self.work_length % self.runs:
            raise ConfigError(
                f"work_length is {self.work_length}, which runs {self.runs} does not divide.",
                f"Use a work_length that is a multiple of {self.runs}.",
            )
        if self.supervision != "segment" and self.kind != "woad":
            raise ConfigError(
                f"supervision is {self.supervision!r} and kind is {self.kind}.", "Only kind woad learns from videos."
            )

    @property
    def n_long(self) -> int:
        """Slots of the long memory; a recurrent kind has none."""
        return self.long_length // self.long_stride if KINDS[self.kind].long_memory else 0

    @property
    def streams(self) -> tuple[str, ...]:
        """The features that the model takes: `rgb`, `flow` or both."""
        return tuple(name for name, width in (("rgb", self.rgb_dim), ("flow", self.flow_dim)) if width)

    @property
    def input_dim(self) -> int:
        """Width D of a chunk's features: appearance first, then motion."""
        return self.rgb_dim + self.flow_dim

    @property
    def n_ahead(self) -> int:
        """Chunks ahead of the newest that the model predicts, 0 when it only detects."""
        return self.anticipation or KINDS[self.kind].ahead


CHOICES: dict[str, Iterable[str]] = {
    "kind": KINDS,
    "grid": GRIDS,
    "positions": POSITIONS,
    "encoder": ENCODERS,
    "integration": INTEGRATIONS,
    "cell": CELLS,
    "supervision": SUPERVISIONS,
}

PUBLISHED = LSTRConfig(grid="sliding")
MINIROAD = LSTRConfig(kind="miniroad", d_feedforward=2048, work_length=128)
TESTRA = LSTRConfig(kind="testra", grid="anchored")
IDN = LSTRConfig(kind="idn", flow_dim=2048, d_model=512, dropout=0.5, work_length=16)
FATS = LSTRConfig(kind="fats", flow_dim=0, d_model=4096, dropout=0.0)
WOAD = LSTRConfig(kind="woad", rgb_dim=1024, d_model=4096, d_feedforward=2048, dropout=0.1, work_length=750)
PRESETS = {
    "thumos14": LSTRConfig(),
    "tvseries": LSTRConfig(),
    "hacs": LSTRConfig(),
    "thumos14-published": PUBLISHED,
    "tvseries-published": PUBLISHED,
    "miniroad-thumos14": MINIROAD,
    "miniroad-tvseries": MINIROAD,
    "testra-thumos14": TESTRA,
    "testra-laplace-thumos14": dataclasses.replace(TESTRA, decay=0.97),
    "idn-thumos14": IDN,
    "fats-thumos14": FATS,
    "woad-thumos14": WOAD,
    "woad-video-thumos14": dataclasses.replace(WOAD, supervision="video"),
    "small": LSTRConfig(
        d_model=128, n_heads=4, d_feedforward=128, dropout=0.3, work_length=8, long_length=0, n0=8, n1=8, l_enc=1
    ),
}
"""Model shapes by name. `small` is for data sets of minutes, which the published size learns by heart; it has no long
memory, for that is learnt by heart first (documentation, page "What the numbers mean")."""


def override(config: Settings, changes: Mapping[str, Any]) -> Settings:
    """Copy of a frozen dataclass with fields changed; text is read as the type the field has now.

    Raises ConfigError for an unknown name (listing the known ones) and for text of the wrong type.
    """
    names = [field.name for field in dataclasses.fields(config) if field.init]  # type: ignore[arg-type]
    typed = {}
    for name, value in changes.items():
        if name not in names:
            raise ConfigError(f"There is no setting {name!r}.", f"Choose one of: {', '.join(names)}.")
        typed[name] = _typed(name, value, getattr(config, name))
    return dataclasses.replace(config, **typed)  # type: ignore[type-var]


def to_json(config: Any) -> str:
    """Canonical JSON of a dataclass: sorted keys, no spaces, so equal settings give equal text."""
    return json.dumps(dataclasses.asdict(config), sort_keys=True, separators=(",", ":"))


def from_json(text: str) -> LSTRConfig:
    """LSTRConfig from its JSON. Fields it lacks keep their defaults. Raises ConfigError."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The model configuration is not JSON ({error}).", "Save the checkpoint again.") from error
    if not isinstance(values, dict):
        raise ConfigError("The model configuration is not a JSON object.", "Save the checkpoint again.")
    return override(LSTRConfig(), values)


def _typed(name: str, value: Any, current: Any) -> Any:
    """Value converted to the type of the field's current value."""
    if not isinstance(value, str):
        return _accepted(name, value, current)
    text = value.strip()
    if isinstance(current, bool):
        if text.lower() not in ("true", "false", "yes", "no", "1", "0"):
            raise ConfigError(f"{name} is {value!r}, not a yes or a no.", f"Type {name}=true or {name}=false.")
        return text.lower() in ("true", "yes", "1")
    if isinstance(current, int):
        try:
            return _sized(name, int(text), current)
        except ValueError as error:
            raise ConfigError(
                f"{name} is {brief(value)}, not a whole number.", f"Type for example {name}={current}."
            ) from error
    if isinstance(current, float):
        try:
            number = float(text)
        except ValueError as error:
            raise ConfigError(f"{name} is {value!r}, not a number.", f"Type for example {name}={current}.") from error
        if not math.isfinite(number):
            raise ConfigError(f"{name} is {value!r}, not a finite number.", f"Type for example {name}={current}.")
        return number
    if isinstance(current, tuple):
        parts = [part for part in text.split(",") if part.strip()]
        return tuple(_typed(name, part, current[0] if current else "") for part in parts)
    if current is None:
        # An unset field does not tell its type, so JSON's own types are tried before plain text.
        try:
            return json.loads(text)
        except ValueError:
            return text
    if isinstance(current, str):
        return value
    raise ConfigError(f"{name} cannot be changed from text.", "Change it in Python with dataclasses.replace.")


def _sized(name: str, value: int, current: Any) -> int:
    """A whole number that is the size or the count of something. Raises ConfigError."""
    if abs(value) > LARGEST:
        raise ConfigError(f"{name} is {brief(value)}, which is too large.", f"Give a value like {current!r}.")
    return value


def _accepted(name: str, value: Any, current: Any) -> Any:
    """A value that already has a type, if it is the field's."""
    if current is None or value is None:
        return value
    if isinstance(current, tuple) and isinstance(value, (list, tuple)):
        return tuple(_accepted(name, part, current[0]) for part in value) if current else tuple(value)
    if isinstance(value, int) and not isinstance(value, bool):
        _sized(name, value, current)
        value = float(value) if isinstance(current, float) else value
    if isinstance(value, float) and not math.isfinite(value):
        raise ConfigError(f"{name} is {value}, not a finite number.", f"Give a value like {current!r}.")
    if type(value) is not type(current):
        raise ConfigError(
            f"{name} is {brief(value)}, which is not of type {type(current).__name__}.",
            f"Give a value like {current!r}.",
        )
    return value

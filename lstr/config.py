"""The settings that every kind of model has; each kind's own are next to it (`lstr.models`)."""

from dataclasses import dataclass
from types import new_class
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta

from lstr.errors import ConfigError
from lstr.settings import Settings, Share

MOST = 2**20 + 1  # no size or length of a model reaches this: three days of memory, in chunks
Size = Annotated[int, Meta(ge=1, lt=MOST)]
SizeOrZero = Annotated[int, Meta(ge=0, lt=MOST)]


@dataclass(frozen=True)
class Uses:
    """What a kind of model uses of a configuration."""

    long_memory: bool = True
    anticipation: bool = False
    ahead: int = 0
    """Chunks ahead that it predicts where `anticipation` is 0"""
    heads: bool = True
    """Whether it has attention of `n_heads`"""
    padded: bool = False
    """Whether absent slots of the long memory are rows of zeros, which it sees"""


class WindowConfig(Settings, frozen=True):
    """The settings of a model of any kind. Lengths are in chunks of 0.25 s. The class of a kind adds its own.

    The defaults are the settings of the published THUMOS'14 LSTR, except for `grid`: the published batch evaluation
    slides its grid, the published stream and the models trained here keep it fixed.

    Raises ConfigError that names the field and its value.
    """

    kind: ClassVar[str] = ""
    """One of `lstr.kinds.KINDS`; `lstr models` describes each."""
    uses: ClassVar[Uses] = Uses()
    # What windows have besides their two memories; kinds that have it make it a setting.
    context = 0
    """Chunks just before the work memory."""
    gru = False
    """Whether a window has the chunks that are older than both memories."""

    rgb_dim: SizeOrZero = 2048
    """Width of the appearance feature; 0 disables that stream."""
    flow_dim: SizeOrZero = 1024
    """Width of the motion feature; 0 disables that stream."""
    d_model: Size = 1024
    n_heads: Size = 16
    d_feedforward: Size = 1024
    """Width inside the feed-forward layers; of kind miniroad, what enters the GRU."""
    dropout: Share = 0.2
    work_length: Size = 32
    """Chunks of short-term memory, all of them seen."""
    long_length: SizeOrZero = 2048
    """Chunks of long-term memory before the work memory, and in kind gatehub of its history without the newest chunks;
    0 leaves it out."""
    long_stride: Size = 4
    """Distance in chunks between two samples of the long memory."""
    grid: Literal["fixed", "sliding", "anchored"] = "fixed"
    """fixed: multiples of the stride. sliding: every stride-th chunk from the start of the range. anchored: every
    stride-th chunk back from the work memory (TeSTra)."""
    n0: Size = 16
    """Queries of encoder stage 1; the latent queries of kind gatehub."""
    n1: Size = 32
    """Queries of encoder stage 2."""
    l_enc: Size = 2
    """Layers of encoder stage 2, of the latent queries of kind gatehub, of the encoder of kind oadtr."""
    l_dec: Size = 2
    anticipation: SizeOrZero = 0
    """Chunks ahead to predict, each from a learned token after the work memory (paper, action anticipation)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rgb_dim + self.flow_dim == 0:
            raise ConfigError("rgb_dim is 0 and flow_dim is 0.", "keep at least one of the two streams.")
        if self.uses.heads:
            self.check_heads("n_heads")
        if self.long_length % self.long_stride:
            message = f"long_length {self.long_length} is not a multiple of long_stride {self.long_stride}."
            raise ConfigError(message, f"set long_length to a multiple of {self.long_stride}.")
        if self.anticipation and not self.uses.anticipation:
            hint = "set anticipation to 0, or use a kind that predicts the future, for example lstr."
            raise ConfigError(f"Kind {self.kind} does not support anticipation {self.anticipation}.", hint)

    def to_dict(self) -> dict[str, Any]:
        """Return the fields by name, and the kind, in the types of JSON."""
        return {"kind": self.kind, **super().to_dict()}

    def check_heads(self, name: str) -> None:
        """Raise ConfigError where the number of heads in a setting does not divide the model's width."""
        heads = getattr(self, name)
        if heads and self.d_model % heads:
            hint = f"set {name} to a divisor of {self.d_model}."
            raise ConfigError(f"d_model {self.d_model} is not a multiple of {name} {heads}.", hint)
        if self.d_model % 2:
            raise ConfigError(
                f"d_model {self.d_model} is odd.", "use an even number, because positions are sine-cosine pairs."
            )

    @property
    def n_long(self) -> int:
        """Slots of the long memory; 0 of a kind that has none."""
        return self.long_length // self.long_stride if self.uses.long_memory else 0

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
        return self.anticipation or self.uses.ahead

    @property
    def tiling(self) -> tuple[int, int, int]:
        """Chunks from a tiled training window to the next, number of offsets of the first, and chunks that follow one.

        The published loaders skip a window that fewer chunks follow.
        """
        return self.work_length, self.work_length, 0

    @property
    def has_sizes_in_tensors(self) -> bool:
        """Whether the shapes of a model's tensors tell its sizes, as `lstr.models.kind.Published` says."""
        return True


def define_config(module: str, name: str, kind: str, uses: Uses) -> type[WindowConfig]:
    """Return the settings of a kind that adds none; pickle finds the class as `name` in `module`."""
    namespace = {"kind": kind, "uses": uses, "__module__": module}
    return new_class(name, (WindowConfig,), {"frozen": True}, lambda body: body.update(namespace))

"""Shape of the model, and the shapes that have names."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable

from lstr.errors import ConfigError
from lstr.kind_limits import check_foresight
from lstr.settings import check_range, override

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
GROUPINGS = ("window", "batch")
INTEGRATIONS = ("cross-attention", "average", "concatenation", "mlp")


@dataclasses.dataclass(frozen=True)
class Uses:
    """What a kind of model uses of a configuration."""

    long_memory: bool = True
    gru: bool = False
    anticipation: bool = False
    ahead: int = 0
    """Chunks ahead that it predicts where `anticipation` is 0"""
    padded: bool = False
    """Whether absent slots of the long memory are rows of zeros, which it sees"""
    teacher: bool = True
    """Whether it can learn from a teacher (`train.teacher`)"""


KINDS = {
    "lstr": Uses(gru=True, anticipation=True),
    "rnn": Uses(long_memory=False),
    "trn": Uses(long_memory=False, anticipation=True, ahead=8),  # Xu et al. 2019, section 4.3
    "lfb": Uses(),
    "miniroad": Uses(long_memory=False, anticipation=True),
    "testra": Uses(anticipation=True),
    "gatehub": Uses(padded=True),
    "oadtr": Uses(long_memory=False, anticipation=True, ahead=8),
    "colar": Uses(long_memory=False),
    "cmert": Uses(anticipation=True),
    "mat": Uses(anticipation=True),
    "idn": Uses(long_memory=False),
    "fats": Uses(long_memory=False, teacher=False),
    "woad": Uses(long_memory=False, teacher=False),
    "efc": Uses(long_memory=False, anticipation=True, ahead=8),
    "ed": Uses(long_memory=False, anticipation=True, ahead=8),
    "red": Uses(long_memory=False, anticipation=True, ahead=8),
    "ttm": Uses(long_memory=False, anticipation=True, ahead=8),
    "lap-like": Uses(long_memory=False, anticipation=True, ahead=8),
    "tfn-like": Uses(long_memory=False),
    "conv-deconv": Uses(long_memory=False),
}
"""Their classes are in `lstr.kinds.CLASSES`."""


@dataclasses.dataclass(frozen=True)
class LSTRConfig:
    """What the model is made of. Lengths are in chunks of 0.25 s.

    The defaults are the published THUMOS'14 model, save for `grid`: the published batch evaluation slides
    its grid, the published stream and the models trained here keep it fixed.

    Raises ConfigError that names the field and its value.
    """

    kind: str = "lstr"
    """lstr, or another of `KINDS`; `lstr models` tells of each."""
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
    """Chunks of long-term memory before the work memory, and in kind gatehub of its history without the newest chunks;
    0 leaves it out."""
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
    """Queries of encoder stage 1, which has one layer; the latent queries of kind gatehub."""
    n1: int = 32
    """Queries of encoder stage 2."""
    l_enc: int = 2
    """Layers of encoder stage 2, of the latent queries of kind gatehub, of the encoder of kind oadtr."""
    l_dec: int = 2
    encoder: str = "two-stage"
    """How the long memory is compressed; `Network` of models.lstr has a line for each."""
    integration: str = "cross-attention"
    """How the compressed long memory and the work memory meet; `Network` of models.lstr has a line for each."""
    gru: bool = False
    """Let a GRU sum up everything older than the memories, as one more token for the decoder (paper, figure 3)."""
    anticipation: int = 0
    """Chunks ahead to predict, each from a learned token after the work memory (paper, action anticipation)."""
    cell: str = "lstm"
    """Cell of kind rnn."""
    d_token: int = 0
    """Width of a chunk's token in kind trn; 0 is d_model."""
    shared_classifier: bool = False
    """Whether the decoder of kind trn scores by the classifier of the present (published code)."""
    decoder_from: int = 1
    """Chunks ahead that the first step of the decoder of kind trn is about: 1 (paper), or 0, the chunk itself
    (published code), whose own score is not the decoder's."""
    exemplars: int = 10
    """Training chunks of each class that kind colar compares with."""
    decoder_heads: int = 0
    """Heads of the decoder of kind oadtr; 0 is n_heads."""
    decoder_feedforward: int = 0
    """Width inside the feed-forward layers of the decoder of kind oadtr; 0 is d_feedforward."""
    context: int = 0
    """Chunks before the work memory that the decoder sees too, in kind cmert."""
    future: int = 48
    """Chunks that the generated tokens stand for in training, in kinds cmert and mat; at least `anticipation`."""
    n_generated: int = 32
    """Queries of the tokens of the future that kinds cmert and mat generate."""
    l_gen: int = 2
    """Layers that generate those."""
    refinements: int = 2
    """How often kind mat refines the work tokens, two times at least; the future is refined once less."""
    groups: int = 0
    """Runs that kind mat sums the long memory up in where fewer of its slots than these are hidden; 0 is none."""
    grouping: str = "window"
    """Whose hidden slots are counted for `groups`, in kind mat. window: those of each window; batch (published code):
    those of all windows of a batch, in training and for whole videos, where batches are of 16; a stream has windows."""
    generated: int = 12
    """Chunks whose features kind fats imagines."""
    runs: int = 4
    """Beginnings that kind fats averages over."""
    unroll: int = 64
    """Chunks that kind woad trains its LSTM through, from a state of zeros."""
    supervision: str = "segment"
    """What kind woad learns from: segment, the labels of chunks; video, which classes are in a window and no more."""

    def __post_init__(self) -> None:
        least = dict.fromkeys(("d_model", "n_heads", "d_feedforward", "work_length", "long_stride", "exemplars"), 1)
        least |= dict.fromkeys(("n0", "n1", "l_enc", "l_dec"), 1)
        least |= dict.fromkeys(("generated", "runs", "unroll"), 1)
        least |= dict.fromkeys(("rgb_dim", "flow_dim", "long_length", "anticipation", "dropout"), 0)
        least |= dict.fromkeys(("decoder_heads", "decoder_feedforward", "d_token", "decoder_from"), 0)
        least |= dict.fromkeys(("future", "n_generated", "l_gen"), 1) | dict.fromkeys(("context", "groups"), 0)
        least["refinements"] = 2
        below = dict.fromkeys(least, MOST) | {"dropout": 1, "decoder_from": 2}
        check_range(self, least=least, above={"decay": 0}, below=below, choices=CHOICES)
        for name in ("gru", "shared_classifier"):
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"{name} is {getattr(self, name)!r}.", "Give true or false.")
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
        if self.decoder_heads and self.d_model % self.decoder_heads:
            raise ConfigError(
                f"d_model is {self.d_model}, which decoder_heads {self.decoder_heads} does not divide.",
                f"Choose decoder_heads among the divisors of {self.d_model}.",
            )
        for name, kind in ONLY_OF.items():
            value, plain = getattr(self, name), getattr(type(self), name)
            if value != plain and self.kind != kind:
                raise ConfigError(f"{name} is {value} and kind is {self.kind}.", f"Only kind {kind} has it.")
        if self.kind in ("testra", "cmert", "mat", "gatehub"):
            only = {"encoder": "two-stage", "integration": "cross-attention", "positions": "slot"}
            for name, value in only.items():
                if getattr(self, name) != value:
                    raise ConfigError(
                        f"{name} is {getattr(self, name)!r} and kind is {self.kind}.",
                        f"Kind {self.kind} has {name} {value}.",
                    )
        check_foresight(self)

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


ONLY_OF = {"d_token": "trn", "shared_classifier": "trn", "decoder_from": "trn", "exemplars": "colar"}
ONLY_OF |= {"generated": "fats", "runs": "fats", "unroll": "woad", "supervision": "woad"}
ONLY_OF |= {"decoder_heads": "oadtr", "decoder_feedforward": "oadtr"}
"""Settings of one kind alone, by name."""
CHOICES: dict[str, Iterable[str]] = {
    "kind": KINDS,
    "grid": GRIDS,
    "positions": POSITIONS,
    "encoder": ENCODERS,
    "integration": INTEGRATIONS,
    "cell": CELLS,
    "grouping": GROUPINGS,
    "supervision": SUPERVISIONS,
}

PUBLISHED = LSTRConfig(grid="sliding")
MINIROAD = LSTRConfig(kind="miniroad", d_feedforward=2048, work_length=128)
TESTRA = LSTRConfig(kind="testra", grid="anchored")
GATEHUB = LSTRConfig(kind="gatehub", dropout=0.5, work_length=8, long_length=1016, long_stride=1)
OADTR = LSTRConfig(
    kind="oadtr", dropout=0.1, n_heads=8, decoder_heads=4, work_length=64, l_enc=3, l_dec=5, anticipation=8
)
COLAR = LSTRConfig(kind="colar", work_length=64)
TRN = LSTRConfig(
    kind="trn",
    d_model=4096,
    d_token=3072,
    dropout=0.1,
    work_length=64,
    shared_classifier=True,
    decoder_from=0,
    anticipation=7,
)
CMERT = LSTRConfig(
    kind="cmert", grid="anchored", n_heads=8, dropout=0.0, work_length=16, long_length=1024, context=2, anticipation=8
)
MAT = LSTRConfig(kind="mat", grid="sliding", n_heads=4, dropout=0.0, long_length=1024, groups=8, anticipation=8)
IDN = LSTRConfig(kind="idn", flow_dim=2048, d_model=512, dropout=0.5, work_length=16)
FATS = LSTRConfig(kind="fats", flow_dim=0, d_model=4096, dropout=0.0)
ED = LSTRConfig(kind="ed", d_model=4096, dropout=0.0, work_length=16)
TTM = LSTRConfig(kind="ttm", n_heads=4, dropout=0.1, work_length=16)
WOAD = LSTRConfig(kind="woad", rgb_dim=1024, d_model=4096, d_feedforward=2048, dropout=0.1, work_length=750)
FOR_LITTLE_VIDEO = ("small", "lstr-small")
"""Presets for minutes of video; no kind was published at their sizes."""
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
    "gatehub-thumos14": GATEHUB,
    "oadtr-thumos14": OADTR,
    "colar-thumos14": COLAR,
    "trn-thumos14": TRN,
    "cmert-thumos14": CMERT,
    "mat-thumos14": MAT,
    "mat-tvseries": MAT,
    "idn-thumos14": IDN,
    "fats-thumos14": FATS,
    "woad-thumos14": WOAD,
    "woad-video-thumos14": dataclasses.replace(WOAD, supervision="video"),
    "efc-thumos14": dataclasses.replace(ED, kind="efc"),
    "ed-thumos14": ED,
    "red-thumos14": dataclasses.replace(ED, kind="red"),
    "ttm-thumos14": TTM,
    "lap-like-thumos14": LSTRConfig(kind="lap-like", dropout=0.1, work_length=64),
    "tfn-like-thumos14": LSTRConfig(kind="tfn-like", d_model=512, work_length=16),
    "conv-deconv-thumos14": LSTRConfig(kind="conv-deconv", work_length=8),
    "small": LSTRConfig(kind="rnn", d_model=128, dropout=0.3, work_length=32, long_length=0),
    "lstr-small": LSTRConfig(
        d_model=128, n_heads=4, d_feedforward=128, dropout=0.3, work_length=8, long_length=0, n0=8, n1=8, l_enc=1
    ),
}
"""Model shapes by name. `small` is for data sets of minutes, which the published size learns by heart; it is what did
best there of all kinds (documentation, page "What the numbers mean"). `lstr-small` is LSTR of that size, without its
long memory, for that is learnt by heart first."""


def from_json(text: str) -> LSTRConfig:
    """LSTRConfig from its JSON. Fields it lacks keep their defaults. Raises ConfigError."""
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"The model configuration is not JSON ({error}).", "Save the checkpoint again.") from error
    if not isinstance(values, dict):
        raise ConfigError("The model configuration is not a JSON object.", "Save the checkpoint again.")
    return override(LSTRConfig(), values)

"""The settings of LSTR, and the presets that have them."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, get_args

from lstr.config import Uses, WindowConfig
from lstr.errors import ConfigError
from lstr.models.kind import Preset

Encoder = Literal[
    "two-stage",
    "one-stage",
    "stage2-self-attention",
    "self-attention",
    "projection",
    "none",
    "joined",
]
Integration = Literal["cross-attention", "average", "concatenation", "mlp"]
ENCODERS: tuple[str, ...] = get_args(Encoder)
INTEGRATIONS: tuple[str, ...] = get_args(Integration)


class LSTRConfig(WindowConfig, frozen=True):
    """What an LSTR is made of."""

    uses: ClassVar[Uses] = Uses(anticipation=True)

    kind: str = "lstr"
    positions: Literal["slot", "distance"] = "slot"
    """slot: a token's place in the window (published code). distance: chunks before the newest (paper)."""
    encoder: Encoder = "two-stage"
    """How the long memory is compressed; `Network` of models.lstr has a line for each."""
    integration: Integration = "cross-attention"
    """How the compressed long memory and the work memory meet; `Network` of models.lstr has a line for each."""
    gru: bool = False
    """Let a GRU sum up everything older than the memories, as one more token for the decoder (paper, figure 3)."""

    def check(self) -> None:
        """Like `WindowConfig.check`."""
        super().check()
        if self.encoder == "joined" and self.integration != "cross-attention":
            raise ConfigError(
                f'encoder is "joined", so integration cannot be {self.integration!r}.',
                "Leave integration as it is: one self-attention model over both memories has no second way.",
            )
        if self.anticipation and self.integration == "mlp":
            raise ConfigError(
                f"anticipation is {self.anticipation}, and integration mlp has no decoder for tokens of the future.",
                "Choose another integration.",
            )

    @property
    def told_by_tensors(self) -> bool:
        """Only the proposed design has all the tensors that tell."""
        return (self.encoder, self.integration) == ("two-stage", "cross-attention")


PUBLISHED = LSTRConfig(grid="sliding")
# The published code has these, which that of TeSTra, MAT and CMeRT grew from.
PUBLISHED_TRAINING: dict[str, Any] = {
    "lr": 7e-5,
    "schedule": "published",
    "warmup_epochs": 10,
    "windows": "tiled",
    "tails": False,
    "long_sampling": "stretched",
}
# For minutes of video; as in the preset `rnn-small`.
SMALL_TRAINING: dict[str, Any] = {"epochs": 40, "lr": 5e-4, "weight_decay": 1e-4, "warmup": 0.1, "standardise": True}
SMALL = LSTRConfig(
    d_model=128, n_heads=4, d_feedforward=128, dropout=0.3, work_length=8, long_length=0, n0=8, n1=8, l_enc=1
)
PRESETS = {
    "thumos14": Preset(LSTRConfig()),
    "tvseries": Preset(LSTRConfig(), {"metric": "mcAP"}),
    "hacs": Preset(LSTRConfig()),
    "thumos14-published": Preset(PUBLISHED, PUBLISHED_TRAINING),
    "tvseries-published": Preset(PUBLISHED, {**PUBLISHED_TRAINING, "metric": "mcAP"}),
    # without its long memory, for that is learnt by heart first
    "lstr-small": Preset(SMALL, {**SMALL_TRAINING, "hide_long": 0.8}, for_little_video=True),
}

"""LSTR as a kind of model: its network, with cheap streams and whole videos."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lstr.config import WindowConfig
from lstr.metrics.scoring_rule import LSTR_RULE
from lstr.models import lstr_step
from lstr.models.kind import PUBLISHED_TRAINING, SMALL_TRAINING, Kind, Preset, read_publication
from lstr.models.lstr_network import LSTRConfig, LSTRNetwork
from lstr.models.published import Published, Tables
from lstr.models.stream import Tensors, pack
from lstr.windows.plans import Compressed


class LSTR(LSTRNetwork):
    """The Long Short-Term Transformer and the designs it is compared with, see `LSTRNetwork`."""

    scoring_rule = LSTR_RULE
    plans = Compressed

    def video_logits(self, features: Tensor, batch_size: int, constants: lstr_step.Constants | None = None) -> Tensor:
        """See `Model.video_logits`; what windows have in common is computed once."""
        from lstr.models import dense  # a stream needs none of it

        return dense.video_logits(constants or self.constants(), features, batch_size)

    def constants(self, packed: bool = True) -> lstr_step.Constants:
        """See `Model.constants`."""
        return lstr_step.constants(self, pack(self) if packed else self)

    def begin(self, n_streams: int) -> Tensors:
        """Return the rings and caches of B streams, see `lstr.models.lstr_step`."""
        return lstr_step.begin(self, n_streams)

    def step(
        self, constants: lstr_step.Constants, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """See `Model.step`."""
        return lstr_step.step(constants, tensors, plan, features, donate)


PUBLISHED = LSTRConfig(grid="sliding")
SMALL = LSTRConfig(
    d_model=128, n_heads=4, d_feedforward=128, dropout=0.3, work_length=8, long_length=0, n0=8, n1=8, l_enc=1
)
PRESETS = {
    "thumos14": Preset(LSTRConfig()),
    "tvseries": Preset(LSTRConfig(), {"metric": "mcAP"}),
    "hacs": Preset(LSTRConfig()),
    "thumos14-published": Preset(PUBLISHED, PUBLISHED_TRAINING),
    "tvseries-published": Preset(PUBLISHED, {**PUBLISHED_TRAINING, "metric": "mcAP"}),
    # hides the long memory from most windows, because a model overfits on that first
    "lstr-small": Preset(SMALL, {**SMALL_TRAINING, "hide_long": 0.8}, for_little_video=True),
}


class PublishedLSTR(Published):
    """Checkpoints of the published code of LSTR, from which others started."""

    config: WindowConfig = PUBLISHED
    # a file of TeSTra's code fits too, unless it anticipates
    marks = ("dec_modules.layers.0.linear1.weight",)
    absent: tuple[str, ...] = ("gen_query.weight", "dec_query.weight")
    sizes = {
        "d_feedforward": ("dec_modules.layers.0.linear1.weight", 0),
        "n0": ("enc_queries.0.weight", 0),
        "n1": ("enc_queries.1.weight", 0),
        "anticipation": ("future_tokens.weight", 0),
    }
    layers = {"l_enc": "enc_modules.1.layers.", "l_dec": "dec_modules.layers."}
    needed = ("d_feedforward", "l_dec")
    unknown: tuple[str, ...] = ("n_heads", "work_length", "long_length", "long_stride")

    def shapes(self, tensors: Tables) -> dict[str, int]:
        """See `Published.shapes`, with `long_memory`, 1 or 0."""
        return {**super().shapes(tensors), "long_memory": int("enc_queries.0.weight" in tensors)}

    def settings(self, found: Mapping[str, int], tensors: Tables, changes: Mapping[str, Any]) -> dict[str, Any]:
        """See `Published.settings`."""
        known = super().settings(found, tensors, changes)
        return known if known.pop("long_memory") else {**known, "long_length": 0}


KIND = Kind(LSTR, LSTRConfig, read_publication("lstr"), PRESETS, PublishedLSTR())

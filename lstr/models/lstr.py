"""LSTR as one of the kinds of model: its network, with what makes whole videos and streams of it cheap."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from lstr.config import WindowConfig
from lstr.metrics.scoring_rule import LSTR_RULE
from lstr.models import dense
from lstr.models import lstr_caches as caches
from lstr.models import lstr_precomputed as precomputed
from lstr.models.kind import Kind
from lstr.models.lstr_config import PRESETS, PUBLISHED, LSTRConfig
from lstr.models.lstr_network import LSTRNetwork
from lstr.models.lstr_precomputed import Constants
from lstr.models.packing import pack
from lstr.models.publication import ANET, KINETICS, LSTR_TABLES, Publication, anticipation, detection
from lstr.models.published import Published, Tables
from lstr.models.stream import Tensors
from lstr.windows.long_plan import Compressed


class LSTR(LSTRNetwork):
    """The Long Short-Term Transformer and the designs it is compared with; `Network` lists them."""

    scoring_rule = LSTR_RULE
    plans = Compressed

    def dense_logits(self, features: Tensor, batch_size: int, constants: Constants | None = None) -> Tensor:
        """Like `video_logits`, computing what windows have in common once (`lstr.models.dense`)."""
        return dense.video_logits(constants or self.constants(), features, batch_size)

    def constants(self) -> Constants:
        """Packed weights, and what queries and positions come to."""
        return precomputed.constants(self, pack(self))

    def plain_constants(self) -> Constants:
        """Like `constants`, with the weights as they are."""
        return precomputed.constants(self, self)

    def begin(self, n_streams: int) -> Tensors:
        """The rings and caches of B streams, as `lstr.models.lstr_caches` states them."""
        return caches.begin(self, n_streams)

    def step(
        self, constants: Constants, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """Like `Model.step`."""
        return caches.step(constants, tensors, plan, features, donate)


class PublishedLSTR(Published):
    """The published code of LSTR, which that of others began as."""

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
        """Like `Published.shapes`, with `long_memory`, 1 or 0."""
        return {**super().shapes(tensors), "long_memory": int("enc_queries.0.weight" in tensors)}

    def settings(self, found: Mapping[str, int], tensors: Tables, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Like `Published.settings`."""
        known = super().settings(found, tensors, changes)
        return known if known.pop("long_memory") else {**known, "long_length": 0}


# The settings of THUMOS'14 and of TVSeries; its code's and its text's, which state the same numbers.
PUBLISHED_PRESETS = ("thumos14-published", "thumos14"), ("tvseries-published", "tvseries")
KIND = Kind(
    LSTR,
    LSTRConfig,
    Publication(
        "LSTR",
        "Long Short-Term Transformer for Online Action Detection, Xu et al., NeurIPS 2021",
        "https://arxiv.org/abs/2107.03377",
        "amazon-science/long-short-term-transformer",
        "Apache-2.0",
        "within 1e-5 in probability",
        ("lstr_small",),
        (
            *detection(69.5, 89.1, KINETICS, LSTR_TABLES, *PUBLISHED_PRESETS),
            *detection(65.3, 88.1, ANET, LSTR_TABLES, *PUBLISHED_PRESETS),
            *anticipation(50.1, 80.8, ANET, PUBLISHED_PRESETS[0]),
        ),
    ),
    PRESETS,
    PublishedLSTR(),
)

"""LSTR as one of the kinds of model: its network, with what makes whole videos and streams of it cheap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lstr.layers.packing import pack
from lstr.metrics.scoring_rule import LSTR_RULE
from lstr.models.lstr import caches, dense, precomputed
from lstr.models.lstr.network import Network
from lstr.models.lstr.precomputed import Constants
from lstr.models.lstr.stream_plan import make_plan
from lstr.models.stream import Plan, Tensors


class LSTR(Network):
    """The Long Short-Term Transformer and the designs it is compared with; `Network` lists them."""

    scoring_rule = LSTR_RULE

    def dense_logits(self, features: Tensor, batch_size: int, constants: Constants | None = None) -> Tensor:
        """As `video_logits`, computing what windows have in common once (`lstr.models.lstr.dense`)."""
        return dense.video_logits(constants or self.constants(), features, batch_size)

    def constants(self, precision: str = "float32") -> Constants:
        """Packed weights, and what queries and positions come to. Precisions are float32 and bf16, else ConfigError."""
        return precomputed.constants(self, pack(self, precision))

    def plain_constants(self) -> Constants:
        """As `constants`, with the weights as they are."""
        return precomputed.constants(self, self)

    def begin(self, n_streams: int) -> Tensors:
        """The rings and caches of B streams, as `lstr.models.lstr.caches` states them."""
        return caches.begin(self, n_streams)

    def plan(self, chunks: NDArray[np.int64]) -> Plan:
        """As `Model.plan`: `lstr.models.lstr.stream_plan` states it."""
        return make_plan(self.config, chunks)

    def step(
        self, constants: Constants, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """As `Model.step`."""
        return caches.step(constants, tensors, plan, features, donate)

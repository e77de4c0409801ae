"""LSTR as one of the kinds of model: its network, with what makes whole videos and streams of it cheap."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from lstr.models.kind import Advance, Tensors
from lstr.models.lstr import caches, dense, precomputed
from lstr.models.lstr.cuda_graphs import CapturedStep
from lstr.models.lstr.network import Network
from lstr.models.lstr.precomputed import Constants


class LSTR(Network):
    """The Long Short-Term Transformer and the designs it is compared with; `Network` lists them."""

    def dense_logits(self, features: Tensor, batch_size: int, constants: Constants | None = None) -> Tensor:
        """As `video_logits`, computing what windows have in common once (`lstr.models.lstr.dense`)."""
        return dense.video_logits(constants or self.constants(), features, batch_size)

    def constants(self, precision: str = "float32") -> Constants:
        """Packed weights, and what queries and positions come to. Precisions are float32 and bf16, else ConfigError."""
        return precomputed.constants(self, precision)

    def begin(self, n_streams: int) -> Tensors:
        """The rings and caches of B streams, as `lstr.models.lstr.caches` states them."""
        return caches.begin(self, n_streams)

    def advance(self, constants: Constants, tensors: Tensors, chunks: NDArray[np.int64], features: Tensor) -> Tensor:
        """Logits (B, 1 + anticipation, C) of the next chunk of B streams, features (B, D)."""
        return caches.advance(constants, tensors, chunks, features)

    def capture(self, constants: Constants, tensors: Tensors) -> Advance:
        """Both kinds of steps, captured. Raises LstrError unless on a GPU."""
        if self.classifier.weight.device.type != "cuda":
            return super().capture(constants, tensors)
        step = CapturedStep(constants, tensors)
        step.prepare()
        return step

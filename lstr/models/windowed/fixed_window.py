"""Kinds whose window has one fixed length and looks at all of it: what they share.

Where the video is younger than the window, rows of zeros stand before it, as in GateHUB's code; OadTR's and Colar's
score no such chunk.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.models.kind import Model
from lstr.models.stream import Plan, Tensors, put, take
from lstr.windows.windows import Outputs, Windows


class FixedWindow(Model):
    """A kind whose scores follow from something of each of the last `config.work_length` chunks, oldest first.

    A subclass has `of_chunk` and `score`; a stream keeps a ring of what `of_chunk` gives.
    """

    kept_width: int
    """K, of what is kept of a chunk"""

    def of_chunk(self, features: Tensor) -> Tensor:
        """What is kept of chunks with features (..., D): (..., K)."""
        raise NotImplementedError

    def score(self, kept: Tensor, constants: Any = None) -> Tensor:
        """Logits (B, 1 + n_ahead, C) of the newest chunk and those ahead, from what is kept of a window (B, W, K).

        constants are those of `constants()`, None to compute them, and then with gradients.
        """
        raise NotImplementedError

    def outputs(self) -> Outputs:
        """The newest chunk and the chunks after it."""
        n = 1 + self.config.n_ahead
        return Outputs(np.full(n, -1, dtype=np.int64), np.arange(n))

    def forward(self, windows: Windows) -> Any:
        """Logits (B, 1 + n_ahead, C)."""
        return self.score(self.of_chunk(windows.newest_last()))

    def video_logits(self, features: Tensor, batch_size: int) -> Tensor:
        """Logits (L, 1 + n_ahead, C) of a video's features (L, D)."""
        constants = self.constants()
        windows = self.windows_of(self.of_chunk(self.after_zeros(features)))  # (L, W, K)
        return torch.cat([self.score(part, constants) for part in windows.split(batch_size)])

    def after_zeros(self, features: Tensor) -> Tensor:
        """Features (L, D) after the rows of zeros (W - 1, D) that stand before a video."""
        return torch.cat([features.new_zeros(self.config.work_length - 1, features.shape[1]), features])

    def windows_of(self, rows: Tensor) -> Tensor:
        """The windows (L, W, K) of rows (W - 1 + L, K) that stand one after the other: a view."""
        return rows.unfold(0, self.config.work_length, 1).transpose(1, 2)

    def begin(self, n_streams: int) -> Tensors:
        """A ring (B, W, K) of what is kept of the last chunks."""
        shape = (n_streams, self.config.work_length, self.kept_width)
        return {"window": self.classifier.weight.new_zeros(shape)}

    def plan(self, chunks: NDArray[np.int64]) -> Plan:
        """As `Model.plan`: which streams (B,) begin, the newest chunk's row (B,), and the window's (B * W,)."""
        W, streams = self.config.work_length, np.arange(len(chunks))[:, None]
        rows = streams * W + (chunks[:, None] + 1 + np.arange(W)) % W  # (B, W) oldest first
        return {"fresh": chunks == 0, "row": rows[:, -1], "rows": rows.ravel()}

    def step(
        self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """As `Model.step`."""
        ring, window = self.take_in(tensors["window"], plan, features, donate)
        return self.score(window, constants), {"window": ring}

    def take_in(self, ring: Tensor, plan: Tensors, features: Tensor, donate: bool) -> tuple[Tensor, Tensor]:
        """The ring (B, W, K) with the next chunks, features (B, D), and the windows in it (B, W, K), oldest first."""
        kept = self.of_chunk(torch.cat([features, torch.zeros_like(features[:1])]))  # (B + 1, K)
        if "fresh" in plan:
            ring = torch.where(plan["fresh"][:, None, None], kept[-1], ring)
        ring = put(ring, plan["row"], kept[:-1], donate)
        return ring, take(ring, plan["rows"], self.config.work_length)

"""Bases of kinds that decide from the work memory alone, without a state."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lstr.models.kind import Model
from lstr.models.stream import Tensors, begun, put, take
from lstr.windows import indices as memory
from lstr.windows.plans import Ring, Slots
from lstr.windows.windows import Outputs, Windows


class Windowed(Model):
    """A model whose scores depend on the last `config.work_length` chunks and on nothing older.

    A stream keeps a token of each of these chunks: all of a chunk that does not depend on its place in the window. A
    subclass says what a token is (`embed`) and what follows from a window of them (`decide`).
    """

    plans = Slots
    token_dim: int
    """Width E of a token."""

    @abstractmethod
    def embed(self, features: Tensor) -> Tensor:
        """Features (..., D) to tokens (..., E)."""

    @abstractmethod
    def decide(self, tokens: Tensor, newest: Tensor, constants: Any) -> Tensor:
        """Logits (B, 1 + n_ahead, C) of windows of tokens (B, W, E), oldest first, whose newest slot is `newest` (B,).

        Later slots have no effect; `constants` are those of `constants()`.
        """

    def video_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        """See `Model.video_logits`."""
        tokens, constants = self.embed(features), constants or self.constants()  # tokens (L, E)
        rows = []
        for ends in memory.in_pieces(len(features), batch_size):
            chunks, present = (torch.from_numpy(a).to(features.device) for a in memory.work_indices(ends, self.config))
            rows.append(self.decide(tokens[chunks], present.sum(dim=1) - 1, constants))
        return torch.cat(rows)

    def begin(self, n_streams: int) -> Tensors:
        """Tokens (B, W, E) of B streams, oldest first; slot 0 holds the first chunk of a video."""
        return {"tokens": self.classifier.weight.new_zeros(n_streams, self.config.work_length, self.token_dim)}

    def step(
        self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """See `Model.step`."""
        kept = begun(tensors["tokens"], plan.get("fresh"))
        if "full" in plan:
            kept = torch.where(plan["full"][:, None, None], kept.roll(-1, dims=1), kept)
        here = torch.arange(kept.shape[1], device=kept.device) == plan["newest"][:, None]  # (B, W)
        kept = torch.where(here[..., None], self.embed(features)[:, None], kept)
        return self.decide(kept, plan["newest"], constants), {"tokens": kept}


class FixedWindow(Model):
    """A kind whose scores follow from something of each of the last `config.work_length` chunks, oldest first.

    Where the video is younger than the window, rows of zeros stand before it, as in GateHUB's code; OadTR's and Colar's
    score no such chunk. A subclass has `feature_head_work` and `score`; a stream keeps a ring of what `of_chunk` gives.
    """

    feature_head_work: nn.Module
    plans = Ring

    def of_chunk(self, features: Tensor) -> Tensor:
        """Return what a stream keeps of chunks with features (..., D): (..., K)."""
        return self.feature_head_work(features)

    def score(self, kept: Tensor, constants: Any = None) -> Tensor:
        """Logits (B, 1 + n_ahead, C) of the newest chunk and those ahead, from what is kept of a window (B, W, K).

        constants are those of `constants()`, None to compute them, and then with gradients.
        """
        raise NotImplementedError

    def outputs(self) -> Outputs:
        """Return the newest chunk and the chunks after it."""
        n = 1 + self.config.n_ahead
        return Outputs(np.full(n, -1, dtype=np.int64), np.arange(n))

    def forward(self, windows: Windows) -> Any:
        """Return logits (B, 1 + n_ahead, C)."""
        return self.score(self.of_chunk(windows.newest_last()))

    def video_logits(self, features: Tensor, batch_size: int, constants: Any = None) -> Tensor:
        """See `Model.video_logits`."""
        constants = constants or self.constants()
        windows = self.windows_of(self.of_chunk(self.after_zeros(features)))  # (L, W, K)
        return torch.cat([self.score(part, constants) for part in windows.split(batch_size)])

    def after_zeros(self, features: Tensor) -> Tensor:
        """Features (L, D) after the rows of zeros (W - 1, D) that stand before a video."""
        return torch.cat([features.new_zeros(self.config.work_length - 1, features.shape[1]), features])

    def windows_of(self, rows: Tensor) -> Tensor:
        """Return the windows (L, W, K) of rows (W - 1 + L, K) that stand one after the other: a view."""
        return rows.unfold(0, self.config.work_length, 1).transpose(1, 2)

    def begin(self, n_streams: int) -> Tensors:
        """Return a ring (B, W, K) for the last chunks."""
        weight = self.classifier.weight
        width = self.of_chunk(weight.new_zeros(1, self.config.input_dim)).shape[-1]
        return {"window": weight.new_zeros(n_streams, self.config.work_length, width)}

    def step(
        self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """See `Model.step`."""
        ring, window = self.take_in(tensors["window"], plan, features, donate)
        return self.score(window, constants), {"window": ring}

    def take_in(self, ring: Tensor, plan: Tensors, features: Tensor, donate: bool) -> tuple[Tensor, Tensor]:
        """The ring (B, W, K) with the next chunks, features (B, D), and the windows in it (B, W, K), oldest first."""
        kept = self.of_chunk(torch.cat([features, torch.zeros_like(features[:1])]))  # (B + 1, K)
        if "fresh" in plan:
            ring = torch.where(plan["fresh"][:, None, None], kept[-1], ring)
        ring = put(ring, plan["row"], kept[:-1], donate)
        return ring, take(ring, plan["rows"], self.config.work_length)


def at_slot(states: Tensor, slots: Tensor) -> Tensor:
    """Return the state (B, E) at a slot of each window, of states (B, W, E) and slots (B,)."""
    return states.gather(1, slots[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]

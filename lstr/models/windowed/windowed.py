"""What kinds share that decide from the work memory alone and start anew at every chunk."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.models.kind import Model
from lstr.models.stream import Plan, Tensors, begun
from lstr.windows import indices as memory


class Windowed(Model):
    """A model whose scores depend on the last `config.work_length` chunks and on nothing older.

    A stream keeps a token of each of these chunks: all of a chunk that does not depend on its place in the window. A
    subclass says what a token is (`embed`) and what follows from a window of them (`decide`).
    """

    token_dim: int
    """Width E of a token."""

    @abstractmethod
    def embed(self, features: Tensor) -> Tensor:
        """Features (..., D) to tokens (..., E)."""

    @abstractmethod
    def decide(self, tokens: Tensor, newest: Tensor, constants: Any) -> Tensor:
        """Logits (B, 1 + n_ahead, C) of windows of tokens (B, W, E), oldest first, whose newest slot is `newest` (B,).

        What stands in later slots has no part in them; `constants` are those of `constants()`.
        """

    def video_logits(self, features: Tensor, batch_size: int) -> Tensor:
        """Logits (L, 1 + n_ahead, C) of a video's features (L, D): chunk T has those of its window."""
        tokens, constants = self.embed(features), self.constants()  # tokens (L, E)
        rows = []
        for ends in memory.in_pieces(len(features), batch_size):
            chunks, present = (torch.from_numpy(a).to(features.device) for a in memory.work_indices(ends, self.config))
            rows.append(self.decide(tokens[chunks], present.sum(dim=1) - 1, constants))
        return torch.cat(rows)

    def begin(self, n_streams: int) -> Tensors:
        """Tokens (B, W, E) of B streams, oldest first; a video's first chunk stands in slot 0."""
        return {"tokens": self.classifier.weight.new_zeros(n_streams, self.config.work_length, self.token_dim)}

    def plan(self, chunks: NDArray[np.int64]) -> Plan:
        """As `Model.plan`: which streams (B,) begin and which leave their oldest chunk, and the newest's slot (B,)."""
        W = self.config.work_length
        return {"fresh": chunks == 0, "full": chunks >= W, "newest": np.minimum(chunks, W - 1)}

    def step(
        self, constants: Any, tensors: Tensors, plan: Tensors, features: Tensor, donate: bool = False
    ) -> tuple[Tensor, Tensors]:
        """As `Model.step`."""
        kept = begun(tensors["tokens"], plan.get("fresh"))
        if "full" in plan:
            kept = torch.where(plan["full"][:, None, None], kept.roll(-1, dims=1), kept)
        here = torch.arange(kept.shape[1], device=kept.device) == plan["newest"][:, None]  # (B, W)
        kept = torch.where(here[..., None], self.embed(features)[:, None], kept)
        return self.decide(kept, plan["newest"], constants), {"tokens": kept}


def at_slot(states: Tensor, slots: Tensor) -> Tensor:
    """The state (B, E) at a slot of each window, of states (B, W, E) and slots (B,)."""
    return states.gather(1, slots[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]

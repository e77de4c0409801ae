"""What kinds share that decide from the work memory alone and start anew at every chunk."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.models.kind import Model, Tensors
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
        for start in range(0, len(features), batch_size):
            ends = np.arange(start, min(start + batch_size, len(features)))
            chunks, present = (torch.from_numpy(a).to(features.device) for a in memory.work_indices(ends, self.config))
            rows.append(self.decide(tokens[chunks], present.sum(dim=1) - 1, constants))
        return torch.cat(rows)

    def begin(self, n_streams: int) -> Tensors:
        """Tokens (B, W, E) of B streams, oldest first; a video's first chunk stands in slot 0."""
        return {"tokens": self.classifier.weight.new_zeros(n_streams, self.config.work_length, self.token_dim)}

    def advance(self, constants: Any, tensors: Tensors, chunks: NDArray[np.int64], features: Tensor) -> Tensor:
        """Logits (B, 1 + n_ahead, C) of the next chunk of every stream, features (B, D), changing the tokens.

        chunks (B,) counts the chunks each stream saw before; one at 0 begins anew.
        """
        W, device = self.config.work_length, features.device
        fresh, full = (torch.from_numpy(which).to(device)[:, None, None] for which in (chunks == 0, chunks >= W))
        newest = torch.from_numpy(np.minimum(chunks, W - 1)).to(device)  # (B,)
        kept = tensors["tokens"]
        kept.copy_(torch.where(full, kept.roll(-1, dims=1), kept).masked_fill(fresh, 0))
        kept.scatter_(1, newest[:, None, None].expand(-1, 1, self.token_dim), self.embed(features)[:, None])
        return self.decide(kept, newest, constants)


def at_slot(states: Tensor, slots: Tensor) -> Tensor:
    """The state (B, E) at a slot of each window, of states (B, W, E) and slots (B,)."""
    return states.gather(1, slots[:, None, None].expand(-1, 1, states.shape[2]))[:, 0]

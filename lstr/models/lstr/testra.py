"""TeSTra (Zhao and Krähenbühl, ECCV 2022): an LSTR whose long memory is a sum over time under a kernel.

Long tokens have no positions, so that a chunk's score and value in stage 1 never change; a kernel over the slots takes
their place: box, all slots alike, or Laplace, `config.decay` times as much for each slot further back. Every decoder
layer attends to the work tokens too, as they enter the decoder. All else, the names of the weights with it, is LSTR's.

The definition of the scores is the published batch evaluation. The published stream departs from it: it leaves the
bias of the values out, counts chunk 0 twice in each of its sums and, with the box kernel, never lets a chunk go. Here a
stream keeps scores and values of chunks in rings (`lstr.models.lstr.caches`), which is exact.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from lstr.config import LSTRConfig
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.lstr.model import LSTR
from lstr.windows.windows import Outputs, Part

PUBLISHED_NAMES = {"dec_query.": "future_tokens."}
"""First part of a published tensor's name to ours, where they differ."""


class TeSTra(LSTR):
    """An LSTR without positions in the long memory, with a kernel there, whose decoder sees the work tokens twice."""

    sees_work = True
    slot_scores: Tensor

    def __init__(self, config: LSTRConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        age = torch.arange(config.n_long - 1, -1, -1, dtype=torch.float64)  # (n_long,), the newest is 0
        scores = (config.decay**age + 1e-10).log() if config.decay < 1 else torch.zeros_like(age)
        self.register_buffer("slot_scores", scores.float(), persistent=False)

    scoring_rule = ScoringRule("TeSTra", "long videos", "ignored")

    @property
    def first_position(self) -> int:
        """That of the first work slot; the long slots take none."""
        return 0

    def kernel(self) -> Tensor:
        """Logarithms of what the long slots weigh (n_long,), oldest first."""
        return self.slot_scores

    def outputs(self) -> Outputs:
        """Every work slot, then the chunks that follow the newest; the loss is one mean over all of them."""
        outputs = super().outputs()
        return replace(outputs, parts=(Part(np.arange(len(outputs.slots))),))

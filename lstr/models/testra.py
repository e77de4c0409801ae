"""TeSTra (Zhao and Krähenbühl, ECCV 2022): an LSTR with a long memory that is a sum over time under a kernel.

Long tokens have no positions, so score and value of a chunk in stage 1 never change. Instead there is a kernel over the
slots: box, all slots alike, or Laplace, `config.decay` times as much for each slot further back. Every decoder layer
attends to the work tokens too, as they enter the decoder. Everything else, names of weights included, is LSTR's.

The scores equal the published batch evaluation. The published stream differs from it: it omits the bias of the values,
counts chunk 0 twice in each of its sums and, with the box kernel, never drops a chunk. Here a stream is exact.
"""

from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from msgspec import Meta

from lstr.errors import ConfigError
from lstr.metrics.scoring_rule import ScoringRule
from lstr.models.kind import PUBLISHED_TRAINING, Kind, Preset
from lstr.models.lstr import LSTR, LSTRConfig, PublishedLSTR
from lstr.models.published import read_publication
from lstr.windows.windows import Outputs, Part


class TeSTraConfig(LSTRConfig, frozen=True):
    """Settings of TeSTra: an LSTR of the proposed design, and its kernel."""

    kind = "testra"
    decay: Annotated[float, Meta(gt=0, le=1)] = 1.0
    """Weight of a slot of the long memory relative to the next newer slot: 1 is the box kernel, less than 1 a Laplace
    kernel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        fixed = {"encoder": "two-stage", "integration": "cross-attention", "positions": "slot", "gru": False}
        for name, value in fixed.items():
            if (own := getattr(self, name)) != value:
                message, hint = f"Kind {self.kind} does not support {name} {own!r}.", f"set {name} to {value!r}"
                raise ConfigError(message, f"{hint}, or use kind lstr.")

    @property
    def tiling(self) -> tuple[int, int, int]:
        """See `WindowConfig.tiling`: a window's future belongs to it."""
        tile = self.work_length + self.anticipation
        return tile, tile, self.anticipation


class TeSTra(LSTR):
    """An LSTR with a kernel instead of positions in the long memory, and a decoder that sees the work tokens twice."""

    config: TeSTraConfig
    sees_work = True
    scoring_rule = ScoringRule("TeSTra", "long videos", "ignored")

    def __init__(self, config: TeSTraConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        age = torch.arange(config.n_long - 1, -1, -1, dtype=torch.float64)  # (n_long,), the newest is 0
        scores = (config.decay**age + 1e-10).log() if config.decay < 1 else torch.zeros_like(age)
        self.slot_scores = scores.float()  # logarithms of the weights, oldest first
        self.first_position = 0  # the long slots take no positions

    def outputs(self) -> Outputs:
        """Return every work slot, then the chunks that follow the newest; the loss is one mean over all of them."""
        outputs = super().outputs()
        return replace(outputs, parts=(Part(np.arange(len(outputs.slots))),))


PUBLISHED = TeSTraConfig(grid="anchored")


class PublishedTeSTra(PublishedLSTR):
    """The published code of TeSTra. Its tensors have the names and shapes of LSTR's, except with anticipation."""

    config = PUBLISHED
    names = {"dec_query.": "future_tokens."}
    absent = ("gen_query.weight",)  # a file of LSTR's code fits too
    unknown = (*PublishedLSTR.unknown, "decay")


PRESETS = {
    "testra-thumos14": Preset(PUBLISHED, PUBLISHED_TRAINING),
    "testra-laplace-thumos14": Preset(PUBLISHED.replace(decay=0.97), PUBLISHED_TRAINING),
}
KIND = Kind(TeSTra, TeSTraConfig, read_publication("testra"), PRESETS, PublishedTeSTra())

"""A kind of model as another package may have one: the mean of what was seen, each chunk half as heavy as the next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.layers.heads import FeatureHead
from lstr.models.kind import Kind, Model
from lstr.models.publication import DESCRIPTION, Publication
from lstr.windows.windows import Outputs


@dataclass(frozen=True)
class MeanConfig(WindowConfig):
    """What it is made of."""

    uses: ClassVar[Uses] = Uses(long_memory=False, heads=False)

    kind: str = "mean"
    share: float = 0.5
    """What a chunk weighs beside all before it."""


class Mean(Model):
    """A class from the mean of the tokens so far, each half as heavy as the next."""

    def __init__(self, config: MeanConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        self.feature_head_work = FeatureHead(config.input_dim, config.d_model)
        self.classifier = nn.Linear(config.d_model, n_classes)

    def outputs(self) -> Outputs:
        W = self.config.work_length
        return Outputs(np.arange(W), np.zeros(W, dtype=np.int64))

    def forward(self, windows) -> Tensor:
        return self.means(self.feature_head_work(windows.work))

    def video_logits(self, features: Tensor, batch_size: int) -> Tensor:
        return self.means(self.feature_head_work(features)[None])[0][:, None]

    def begin(self, n_streams: int) -> dict[str, Tensor]:
        return {"mean": self.classifier.weight.new_zeros(n_streams, self.config.d_model)}

    def advance(self, constants, tensors, chunks, features: Tensor) -> Tensor:
        tensors["mean"][torch.from_numpy(chunks == 0)] = 0
        tensors["mean"].add_(self.feature_head_work(features)).mul_(0.5)
        return self.classifier(tensors["mean"])[:, None]

    def means(self, tokens: Tensor) -> Tensor:
        mean, logits = torch.zeros_like(tokens[:, 0]), []
        for token in tokens.unbind(dim=1):
            mean = mean + self.config.share * (token - mean)
            logits.append(self.classifier(mean))
        return torch.stack(logits, dim=1)


KIND = Kind(
    Mean,
    MeanConfig,
    Publication(
        "Mean", "A model of the tests, nobody, nowhere", 2026, "", "", "none", DESCRIPTION, "as simple as can be"
    ),
)

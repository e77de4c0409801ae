"""Kind conv-deconv: convolutions that halve a block of chunks in time, and others that double it. All of it is ours.

A stand-in for CDC (Shou et al., CVPR 2017) on features of chunks. CDC itself is made of filters on pixels that upsample
in time while they downsample in space, and scores every frame of a window that knows the frame's future; none of that
is here. Of a block, the newest position alone is a score; the others, which know their future, are trained on and no
more.
"""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig
from lstr.models.encoder_decoder import TRAINING
from lstr.models.heads import FeatureHead
from lstr.models.kind import Kind, Model, Preset
from lstr.models.publication import Publication
from lstr.models.windowed import FixedWindow
from lstr.windows.windows import Outputs, Windows

# A block is as long as a multiple of this, with tokens of zeros before its first chunk.
HALVED = 4


class ConvDeconvConfig(WindowConfig, frozen=True):
    """What a model of kind conv-deconv is made of."""

    uses: ClassVar[Uses] = Uses(long_memory=False, heads=False)

    kind: str = "conv-deconv"


class ConvDeconv(FixedWindow):
    """Two convolutions and two transposed ones over `config.work_length` chunks, each with a stride of 2."""

    def __init__(self, config: ConvDeconvConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        self.feature_head_work = FeatureHead(config.input_dim, d_model)
        shape = (d_model, d_model, 4, 2, 1)  # kernel, stride and padding after the widths
        self.down = nn.Sequential(nn.Conv1d(*shape), nn.ReLU(), nn.Conv1d(*shape), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose1d(*shape), nn.ReLU(), nn.ConvTranspose1d(*shape), nn.ReLU())
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(d_model, n_classes)

    def score(self, kept: Tensor, constants: None = None) -> Tensor:
        """Logits (B, 1, C) of the newest chunk, from the tokens (B, W, d_model) of a window."""
        return self.score_all(kept)[:, -1:]

    def score_all(self, kept: Tensor) -> Tensor:
        """Logits (B, W, C) of all chunks of a window, tokens (B, W, d_model) oldest first."""
        before = -kept.shape[1] % HALVED
        block = F.pad(kept, (0, 0, before, 0)).transpose(1, 2)  # (B, d_model, N)
        return self.classifier(self.dropout(self.up(self.down(block)).transpose(1, 2)[:, before:]))

    def outputs(self) -> Outputs:
        """Every work slot, for the loss; the newest alone is a score."""
        return Model.outputs(self)

    def forward(self, windows: Windows) -> Tensor:
        """Logits (B, W, C) of every work slot."""
        return windows.by_slot(self.score_all(self.of_chunk(windows.newest_last())))


KIND = Kind(
    ConvDeconv,
    ConvDeconvConfig,
    Publication(
        "in the place of CDC",
        "CDC: Convolutional-De-Convolutional Networks for Precise Temporal Action Localization in Untrimmed Videos, "
        "Shou et al., CVPR 2017",
        "https://arxiv.org/abs/1703.01515",
        "",
        "MIT; no code looked at",
        "not CDC, whose filters work on pixels and see the future: convolutions in time on chunk features, all of it "
        "ours, and no number of the paper is claimed",
        differs=("the training is ours",),
    ),
    {"conv-deconv-thumos14": Preset(ConvDeconvConfig(work_length=8), TRAINING)},
)

"""Convolutions over a window of chunks: kinds tfn-like and conv-deconv. The layouts are not from a paper.

tfn-like, after TFN (Eun et al., Pattern Recognition 2021), scores each chunk of a window by its relevance to the
present, and lets relevant chunks through. A small convolutional encoder-decoder computes the scores; it learns from
which chunks belong to the same unbroken run as the newest one. The classifier sees the embedding of the newest chunk
and the mean of the scored embeddings.

conv-deconv takes the place of CDC (Shou et al., CVPR 2017) on features of chunks. CDC itself has filters on pixels
that upsample in time while they downsample in space, and scores every frame of a window that sees the future of the
frame; none of that is here. Convolutions halve a block of chunks in time and transposed ones double it. Only the newest
position of a block is a score; the others, which see their future, are only trained on.
"""

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lstr.config import Uses, WindowConfig, define_config
from lstr.models.encoder_decoder import TRAINING as ED_TRAINING
from lstr.models.idn import TRAINING as IDN_TRAINING
from lstr.models.kind import FixedWindow, Kind, Model, Preset
from lstr.models.layers import FeatureHead
from lstr.models.published import read_publication
from lstr.windows.windows import Outputs, Part, Supervision, Windows, loss_mask, loss_of, masked_mean

TfnLikeConfig = define_config(__name__, "TfnLikeConfig", "tfn-like", Uses(long_memory=False, heads=False))


class TfnLike(FixedWindow):
    """A filter over the embeddings of `config.work_length` chunks, and a classifier of two layers."""

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        self.feature_head_work = FeatureHead(config.input_dim, d_model)
        down, up = (3, 2, 1), (3, 2, 1, 1)  # kernel, stride and padding: halve or double the length
        self.filter = nn.Sequential(
            *(nn.Conv1d(d_model, d_model, *down), nn.ReLU()),
            *(nn.Conv1d(d_model, d_model, *down), nn.ReLU()),
            *(nn.ConvTranspose1d(d_model, d_model, *up), nn.ReLU()),
            nn.ConvTranspose1d(d_model, 1, *up),
        )
        self.hidden_layer = nn.Sequential(nn.Linear(2 * d_model, d_model), nn.ReLU())
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(d_model, n_classes)

    def score(self, kept: Tensor, constants: None = None) -> Tensor:
        """Return logits (B, 1, C) of the newest chunk, from the embeddings (B, W, d_model) of a window."""
        return self.filtered(kept)[0]

    def filtered(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """See `score`; also return the relevance (B, W) of each chunk to the newest, as logits."""
        relevance = self.filter(kept.transpose(1, 2))[:, 0, : kept.shape[1]]
        mean = (relevance.sigmoid()[..., None] * kept).mean(dim=1)  # (B, d_model)
        both = torch.cat([mean, kept[:, -1]], dim=-1)
        return self.classifier(self.dropout(self.hidden_layer(both)))[:, None], relevance

    def outputs(self) -> Outputs:
        """Return the newest chunk; then, for labels without logits, every work slot."""
        W = self.config.work_length
        slots = np.append(-1, np.arange(W))
        return Outputs(slots, np.zeros_like(slots), (Part(np.arange(1)),))

    def forward(self, windows: Windows) -> tuple[Tensor, Tensor]:
        """Return logits (B, 1, C), and the relevance (B, W) by work slot."""
        logits, relevance = self.filtered(self.feature_head_work(windows.newest_last()))
        return logits, windows.by_slot(relevance)

    def loss(self, forwarded: tuple[Tensor, Tensor], windows: Windows, supervision: Supervision) -> Tensor:
        """Return the cross entropy of the newest chunk, plus one of each relevance: is it in the same run?"""
        logits, relevance = forwarded
        targets, ignore = supervision.targets, supervision.ignore
        keep = loss_mask(targets, ignore, supervision.counts)  # (B, 1 + W)
        newest, slots = keep[:, 0], keep[:, 1:] & keep[:, :1]
        present, labels = supervision.counts[:, 1:], targets[:, 1:]  # (B, W), (B, W, C)
        shares = (labels * targets[:, :1]).sum(-1) > 0  # slots that share a class with the newest chunk
        passes = shares | ~present
        if ignore is not None:  # ambiguous chunks do not end a run
            passes = passes | (labels[..., ignore] > 0)
        broken = (~passes).flip(1).cumsum(1).flip(1)  # slots from here to the newest that do not
        wanted = (shares & present & (broken == 0)).to(relevance)
        each = F.binary_cross_entropy_with_logits(relevance, wanted, reduction="none")
        means = torch.where(slots, each, 0).sum(dim=1) / slots.sum(dim=1).clamp(min=1)  # (B,)
        return loss_of(logits, self.outputs(), supervision) + masked_mean(means, newest, supervision.totals)


HALVED = 4  # a block is as long as a multiple of this, with tokens of zeros before its first chunk

ConvDeconvConfig = define_config(__name__, "ConvDeconvConfig", "conv-deconv", Uses(long_memory=False, heads=False))


class ConvDeconv(FixedWindow):
    """Two convolutions and two transposed ones over `config.work_length` chunks, each with a stride of 2."""

    def __init__(self, config: WindowConfig, n_classes: int) -> None:
        super().__init__(config, n_classes)
        d_model = config.d_model
        self.feature_head_work = FeatureHead(config.input_dim, d_model)
        shape = (d_model, d_model, 4, 2, 1)  # kernel, stride and padding after the widths
        self.down = nn.Sequential(nn.Conv1d(*shape), nn.ReLU(), nn.Conv1d(*shape), nn.ReLU())
        self.up = nn.Sequential(nn.ConvTranspose1d(*shape), nn.ReLU(), nn.ConvTranspose1d(*shape), nn.ReLU())
        self.dropout = nn.Dropout(config.dropout)
        self.classifier = nn.Linear(d_model, n_classes)

    def score(self, kept: Tensor, constants: None = None) -> Tensor:
        """Return logits (B, 1, C) of the newest chunk, from the tokens (B, W, d_model) of a window."""
        return self.score_all(kept)[:, -1:]

    def score_all(self, kept: Tensor) -> Tensor:
        """Return logits (B, W, C) of all chunks of a window, tokens (B, W, d_model) oldest first."""
        before = -kept.shape[1] % HALVED
        block = F.pad(kept, (0, 0, before, 0)).transpose(1, 2)  # (B, d_model, N)
        return self.classifier(self.dropout(self.up(self.down(block)).transpose(1, 2)[:, before:]))

    outputs = Model.outputs  # every work slot, for the loss; the newest alone is a score

    def forward(self, windows: Windows) -> Tensor:
        """Return logits (B, W, C) of every work slot."""
        return windows.by_slot(self.score_all(self.feature_head_work(windows.newest_last())))


TFN_LIKE_SIZE = TfnLikeConfig(d_model=512, work_length=16)
TFN_LIKE_KIND = Kind(
    TfnLike, TfnLikeConfig, read_publication("tfn-like"), {"tfn-like-thumos14": Preset(TFN_LIKE_SIZE, IDN_TRAINING)}
)
CONV_DECONV_KIND = Kind(
    ConvDeconv,
    ConvDeconvConfig,
    read_publication("conv-deconv"),
    {"conv-deconv-thumos14": Preset(ConvDeconvConfig(work_length=8), ED_TRAINING)},
)

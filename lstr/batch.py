"""Windows in batches: for training, and for the reference prediction of a whole stored video."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from lstr import memory
from lstr.config import LSTRConfig
from lstr.errors import LstrError
from lstr.model import LSTR


@dataclass(frozen=True)
class Windows:
    """B windows of one fixed shape, in the order `LSTR.forward` takes them: `model(*windows)`."""

    long: Tensor
    """(B, n_long, D)"""
    long_mask: Tensor
    """(B, n_long) bool, True = visible"""
    work: Tensor
    """(B, work_length, D), zero in absent slots"""
    work_mask: Tensor
    """(B, work_length) bool, True = present"""
    distances: Tensor
    """(B, n_long) int64, chunks to the newest work slot"""

    def __iter__(self) -> Iterator[Tensor]:
        return (getattr(self, field.name) for field in fields(self))

    def __len__(self) -> int:
        return len(self.work)

    def to(self, device: torch.device | str) -> Windows:
        """The same windows on another device."""
        return Windows(*(tensor.to(device) for tensor in self))


def gather(features: Tensor | NDArray[np.float32], ends: ArrayLike, config: LSTRConfig) -> Windows:
    """Windows of one video, features (L, D), that end at chunks `ends` (B,): the same grid in training and test.

    Raises LstrError when an end is not in [0, L).
    """
    ends = np.asarray(ends, dtype=np.int64)
    if ends.size and not (0 <= ends.min() and ends.max() < len(features)):
        raise LstrError(
            f"Windows end at chunks {ends.min()} to {ends.max()} of a video of {len(features)}.",
            "Count chunks from 0, and end windows inside the video.",
        )
    long, long_mask = memory.long_indices(ends, config)
    work, work_mask = memory.padded_work_indices(ends, config)
    seen_long, seen_work = (torch.as_tensor(features[chunks]).float() for chunks in (long, work))
    windows = Windows(
        seen_long,  # (B, n_long, D)
        torch.from_numpy(long_mask),
        seen_work,  # (B, work_length, D)
        torch.from_numpy(work_mask),
        torch.from_numpy(memory.long_distances(ends, config)),
    ).to(seen_work.device)
    windows.work[~windows.work_mask] = 0
    return windows


def join(batches: Sequence[Windows]) -> Windows:
    """Windows of several videos as one batch."""
    return Windows(*(torch.cat(tensors) for tensors in zip(*batches, strict=True)))


@torch.no_grad()
def predict(model: LSTR, features: Tensor | NDArray[np.float32], batch_size: int = 64) -> Tensor:
    """Class probabilities (L, C), float32 on the CPU, of a video's features (L, D): the definition of the scores.

    Chunk T takes the last output of the window at T. The first `work_length` chunks share one window: their
    windows have the same long memory (chunk 0) and the same slots, and no output sees a later chunk.
    Raises LstrError when the model is in training mode, or the features are of the wrong shape or not finite.
    """
    config = model.config
    if model.training:
        raise LstrError("The model is in training mode, so its scores are random.", "Call model.eval() first.")
    if isinstance(features, np.ndarray):
        # A copy, because stored features are often read-only maps of a file, which torch cannot own.
        features = torch.from_numpy(np.array(features, dtype=np.float32))
    if features.ndim != 2 or features.shape[1] != config.input_dim:
        raise LstrError(
            f"Features have shape {tuple(features.shape)}, the model takes (chunks, {config.input_dim}).",
            "Join rgb and flow in this order, from the recipe the model was trained on.",
        )
    if not torch.isfinite(features).all():
        bad = int((~torch.isfinite(features)).any(dim=1).nonzero()[0])
        raise LstrError(f"The features of chunk {bad} are not finite.", "Extract this video again.")
    L = len(features)
    scores = torch.zeros(L, model.n_classes)
    if L == 0:
        return scores
    like = model.classifier.weight
    features = features.to(like.device, like.dtype)
    work = model.feature_head_work(features)  # (L, d_model)
    long = model.feature_head_long(features) if config.n_long else None  # (L, d_model)

    def logits(ends: NDArray[np.int64]) -> Tensor:
        seen, _ = memory.padded_work_indices(ends, config)
        seen = seen[:, : min(int(ends[0]) + 1, config.work_length)]
        if long is None:
            return model.forward_tokens(None, None, work[seen])
        indices, mask = memory.long_indices(ends, config)
        distances = memory.long_distances(ends, config)
        mask, distances = (torch.from_numpy(array).to(like.device) for array in (mask, distances))
        return model.forward_tokens(long[indices], mask, work[seen], None, distances)

    first = min(L, config.work_length)
    scores[:first] = logits(np.array([first - 1]))[0].float().softmax(dim=-1).cpu()
    for start in range(first, L, batch_size):
        ends = np.arange(start, min(start + batch_size, L))
        scores[ends] = logits(ends)[:, -1].float().softmax(dim=-1).cpu()
    return scores

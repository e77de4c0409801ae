"""Features of a training set that fit on its device, where windows are gathered: only indices travel to it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lstr.config import WindowConfig
from lstr.pipelines.datasets.dataset import LabelledVideo, TwoStreamArray
from lstr.windows.loss import Supervision
from lstr.windows.windows import WindowIndices, Windows, window_indices

SHARE = 0.5  # of a GPU's free memory that features may take: model, optimiser and activations need the rest


class KeptFeatures:
    """The rows of all videos, one video after the other, on a device; float16 where every file is, else float32."""

    def __init__(self, videos: list[LabelledVideo], device: torch.device):
        lengths = [len(video.features) for video in videos]
        self.starts = np.concatenate([[0], np.cumsum(lengths)])  # (videos + 1,)
        width = videos[0].features[:0].shape[1]
        self.rows = torch.empty(int(self.starts[-1]), width, dtype=_dtype(videos), device=device)
        for start, video in zip(self.starts, videos, strict=False):
            self.rows[start : start + len(video.features)] = torch.from_numpy(video.features[:])

    def indices(self, drawn: list[tuple[int, int]], config: WindowConfig, stretched: bool) -> WindowIndices:
        """Which rows the windows (video, end chunk) are made of; on the CPU."""
        which, ends = np.array(drawn, np.int64).reshape(-1, 2).T
        return window_indices(ends, config, stretched).after(torch.from_numpy(self.starts[which]))


def fit_on(videos: list[LabelledVideo], device: torch.device) -> bool:
    """Whether a device is a GPU with room for the features; a processor reads them from their files as well."""
    if device.type != "cuda":
        return False
    n_chunks = sum(len(video.features) for video in videos)
    needed = n_chunks * videos[0].features[:0].shape[1] * _dtype(videos).itemsize
    return needed <= SHARE * torch.cuda.mem_get_info(device)[0]


def _dtype(videos: list[LabelledVideo]) -> torch.dtype:
    """What every stored value is exact in."""
    stored = {array.dtype for video in videos for array in _arrays(video.features) if array.shape[1]}
    return torch.float16 if stored == {np.dtype(np.float16)} else torch.float32


def _arrays(features: TwoStreamArray) -> tuple:
    return features.rgb, features.flow


@dataclass(frozen=True)
class KeptPiece:
    """Windows of features on a device, of which the CPU knows the indices and what they are held against."""

    kept: KeptFeatures
    indices: WindowIndices
    targets: Tensor
    counts: Tensor
    soft: Tensor | None = None

    def to(self, device: torch.device) -> tuple[Windows, Supervision]:
        """All of it on the device of the features."""
        indices = self.indices.map(lambda tensor: tensor.to(device, non_blocking=True))
        windows = indices.gather(self.kept.rows)
        return windows, supervision_on(device, self.targets, self.counts, self.soft)

    def pinned(self) -> "KeptPiece":
        """The same in memory that a GPU copies without anybody waiting."""
        indices = self.indices.map(Tensor.pin_memory)
        soft = None if self.soft is None else self.soft.pin_memory()
        return KeptPiece(self.kept, indices, self.targets.pin_memory(), self.counts.pin_memory(), soft)


def supervision_on(device: torch.device, targets: Tensor, counts: Tensor, soft: Tensor | None) -> Supervision:
    """Targets, counts and a teacher's scores, on a device."""
    targets, counts = (tensor.to(device, non_blocking=True) for tensor in (targets, counts))
    return Supervision(targets, counts, soft=None if soft is None else soft.to(device, non_blocking=True))

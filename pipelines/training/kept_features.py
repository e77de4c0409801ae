"""Features of a training set that fit on its device, where windows are gathered: only indices travel to it."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lstr.config import LSTRConfig
from lstr.windows import WindowIndices, Windows, window_indices
from pipelines.datasets.dataset import LabelledVideo, TwoStreamArray

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

    def indices(self, drawn: list[tuple[int, int]], config: LSTRConfig, stretched: bool) -> WindowIndices:
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
    """Windows of features on a device, of which the CPU knows the indices, targets (b, N, C) and what counts (b, N)."""

    kept: KeptFeatures
    indices: WindowIndices
    targets: Tensor
    counts: Tensor

    def to(self, device: torch.device) -> tuple[Windows, Tensor, Tensor]:
        """All of it on the device of the features."""
        indices = self.indices.map(lambda tensor: tensor.to(device, non_blocking=True))
        windows = indices.gather(self.kept.rows)
        return windows, self.targets.to(device, non_blocking=True), self.counts.to(device, non_blocking=True)

    def pinned(self) -> "KeptPiece":
        """The same in memory that a GPU copies without anybody waiting."""
        indices = self.indices.map(Tensor.pin_memory)
        return KeptPiece(self.kept, indices, self.targets.pin_memory(), self.counts.pin_memory())

"""Batches of windows, read in threads while the model works on the one before."""

import math
import os
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from lstr.config import WindowConfig
from lstr.pipelines.features.dataset import LabelledVideo
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.ranks import Ranks
from lstr.pipelines.training.sampling import make_soft, make_targets, read_windows
from lstr.windows.loss import Supervision
from lstr.windows.windows import Outputs, WindowIndices, Windows, window_indices

Job = TypeVar("Job")
Made = TypeVar("Made")
SHARE = 0.5  # of a GPU's free memory that features may take: model, optimiser and activations need the rest
READERS = 4  # threads at most, unless more are requested: each holds a batch, 107 MB at the THUMOS'14 size


class KeptFeatures:
    """The rows of all videos, one video after the other, on a device; float16 where every file is, else float32.

    Windows are gathered there: only indices travel to it.
    """

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
    arrays = (array for video in videos for array in (video.features.rgb, video.features.flow))
    stored = {array.dtype for array in arrays if array.shape[1]}
    return torch.float16 if stored == {np.dtype(np.float16)} else torch.float32


@dataclass(frozen=True)
class Piece:
    """Windows (b) that were read, or the indices of those in `kept`, and what they are held against; on the CPU."""

    windows: Windows | WindowIndices
    held: Supervision
    kept: KeptFeatures | None = None

    def map(self, change: Callable[[Tensor], Tensor]) -> "Piece":
        """The same with every tensor changed, but for what is kept."""
        held, soft = self.held, self.held.soft
        targets, counts, soft = change(held.targets), change(held.counts), None if soft is None else change(soft)
        return Piece(self.windows.map(change), replace(held, targets=targets, counts=counts, soft=soft), self.kept)

    def to(self, device: torch.device) -> tuple[Windows, Supervision]:
        """Windows and what they are held against on a device; nobody waits for it where the piece is pinned."""
        moved = self.map(lambda tensor: tensor.to(device, non_blocking=True))
        if isinstance(moved.windows, WindowIndices):
            assert self.kept, "indices are of what is kept"
            return moved.windows.gather(self.kept.rows), moved.held
        return moved.windows, moved.held


@dataclass(frozen=True)
class Batch:
    """One process's share of an optimiser step, in pieces that go through the model one after the other."""

    pieces: list[Piece]
    n_windows: int
    """of all processes together"""
    videos: list[str]
    """that this share's windows are from"""


@dataclass(frozen=True)
class PieceMaker:
    """Makes the batches of a run, in as many threads as call it."""

    videos: list[LabelledVideo]
    model: WindowConfig
    train: TrainConfig
    outputs: Outputs
    ranks: Ranks
    device: torch.device
    kept: KeptFeatures | None = None
    """The features of `videos` where they are on the device."""
    delay: int = 0
    """Chunks that what is learned is late: a teacher's"""
    soft: Sequence[Tensor] | None = None
    """A teacher's scores (L, C) of each of `videos`"""

    def __call__(self, drawn: list[tuple[int, int]]) -> Batch:
        """This process's share of the windows (video, end chunk) of a step.

        A process without any takes the first and counts none of it: all must go through the model together.
        """
        share = self.ranks.share(drawn)
        windows = share or drawn[:1]
        size = math.ceil(math.ceil(self.train.batch_size / self.ranks.size) / self.train.accumulate)
        pieces = [self._piece(windows[at : at + size], bool(share)) for at in range(0, len(windows), size)]
        return Batch(pieces, len(drawn), sorted({self.videos[v].id for v, _ in share}))

    def _piece(self, drawn: list[tuple[int, int]], counted: bool) -> Piece:
        stretched = self.train.long_sampling == "stretched"
        windows: Windows | WindowIndices
        if self.kept:
            windows = self.kept.indices(drawn, self.model, stretched)
        else:
            windows = read_windows(self.videos, drawn, self.model, stretched)
        targets, counts = make_targets(self.videos, drawn, self.model, self.outputs, self.delay)
        soft = None if self.soft is None else make_soft(self.soft, drawn, self.model, self.outputs)
        held = Supervision(targets, counts if counted else torch.zeros_like(counts), soft=soft)
        piece = Piece(windows, held, self.kept)
        return piece.map(Tensor.pin_memory) if self.device.type == "cuda" else piece


def default_readers() -> int:
    """Threads that read ahead on this machine."""
    return max(1, min(READERS, os.cpu_count() or 1))


def read_ahead(jobs: Iterable[Job], make: Callable[[Job], Made], readers: int) -> Generator[Made, None, None]:
    """make(job) of each job in order, made in threads while the caller works; one more than `readers` at most wait.

    Without readers the caller makes each.
    """
    if not readers:
        yield from map(make, jobs)
        return
    with ThreadPoolExecutor(readers) as pool:
        waiting: deque = deque()
        try:
            for job in jobs:
                waiting.append(pool.submit(make, job))
                if len(waiting) > readers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

"""Batches of windows, read in threads while the model works on the one before."""

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import torch
from torch import Tensor

from lstr.config import WindowConfig
from lstr.pipelines.datasets.dataset import LabelledVideo
from lstr.pipelines.training.config import TrainConfig
from lstr.pipelines.training.kept_features import KeptFeatures, KeptPiece, supervision_on
from lstr.pipelines.training.ranks import Ranks
from lstr.pipelines.training.sampling import make_batch, make_soft, make_targets
from lstr.windows.loss import Supervision
from lstr.windows.windows import Outputs, Windows

Job = TypeVar("Job")
Made = TypeVar("Made")
READERS = 4  # threads at most, unless more are requested: each holds a batch, 107 MB at the THUMOS'14 size


class Piece(Protocol):
    """Windows (b), their targets (b, N, C), which outputs count (b, N) and a teacher's scores, not yet on a device."""

    @property
    def targets(self) -> Tensor:
        """On the CPU."""

    @property
    def counts(self) -> Tensor:
        """On the CPU."""

    def to(self, device: torch.device) -> tuple[Windows, Supervision]:
        """Windows and what they are held against on a device; nobody waits for it where the piece is pinned."""


@dataclass(frozen=True)
class ReadPiece:
    """A Piece whose windows were read from feature files."""

    windows: Windows
    targets: Tensor
    counts: Tensor
    soft: Tensor | None = None

    def to(self, device: torch.device) -> tuple[Windows, Supervision]:
        """Windows and what they are held against, on a device."""
        windows = self.windows.map(lambda tensor: tensor.to(device, non_blocking=True))
        return windows, supervision_on(device, self.targets, self.counts, self.soft)

    def pinned(self) -> "ReadPiece":
        """The same in memory that a GPU copies without anybody waiting."""
        soft = None if self.soft is None else self.soft.pin_memory()
        return ReadPiece(self.windows.map(Tensor.pin_memory), self.targets.pin_memory(), self.counts.pin_memory(), soft)


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
        piece: KeptPiece | ReadPiece
        if self.kept:
            targets = make_targets(self.videos, drawn, self.model, self.outputs, self.delay)
            piece = KeptPiece(self.kept, self.kept.indices(drawn, self.model, stretched), *targets)
        else:
            piece = ReadPiece(*make_batch(self.videos, drawn, self.model, self.outputs, stretched, self.delay))
        if self.soft is not None:
            piece = replace(piece, soft=make_soft(self.soft, drawn, self.model, self.outputs))
        if not counted:
            piece = replace(piece, counts=torch.zeros_like(piece.counts))
        return piece.pinned() if self.device.type == "cuda" else piece


def default_readers() -> int:
    """Threads that read ahead on this machine."""
    return max(1, min(READERS, os.cpu_count() or 1))


def read_ahead(jobs: Iterable[Job], make: Callable[[Job], Made], readers: int) -> Iterator[Made]:
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

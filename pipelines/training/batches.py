"""Batches of windows, read in threads while the model works on the one before."""

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from lstr.config import LSTRConfig
from lstr.windows import Outputs, Windows
from pipelines.datasets.dataset import LabelledVideo
from pipelines.training.config import TrainConfig
from pipelines.training.ranks import Ranks
from pipelines.training.sampling import make_batch

Job = TypeVar("Job")
Made = TypeVar("Made")
READERS = 4  # threads at most, unless more are requested: each holds a batch, 107 MB at the THUMOS'14 size


@dataclass(frozen=True)
class Batch:
    """One process's share of an optimiser step, in pieces that go through the model one after the other."""

    pieces: list[tuple[Windows, Tensor, Tensor]]
    """windows (b), targets (b, N, C), which outputs count (b, N)"""
    n_windows: int
    """of all processes together"""
    videos: list[str]
    """that this share's windows are from"""


def make_pieces(
    videos: list[LabelledVideo],
    drawn: list[tuple[int, int]],
    model: LSTRConfig,
    train: TrainConfig,
    outputs: Outputs,
    ranks: Ranks,
    pin: bool,
) -> Batch:
    """Read this process's share of the windows (video, end chunk) of a step.

    A process without any takes the first and counts none of it: all must go through the model together.
    """
    share = ranks.share(drawn)
    windows = share or drawn[:1]
    size = math.ceil(math.ceil(train.batch_size / ranks.size) / train.accumulate)
    pieces = []
    for at in range(0, len(windows), size):
        piece, targets, counts = make_batch(
            videos, windows[at : at + size], model, outputs, train.long_sampling == "stretched"
        )
        if not share:
            counts = torch.zeros_like(counts)
        if pin:
            piece, targets, counts = piece.map(Tensor.pin_memory), targets.pin_memory(), counts.pin_memory()
        pieces.append((piece, targets, counts))
    return Batch(pieces, len(drawn), sorted({videos[v].id for v, _ in share}))


def default_readers() -> int:
    """Threads that read ahead on this machine."""
    return max(1, min(READERS, os.cpu_count() or 1))


def read_ahead(jobs: Iterable[Job], make: Callable[[Job], Made], readers: int) -> Iterator[Made]:
    """make(job) of each job in order, made in threads while the caller works; one more than `readers` at most wait."""
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

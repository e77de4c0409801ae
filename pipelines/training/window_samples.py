"""Training samples of models: windows drawn from videos, their targets, and batches of them that threads read ahead."""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lstr.config import WindowConfig
from lstr.errors import ConfigError
from lstr.pipelines.features.dataset import LabelledVideo
from lstr.pipelines.training.config import TrainConfig
from lstr.windows.indices import window_ends
from lstr.windows.windows import Outputs, Supervision, WindowIndices, Windows, gather, join, window_indices

# Share of a GPU's free memory that features may take: model, optimiser and activations need the other half.
MAX_MEMORY_SHARE = 0.5
MAX_READERS = 4  # threads: each holds a batch, 107 MB at the THUMOS'14 size
Job = TypeVar("Job")
Result = TypeVar("Result")


def draw_windows(
    videos: list[LabelledVideo], model: WindowConfig, train: TrainConfig, epoch: int
) -> list[tuple[int, int]]:
    """Return (video, end chunk) of every window of an epoch, shuffled; a pure function of the seed and the epoch.

    A video of L chunks gives ceil(L / work_length) windows; a video shorter than the work memory gives one that is not
    full. At every stride-th chunk it gives about L / stride, the first of them not full. Without `tails` a tiled video
    gives the windows that end before its last chunk, which may be none.
    """
    random, work, drawn = np.random.default_rng([train.seed, epoch]), model.work_length, []
    for v, video in enumerate(videos):
        length = len(video.features)
        if train.windows == "tiled":
            ends = window_ends(length, int(random.integers(model.tiling[1])), model, train.tails)
        elif train.windows == "every":
            ends = np.arange(random.integers(min(train.stride, length)), length, train.stride)
        else:
            ends = random.integers(min(work, length) - 1, length, size=math.ceil(length / work))
        drawn += [(v, int(end)) for end in ends]
    return [drawn[i] for i in random.permutation(len(drawn))]


def count_steps(videos: list[LabelledVideo], model: WindowConfig, train: TrainConfig) -> tuple[int, int]:
    """Return the optimiser steps of a whole run and of its first epoch. Raises ConfigError if an epoch has none."""
    steps: list[int] = []
    for epoch in range(train.epochs):
        steps.append(math.ceil(len(draw_windows(videos, model, train, epoch)) / train.batch_size))
        if not steps[-1]:
            raise ConfigError(
                f"No window of {model.work_length} chunks fits into a video in epoch {epoch + 1}.",
                "use --set train.tails=true, to use shorter videos and the ends of videos.",
            )
        if 0 < train.max_steps <= sum(steps):
            return train.max_steps, steps[0]
    return sum(steps), steps[0]


def feature_statistics(videos: list[LabelledVideo]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation (D,) over all chunks; one video is in memory at a time."""
    total, squares, count = np.zeros(1), np.zeros(1), 0
    for video in videos:
        rows = video.features[:].astype(np.float64)
        total, squares, count = total + rows.sum(0), squares + (rows**2).sum(0), count + len(rows)
    mean = total / count
    std = np.sqrt(np.maximum(squares / count - mean**2, 0))
    std[std < 1e-6 * max(1.0, float(np.abs(mean).max()))] = 1.0  # a feature that never changes carries nothing
    return torch.tensor(mean, dtype=torch.float32), torch.tensor(std, dtype=torch.float32)


def read_windows(
    videos: list[LabelledVideo], drawn: list[tuple[int, int]], config: WindowConfig, stretched: bool
) -> Windows:
    """Return the windows (video, end chunk) of videos, read from their features."""
    # stored features take indices as an array does
    return join([gather(cast(NDArray[np.float32], videos[v].features), [end], config, stretched) for v, end in drawn])


def make_targets(
    videos: list[LabelledVideo], drawn: list[tuple[int, int]], config: WindowConfig, outputs: Outputs
) -> tuple[Tensor, Tensor]:
    """Return the targets (B, N, C) of a model's N outputs of windows, and which of them count (B, N).

    An output counts if its slot is filled and the chunk that it is about is in the video, or repeats the last one's
    target there.
    """
    targets, counts = [], []
    for v, end in drawn:
        of_video = videos[v].targets
        at = np.where(outputs.slots < 0, end, max(0, end - config.work_length + 1) + outputs.slots)
        about = at + outputs.ahead
        about = np.where(outputs.repeats_last, np.minimum(about, len(of_video) - 1), about)
        exists = (at <= end) & (0 <= about) & (about < len(of_video))
        targets.append(torch.from_numpy(of_video[np.where(exists, about, 0)].astype(np.float32)))  # (N, C)
        counts.append(torch.from_numpy(exists))
    return torch.stack(targets), torch.stack(counts)


def with_soft_starts(targets: NDArray) -> NDArray[np.float32]:
    """Return targets (T, C) in which an action has one half in its first chunk, and the background has the rest."""
    soft, acts = targets.astype(np.float32), targets[:, 1:] > 0
    begins = acts & ~np.concatenate([acts[:1], acts[:-1]])  # what acts in the first chunk may have begun before it
    soft[:, 1:][begins] = 0.5
    soft[:, 0] = np.where(begins.any(1), 1 - soft[:, 1:].max(1), soft[:, 0])
    return soft


def standardise(windows: Windows, mean: Tensor, std: Tensor) -> Windows:
    """Return windows of features brought to zero mean and unit variance by mean (D,) and std (D,)."""
    scaled = {name: (getattr(windows, name) - mean) / std for name in ("long", "work", "older", "context")}
    return replace(windows, **scaled)


def hide_slots(windows: Windows, share: float) -> Windows:
    """Hide this share of the long memory's slots; never the latest, so that no softmax is empty."""
    if share == 0 or windows.long_mask.shape[1] == 0:
        return windows
    kept = torch.rand(windows.long_mask.shape) >= share  # (B, n_long), the same on every device
    kept[:, -1] = True
    if windows.long_mask.is_cuda:
        kept = kept.pin_memory().to(windows.long_mask.device, non_blocking=True)
    # zeros, for kinds that see hidden slots
    return replace(windows, long_mask=windows.long_mask & kept, long=windows.long.masked_fill(~kept[..., None], 0))


class InMemoryFeatures:
    """The rows of all videos, one video after the other, on a device; float16 if every file is, else float32.

    Windows are gathered there: only indices travel to it.
    """

    def __init__(self, videos: list[LabelledVideo], device: torch.device):
        lengths = [len(video.features) for video in videos]
        self.starts = np.concatenate([[0], np.cumsum(lengths)])  # (videos + 1,)
        width = videos[0].features[:0].shape[1]
        self.rows = torch.empty(int(self.starts[-1]), width, dtype=stored_dtype(videos), device=device)
        for start, video in zip(self.starts, videos, strict=False):
            self.rows[start : start + len(video.features)] = torch.from_numpy(video.features[:])

    def indices(self, drawn: list[tuple[int, int]], config: WindowConfig, stretched: bool) -> WindowIndices:
        """Return which rows the windows (video, end chunk) consist of; on the CPU."""
        which, ends = np.array(drawn, np.int64).reshape(-1, 2).T
        return window_indices(ends, config, stretched, self.starts[which])


def stored_dtype(videos: list[LabelledVideo]) -> torch.dtype:
    """Return the type in which every stored value is exact."""
    arrays = (array for video in videos for array in (video.features.rgb, video.features.flow))
    stored = {array.dtype for array in arrays if array.shape[1]}
    return torch.float16 if stored == {np.dtype(np.float16)} else torch.float32


# Windows (b) that were read, or the indices of those in kept features, and their supervision.
Piece = tuple[Windows | WindowIndices, Supervision]


def map_piece(piece: Piece, change: Callable[[Tensor], Tensor]) -> Piece:
    """Return the piece with every tensor changed."""
    windows, known = piece
    return windows.map(change), replace(known, targets=change(known.targets), counts=change(known.counts))


class Batch(NamedTuple):
    """One process's share of an optimiser step, on the CPU, in pieces that the model processes in sequence."""

    pieces: list[Piece]
    n_windows: int  # of all processes together
    videos: list[str]  # the videos of this share's windows


def read_ahead(jobs: Iterable[Job], make: Callable[[Job], Result], readers: int) -> Generator[Result, None, None]:
    """Yield make(job) of each job in order, computed in threads ahead of the caller; at most `readers` + 1 wait."""
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

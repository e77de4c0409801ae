"""Batches of training samples, read ahead by processes."""

import atexit
import multiprocessing
import os
import signal
from collections.abc import Iterable, Iterator
from functools import partial

import cv2
import torch
from torch.utils.data import DataLoader, Dataset

from lstr.extractors.lifeline import end_with_starting_thread
from lstr.pipelines.finetuning import kept_chunks
from lstr.pipelines.finetuning.kept_chunks import KeptChunks
from lstr.pipelines.finetuning.samples import Draws, SampleSet
from lstr.pipelines.training.ranks import ALONE, Ranks

PROCESSOR = torch.device("cpu")
Images = tuple[torch.Tensor, tuple[int, ...]]
"""(N, segments, C, H, W) uint8, and N numbers: classes, or places"""


class EpochLoader:
    """One process's share of the batches of epoch after epoch, those of the next epoch too: none begins with waiting.

    `begin` with the epoch (from 0) that comes first; `close` ends the processes. Images that fit on `device` are kept
    there, and no process reads them.
    """

    def __init__(
        self,
        dataset: SampleSet,
        draws: Draws,
        batch_size: int,
        epochs: int,
        loaders: int,
        ranks: Ranks = ALONE,
        device: torch.device = PROCESSOR,
    ):
        self.dataset, self.draws, self.batch_size = dataset, draws, batch_size
        self.epochs, self.loaders, self.ranks, self.device = epochs, loaders, ranks, device
        self._batches: Iterator[Images] = iter(())

    def __len__(self) -> int:
        # the rest of an epoch is no step: a batch of one image has no batch-norm statistics
        return max(1, len(self.draws) // self.batch_size)

    @property
    def n_samples(self) -> int:
        """Samples of a step, of all processes together."""
        return min(self.batch_size, len(self.draws))

    def begin(self, epoch: int) -> None:
        """Start to read. Raises CacheError where the images are kept and one is damaged."""
        if kept_chunks.fit_on(self.dataset, self.device):
            kept = KeptChunks(self.dataset, self.device)
            drawn = ([self.dataset.draw(key) for key in keys] for keys in self._keys(epoch))
            self._batches = ((kept.images(samples), tuple(one.label for one in samples)) for samples in drawn)
        else:
            self._batches = iter(make_loader(self.dataset, self._keys(epoch), self.loaders))

    def epoch(self) -> Iterator[Images]:
        """The batches of the next epoch."""
        for _ in range(len(self)):
            yield next(self._batches)

    def _keys(self, first: int) -> Iterator[list]:
        size = self.batch_size
        for epoch in range(first, self.epochs):
            drawn = self.draws.of(epoch)
            yield from (self.ranks.share(drawn[at * size : (at + 1) * size]) for at in range(len(self)))

    def close(self) -> None:
        """End the processes."""
        self._batches = iter(())


def make_loader(dataset: Dataset, batches: Iterable[list], loaders: int) -> DataLoader:
    """Batches, each a list of a data set's keys, made by `loaders` processes; 0 for this one.

    A batch is Images, one tensor as each takes time to pass on.
    """
    return DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=loaders,
        multiprocessing_context="fork" if loaders else None,
        worker_init_fn=partial(_begin_reading, os.getpid()),
        collate_fn=_together,
    )


def _together(samples: list[tuple[torch.Tensor, int]]) -> Images:
    images, numbers = zip(*samples, strict=True)
    return torch.stack(images), numbers


def _begin_reading(parent: int, worker: int) -> None:
    end_with_starting_thread(parent)
    # terminals and systemd send them to all; who made the loaders ends them, and takes their death for a failure
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    cv2.setNumThreads(0)


@atexit.register
def _end_readers() -> None:
    """Kill the readers that something still holds on to, such as the error that ends the program.

    multiprocessing would send them SIGTERM, which they ignore, and wait for them without end.
    """
    for process in multiprocessing.active_children():
        if process.daemon:
            process.kill()

"""Batches of training samples, read ahead by threads."""

from collections.abc import Iterator

import torch

from lstr.pipelines.finetuning import kept_chunks
from lstr.pipelines.finetuning.kept_chunks import KeptChunks
from lstr.pipelines.finetuning.samples import Images, Key, SampleSet
from lstr.pipelines.training.batches import read_ahead
from lstr.pipelines.training.ranks import ALONE, Ranks

PROCESSOR = torch.device("cpu")


class EpochLoader:
    """One process's share of the batches of epoch after epoch, those of the next epoch too: none begins with waiting.

    `begin` with the epoch (from 0) that comes first; `close` ends the threads. Images that fit on `device` are kept
    there, and no thread reads them.
    """

    def __init__(self, data: SampleSet, loaders: int, ranks: Ranks = ALONE, device: torch.device = PROCESSOR):
        self.data, self.loaders, self.ranks, self.device = data, loaders, ranks, device
        self.batch_size = min(data.config.batch_size, data.n_draws)
        """Samples of a step, of all processes together"""
        self._batches: Iterator[Images] = iter(())

    def __len__(self) -> int:
        # the rest of an epoch is no step: a batch of one image has no batch-norm statistics
        return self.data.n_draws // self.batch_size

    def begin(self, epoch: int) -> None:
        """Start to read. Raises CacheError where the images are kept and one is damaged."""
        if not kept_chunks.fit_on(self.data, self.device):
            self._batches = read_ahead(self._keys(epoch), self.data.batch, self.loaders)
            return
        kept = KeptChunks(self.data, self.device)
        batches = ([self.data.draw(key) for key in keys] for keys in self._keys(epoch))
        self._batches = ((kept.images(drawn), tuple(sample.label for sample in drawn)) for drawn in batches)

    def epoch(self) -> Iterator[Images]:
        """The batches of the next epoch."""
        for _ in range(len(self)):
            yield next(self._batches)

    def _keys(self, first: int) -> Iterator[list[Key]]:
        size = self.batch_size
        for epoch in range(first, self.data.config.epochs):
            drawn = self.data.epoch(epoch)
            yield from (self.ranks.share(drawn[at * size : (at + 1) * size]) for at in range(len(self)))

    def close(self) -> None:
        """End the threads, and forget what is kept."""
        self._batches = iter(())

"""Images that are cut and mirrored where they are kept, against those that threads read."""

import cv2
import numpy as np
import pytest
import torch

from lstr.pipelines.extraction.chunk_cache import CachedVideo
from lstr.pipelines.finetuning import kept_chunks
from lstr.pipelines.finetuning.config import FinetuneConfig
from lstr.pipelines.finetuning.kept_chunks import KeptChunks
from lstr.pipelines.finetuning.loader import EpochLoader
from lstr.pipelines.finetuning.samples import Sample, SampleSet

CPU = torch.device("cpu")


class Smooth(CachedVideo):
    """Chunks without edges, as real ones have few: rounding is then all that two ways of resizing differ by."""

    def __init__(self, n_chunks: int, height: int, width: int, seed: int):
        planes = np.random.default_rng(seed).normal(128, 400, (n_chunks, 13, height, width))
        smooth = [[cv2.GaussianBlur(plane, (0, 0), 4) for plane in chunk] for chunk in planes]
        self.planes = np.clip(smooth, 20, 235).astype(np.uint8)

    def __len__(self) -> int:
        return len(self.planes)

    def read(self, index: int):
        return self.planes[index, :3].transpose(1, 2, 0), self.planes[index, 3:]


def samples_of(stream: str, colour: float = 0.0) -> SampleSet:
    """Of two videos, one wide and one high."""
    videos = {"wide": Smooth(5, 48, 70, 1), "high": Smooth(4, 66, 50, 2)}
    samples = [Sample("wide", 0, 5, 1), Sample("high", 0, 4, 0), Sample("wide", 2, 4, 1)]
    config = FinetuneConfig(segments=3, short_side=40, crop=32, colour=colour, seed=5, draws=8, batch_size=4, epochs=2)
    return SampleSet(samples, videos, stream, config)


@pytest.mark.parametrize(("stream", "colour"), [("rgb", 0.0), ("flow", 0.0), ("rgb", 0.3)])
def test_kept_images_are_those_that_are_read(stream, colour):
    data = samples_of(stream, colour)
    kept = KeptChunks(data, CPU)
    drawn = [data.draw((epoch, draw, draw % 3)) for epoch in range(3) for draw in range(8)]
    images = kept.images(drawn)
    expected = data.batch([(epoch, draw, draw % 3) for epoch in range(3) for draw in range(8)])[0]
    assert images.shape == expected.shape and images.dtype == torch.uint8
    difference = (images.int() - expected.int()).abs()
    assert difference.float().mean() < 0.5
    if colour:  # a level of the order: whether colours or sizes change first, and what is too bright is cut
        assert (difference > 2).float().mean() < 0.01 and difference.max() < 20
    else:
        assert difference.max() <= 1
    assert {sample.mirrored for sample in drawn} == {True, False} and len({sample.box for sample in drawn}) > 10


def test_a_loader_keeps_what_fits_on_its_device(monkeypatch):
    data, room = samples_of("flow"), 9 * 58 * 40 * 10
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * room, 0))
    gpu = torch.device("cuda")
    assert kept_chunks.fit_on(data, gpu) and not kept_chunks.fit_on(data, CPU)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (room, 0))
    assert not kept_chunks.fit_on(data, gpu)

    batches = []
    for fit in (False, True):
        monkeypatch.setattr(kept_chunks, "fit_on", lambda data, device, fit=fit: fit)
        loader = EpochLoader(data, 0)
        loader.begin(0)
        batches.append([batch for _ in range(2) for batch in loader.epoch()])
    assert len(batches[0]) == len(batches[1]) == 4
    for (read, labels), (kept, others) in zip(*batches, strict=True):
        assert labels == others and (read.int() - kept.int()).abs().max() <= 1

"""Images that are cut and mirrored where they are kept, against those that threads read."""

import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
import torch

from lstr.pipelines.extraction.chunk_cache import CachedVideo
from lstr.pipelines.finetuning import batches
from lstr.pipelines.finetuning.batches import KeptChunks, batches_from
from lstr.pipelines.finetuning.config import FinetuneConfig
from lstr.pipelines.finetuning.samples import Sample, SampleSet
from lstr.pipelines.training.ranks import ALONE

CPU = torch.device("cpu")


class Smooth(CachedVideo):
    """Chunks without edges, as real ones have few: rounding is then all that two ways of resizing differ by."""

    def __init__(self, n_chunks: int, height: int, width: int, seed: int):
        planes = np.random.default_rng(seed).normal(128, 400, (n_chunks, 13, height, width))
        smooth = [[cv2.GaussianBlur(plane, (0, 0), 4) for plane in chunk] for chunk in planes]
        planes = np.clip(smooth, 20, 235).astype(np.uint8)
        record = {"crc32": [zlib.crc32(chunk.data) for chunk in planes]}
        super().__init__(Path("smooth.npy"), planes, record, {"rgb_frame": 3})


def samples_of(stream: str, **settings: float) -> SampleSet:
    """Of two videos, one wide and one high."""
    videos = {"wide": Smooth(5, 48, 70, 1), "high": Smooth(4, 66, 50, 2)}
    samples = [Sample("wide", 0, 5, 1), Sample("high", 0, 4, 0), Sample("wide", 2, 4, 1)]
    config = FinetuneConfig(segments=3, short_side=40, crop=32, seed=5, draws=8, batch_size=4, epochs=2, **settings)
    return SampleSet(samples, videos, stream, config)


@pytest.mark.parametrize(("stream", "colour"), [("rgb", 0.0), ("flow", 0.0), ("rgb", 0.3)])
def test_kept_images_are_those_that_are_read(stream, colour):
    data = samples_of(stream, colour=colour)
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


def test_what_fits_on_a_device_is_kept_there(monkeypatch):
    data, room = samples_of("flow"), 9 * 58 * 40 * 10
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (2 * room, 0))
    gpu = torch.device("cuda")
    assert batches.fit_on(data, gpu) and not batches.fit_on(data, CPU)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (room, 0))
    assert not batches.fit_on(data, gpu)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100 * room, 0))
    assert batches.fit_on(samples_of("difference"), gpu) and batches.fit_on(samples_of("flow", shake=0.01), gpu)
    assert not batches.fit_on(samples_of("difference", shake=0.01), gpu), "each picture is another one"

    made = []
    for fit in (False, True):
        monkeypatch.setattr(batches, "fit_on", lambda data, device, fit=fit: fit)
        made.append(list(batches_from(data, 0, 0, ALONE, CPU)))
    assert len(made[0]) == len(made[1]) == 4
    for (read, *labels), (kept, *others) in zip(*made, strict=True):
        assert labels == others and (read.int() - kept.int()).abs().max() <= 1

"""Frames in which something moves."""

import numpy as np

from lstr.extractors.video.frames import CHUNK, Chunk


def moving_chunks(n, side=48, seed=0):
    """Chunks of frames with a square that moves over noise."""
    generator = np.random.default_rng(seed)
    noise = generator.integers(0, 200, (side, side, 3), np.uint8)
    chunks = []
    for index in range(n):
        frames = np.repeat(noise[None], CHUNK, 0)
        for k in range(CHUNK):
            at = (index * CHUNK + k) % (side - 8)
            frames[k, at : at + 8, at : at + 8] = 255
        chunks.append(Chunk(index, (index + 1) / 4, frames))
    return chunks

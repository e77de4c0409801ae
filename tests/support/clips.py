"""Clips of noise, and readers of live sources."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np

from lstr.extractors.video.inputs import PROMPT, Input, LiveOptions
from lstr.extractors.video.live import LiveReader

SIDE = 320


def clip(path: Path, start: int = 0, rate: int = 30, size=(96, 64), seconds: int = 2) -> bytes:
    """Write noise as MPEG-TS with a clock that starts at `start` seconds; return the bytes."""
    random = np.random.default_rng(0)
    with av.open(str(path), "w") as output:
        stream = output.add_stream("libx264", rate=rate, options={"g": "10", "preset": "ultrafast"})
        stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
        for i in range(seconds * rate):
            image = random.integers(0, 256, (size[1], size[0], 3), np.uint8)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = start * rate + i, Fraction(1, rate)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
    return path.read_bytes()


def stdin(file) -> Input:
    return Input("stdin", file, options=PROMPT, lasting=False)


def read_chunks(reader: LiveReader) -> list:
    """Return all chunks until the source ends."""
    chunks = []
    with reader:
        while True:
            with reader.changed:
                reader.changed.wait_for(lambda: reader.waiting or reader.ended)
            taken = reader.take()
            if taken is None:
                return chunks
            chunks.append(taken[0])


def read(live_input: Input, **options) -> tuple[LiveReader, list]:
    reader = LiveReader(live_input, SIDE, LiveOptions(**options))
    return reader, read_chunks(reader)


def indices(chunks) -> list[int]:
    return [chunk.index for chunk in chunks]

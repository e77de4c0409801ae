"""Clips of noise, and readers of live sources."""

from pathlib import Path

from lstr.extractors.video.inputs import PROMPT, Input, LiveOptions
from lstr.extractors.video.live import LiveReader
from tests.support.videos import write_video

SIDE = 320


def clip(path: Path, start: int = 0, rate: int = 30, size=(96, 64), seconds: int = 2) -> bytes:
    """Write noise as MPEG-TS with a clock that starts at `start` seconds; return the bytes."""
    times = range(start * 600, (start + seconds) * 600, 600 // rate)
    return write_video(path, times, size, options={"g": "10", "preset": "ultrafast"}, noise=True).read_bytes()


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

"""Write videos, and read their frames by FFmpeg."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

import av
import numpy as np


def remux(source: Path, target: Path, first: int = 0) -> Path:
    """Copy the video packets, from packet `first` in decoding order, to another container."""
    with av.open(str(source)) as opened, av.open(str(target), "w") as output:
        stream = output.add_stream_from_template(opened.streams.video[0])
        for number, packet in enumerate(opened.demux(video=0)):
            if packet.dts is not None and number >= first:
                packet.stream = stream
                output.mux(packet)
    return target


FULL = 10**6  # a limit of the longer side that changes no frame


def write_video(
    path: Path,
    times: Iterable[int],
    size: tuple[int, int] = (64, 48),
    codec: str = "libx264",
    options: Mapping[str, str] | None = None,
    container: Mapping[str, str] | None = None,
    aspect: Fraction | None = None,
    noise: bool = False,
    pixels: str = "yuv420p",
    rate: int | Fraction = 0,
    greys: Sequence[int] | None = None,
    sound_s: int = 0,
) -> Path:
    """Write a video with frame i at times[i], in 1/rate or 1/600 s: grey, brighter with each frame, or noise.

    `options` are for the encoder, `container` for the muxer; `aspect` is the sample aspect ratio; `sound_s` are
    seconds of silence.
    """
    random = np.random.default_rng(0)
    with av.open(str(path), "w", options=dict(container or {})) as output:
        stream = output.add_stream(codec, rate=rate or 30, options=dict(options or {}))
        stream.width, stream.height, stream.pix_fmt = *size, pixels
        stream.codec_context.time_base = stream.time_base = Fraction(1, rate or 600)
        if aspect:
            stream.codec_context.sample_aspect_ratio = stream.sample_aspect_ratio = aspect
        sound = output.add_stream("aac", rate=8000, layout="mono") if sound_s else None
        for i, time in enumerate(times):
            image = np.full((size[1], size[0], 3), (i * 7) % 256 if greys is None else greys[i], np.uint8)
            if noise:
                image = random.integers(0, 256, image.shape, np.uint8)
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = time, Fraction(1, rate or 600)
            output.mux(stream.encode(frame))
        output.mux(stream.encode())
        if sound:
            mux_silence(output, sound, sound_s)
    return path


def mux_silence(output, stream, seconds: int) -> None:
    frame = av.AudioFrame.from_ndarray(np.zeros((1, seconds * 8000), np.float32), format="fltp", layout="mono")
    frame.sample_rate, frame.pts, frame.time_base = 8000, 0, Fraction(1, 8000)
    output.mux(stream.encode(frame))
    output.mux(stream.encode())


def ffmpeg_24(path: Path) -> Iterator[np.ndarray]:
    """Yield the upright frames of FFmpeg's fps filter at 24 FPS."""
    with av.open(str(path), metadata_errors="ignore") as container:
        stream = container.streams.best("video")
        graph = av.filter.Graph()
        nodes = [
            graph.add_buffer(template=stream),
            graph.add("setpts", "PTS-STARTPTS"),
            graph.add("fps", "24"),
            graph.add("buffersink"),
        ]
        for a, b in zip(nodes, nodes[1:], strict=False):
            a.link_to(b)
        graph.configure()
        turn = 0
        for frame in itertools.chain(container.decode(stream), [None]):
            graph.push(frame)
            turn = frame.rotation // 90 if frame else turn
            while True:
                try:
                    yield np.rot90(graph.pull().to_ndarray(format="rgb24"), turn)
                except (av.error.BlockingIOError, av.error.EOFError):
                    break

"""Cameras that play for hours and do what cameras do: stall, restart, change their size, send times that jump.

A camera sends a video from its beginning again and again, muxed while it plays, so that hours take no memory.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from time import monotonic

import av
from playing import CAMERA, SIZE, Taken

LARGER = (640, 480)  # pixels
MOST = 30  # seconds of a video that are sent again and again
START = 60  # seconds, that times may jump back


@dataclass(frozen=True)
class Oddity:
    """What a camera does every so many seconds; nothing where that is 0."""

    every: float = 0.0
    silent: float = 0.0
    """Seconds for which it sends nothing, and goes on with the present."""
    restarts: float = 0.0
    """Seconds after which it can be connected to again, its times from zero on."""
    resizes: bool = False
    """Whether it changes between two sizes, in one connection."""
    jump: float = 0.0
    """Seconds by which its times jump, back and forth."""


STEADY = Oddity()
ODDITIES = {
    "stalls": Oddity(every=180.0, silent=20.0),
    "restarts": Oddity(every=240.0, restarts=10.0),
    "resizes": Oddity(every=150.0, resizes=True),
    "jumps": Oddity(every=60.0, jump=7.0),
}


class Camera:
    """A video as an odd camera sends it; as a `Film` of `playing`, but without an end."""

    closes = True

    def __init__(self, video: Path, fps: int, oddity: Oddity = STEADY):
        self.fps, self.oddity = fps, oddity
        sizes = (SIZE, LARGER) if oddity.resizes else (SIZE,)
        self._loops = [(size, _packets(video, fps, size)) for size in sizes]
        self._ready = 0.0

    def sent(self) -> Iterator[tuple[float, bytes]]:
        """Seconds from the connection to when a frame is due, and it; it ends where the camera restarts."""
        if monotonic() < self._ready:
            return
        oddity, first, turn = self.oddity, 0, 0
        while True:
            for count, packet in self._turn(turn, first):
                yield count / self.fps, packet
            turn, first = turn + 1, count + 1 + round(oddity.silent * self.fps)
            if oddity.restarts:
                self._ready = monotonic() + oddity.restarts
                return

    def _turn(self, turn: int, first: int) -> Iterator[tuple[int, bytes]]:
        """Frames from the first on, until something odd happens, each muxed."""
        size, loop = self._loops[turn % len(self._loops)]
        until = first + round(self.oddity.every * self.fps) if self.oddity.every else None
        behind = self.oddity.jump * (turn % 2)
        written = Taken()
        with av.open(written, "w", format="mpegts", options={"flush_packets": "1"}) as output:
            stream = output.add_stream("libx264", rate=self.fps)
            stream.width, stream.height, stream.pix_fmt = *size, "yuv420p"
            for count in islice(itertools.count(first), until and until - first):
                data, is_key = loop[(count - first) % len(loop)]
                packet = av.Packet(data)
                packet.time_base, packet.is_keyframe, packet.stream = Fraction(1, self.fps), is_key, stream
                packet.pts = packet.dts = count + round((START - behind) * self.fps)
                packet.duration = 1
                output.mux(packet)
                yield count, written.take()


def _packets(video: Path, fps: int, size: tuple[int, int]) -> list[tuple[bytes, bool]]:
    """The first seconds of a video as a camera encodes them, and which frames are key frames, with their headers."""
    encoder = av.CodecContext.create("libx264", "w")
    encoder.width, encoder.height, encoder.pix_fmt, encoder.options = *size, "yuv420p", CAMERA
    encoder.time_base, encoder.framerate = Fraction(1, fps), fps
    found: list[tuple[bytes, bool]] = []
    with av.open(str(video)) as source:
        pictures = islice(source.decode(video=0), MOST * fps)
        for number, picture in enumerate(chain(pictures, (None,))):
            frame = picture and picture.reformat(*size, format="yuv420p")
            if frame:
                frame.pts, frame.time_base = number, Fraction(1, fps)
                frame.pict_type = av.video.frame.PictureType.NONE
            found += [(bytes(packet), packet.is_keyframe) for packet in encoder.encode(frame)]
    return found

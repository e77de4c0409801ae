"""Single frames of a video file by their number.

A frame is decoded from the key frame before it, and is identified by its own time and never by counting; where a file
does not start where it was asked to, as streams with open groups of pictures do, from an earlier key frame.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from lstr.errors import VideoError
from lstr.extractors.video.containers import best_video, open_container
from lstr.extractors.video.frames import upright, working_size
from lstr.extractors.video.probe import AVERAGE_RATE, Video, aspect_of, probe, seconds, unreadable
from lstr.extractors.video.reader import render

# Bytes of decoded pictures that are kept, so that a step back is no new decoding.
KEPT_BYTES = 96 * 2**20
# Frames up to which decoding goes on rather than begin at the next key frame.
AHEAD = 48


def index_frames(path: Path) -> Video:
    """A file as ExactFrames takes it: damage is skipped, and of frames at one time only one is there.

    Raises as `probe`.
    """
    video = probe(path, skip_damaged=True)
    return replace(video, ticks=np.unique(video.ticks))


class ExactFrames:
    """The frames of an indexed file, from any thread, one at a time; use it as a context manager."""

    def __init__(self, index: Video, kept_bytes: int = KEPT_BYTES):
        self.index = index
        self._most = kept_bytes
        self._kept: OrderedDict[int, av.VideoFrame] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._opened = ExitStack()
        self._pictures: Iterator[tuple[int, av.VideoFrame]] = iter(())
        self._at = -1
        """The number of the picture that was decoded last; the next one follows it. -1 where nothing is open."""
        self._reformatter = VideoReformatter()

    def __enter__(self) -> "ExactFrames":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and forget its pictures."""
        with self._lock:
            self._stop()
            self._kept.clear()
            self._bytes = 0

    def image(self, number: int, long_side: int) -> NDArray[np.uint8]:
        """Frame `number`, upright, (H, W, 3) RGB with square samples, its longer side at most `long_side` pixels.

        Raises IndexError where there is no such frame, VideoError where it cannot be decoded.
        """
        if not 0 <= number < len(self.index.ticks):
            raise IndexError(number)
        with self._lock:
            picture = self._picture(number)
            size = upright(working_size(picture.width, picture.height, long_side, self._aspect), picture.rotation)
            return render(picture, size, self._reformatter)

    def _picture(self, number: int) -> av.VideoFrame:
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        try:
            if self._at >= 0 and 0 < number - self._at <= max(AHEAD, number - self._key_before(number)):
                if picture := self._go_to(number):
                    return picture
            key = self._key_before(number)
            while True:
                self._begin(key)
                if picture := self._go_to(number):
                    return picture
                if key == 0:
                    break
                key = self._key_before(key - 1)
        except (av.error.FFmpegError, OSError, ValueError) as error:
            self._stop()
            raise unreadable(str(self.index.path), error) from error
        time = self.index.times[number]
        raise VideoError(f"The frame at {time:g} s of {self.index.path} cannot be decoded.", "it may be damaged there.")

    def _key_before(self, number: int) -> int:
        """The number of the last key frame up to a frame; 0 where there is none."""
        index = self.index
        at = int(np.searchsorted(index.keys, index.ticks[number], side="right")) - 1
        return int(np.searchsorted(index.ticks, index.keys[at])) if at >= 0 else 0

    def _begin(self, key: int) -> None:
        """Let the next pictures be those from a key frame on; those of the whole file where it is the first."""
        self._stop()
        container = self._opened.enter_context(open_container(self.index.path))
        stream = best_video(container, str(self.index.path))
        stream.thread_type = "AUTO"
        self._aspect = aspect_of(stream)
        if key:
            container.seek(int(self.index.ticks[key]), stream=stream, backward=True)
        self._pictures = self._decoded(container, stream)

    def _decoded(
        self, container: av.container.InputContainer, stream: av.VideoStream
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        """(number, picture) of what can be decoded; what is damaged, or is in no index, is left out."""
        counted = 0
        for packet in container.demux(stream):
            try:
                pictures = packet.decode()
            except av.error.InvalidDataError:
                continue
            for picture in pictures:
                if self.index.clock == AVERAGE_RATE:
                    yield counted, picture
                    counted += 1
                elif picture.pts is not None and not picture.is_corrupt:
                    tick = seconds(picture.pts, picture.time_base) / self.index.time_base
                    number = int(np.searchsorted(self.index.ticks, math.ceil(tick)))
                    if number < len(self.index.ticks) and self.index.ticks[number] == tick:
                        yield number, picture

    def _go_to(self, number: int) -> av.VideoFrame | None:
        """Decode on until a frame, keeping what comes on the way; None where the file has gone past it."""
        for at, picture in self._pictures:
            self._at = at
            self._keep(at, picture)
            if at >= number:
                return picture if at == number else None
        self._stop()
        return None

    def _keep(self, number: int, picture: av.VideoFrame) -> None:
        if number in self._kept:
            return
        self._kept[number] = picture
        self._bytes += _size(picture)
        while self._bytes > self._most and len(self._kept) > 1:
            self._bytes -= _size(self._kept.popitem(last=False)[1])

    def _stop(self) -> None:
        self._opened.close()
        self._pictures, self._at = iter(()), -1


def _size(picture: av.VideoFrame) -> int:
    return sum(plane.buffer_size for plane in picture.planes)

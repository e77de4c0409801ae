"""Random access to the frames of a video file by number.

A frame is decoded from the key frame before it, and identified by its timestamp, never by counting. If seeking misses a
key frame, as in streams with open GOPs, decoding starts at an earlier key frame.
"""

import math
import threading
from collections import OrderedDict
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from lstr.errors import VideoError
from lstr.extractors.video.containers import best_video, decode, open_container
from lstr.extractors.video.frames import working_size
from lstr.extractors.video.probe import AVERAGE_RATE, Video, probe, time_of, unreadable
from lstr.extractors.video.reader import render

CACHE_BYTES = 96 * 2**20  # of decoded frames, so that stepping back does not decode again
AHEAD = 48  # continue decoding over up to this many frames instead of seeking


def index_frames(path: Path) -> Video:
    """Index a file for ExactFrames: damaged frames are skipped, and frames with equal times count once.

    Raises as `probe`.
    """
    video = probe(path, skip_damaged=True)
    return replace(video, ticks=np.unique(video.ticks))


class ExactFrames:
    """A thread-safe reader of single frames of an indexed file; close it at the end."""

    def __init__(self, index: Video, cache_bytes: int = CACHE_BYTES):
        self.index = index
        self._max_bytes = cache_bytes
        self._cache: OrderedDict[int, av.VideoFrame] = OrderedDict()
        self._lock = threading.Lock()
        self._pictures: Generator[tuple[int, av.VideoFrame], None, None] | None = None  # of the open file
        self._at = -1  # number of the latest decoded frame; -1 if no file is open
        self._reformatter = VideoReformatter()

    def close(self) -> None:
        """Close the file and drop its frames."""
        with self._lock:
            self._stop()
            self._cache.clear()

    def image(self, number: int, long_side: int) -> NDArray[np.uint8]:
        """Return a frame by number, as upright RGB (H, W, 3) with square samples.

        Its longer side is at most `long_side` pixels. Raises IndexError for a number outside the file, and VideoError
        for a frame that cannot be decoded.
        """
        if not 0 <= number < len(self.index.ticks):
            raise IndexError(number)
        with self._lock:
            try:
                picture, key = self._cache.get(number), self._key_before(number)
                if not picture and self._at >= 0 and 0 < number - self._at <= max(AHEAD, number - key):
                    picture = self._decode_to(number)
                while not picture:
                    self._stop()
                    self._pictures = self._decoded_from(key)
                    if (picture := self._decode_to(number)) or key == 0:
                        break
                    key = self._key_before(key - 1)
            except (av.error.FFmpegError, OSError, ValueError) as error:
                self._stop()
                raise unreadable(str(self.index.path), error) from error
            if picture is None:
                time = self.index.times[number]
                raise VideoError(
                    f"The frame at {time:g} s of {self.index.path} cannot be decoded.",
                    "check the file for damage at this time.",
                )
            if number in self._cache:
                self._cache.move_to_end(number)
            size = working_size(picture.width, picture.height, long_side, self.index.sample_aspect, picture.rotation)
            return render(picture, size, self._reformatter)

    def _key_before(self, number: int) -> int:
        """Return the number of the last key frame up to a frame; 0 without one."""
        index = self.index
        at = int(np.searchsorted(index.keys, index.ticks[number], side="right")) - 1
        return int(np.searchsorted(index.ticks, index.keys[at])) if at >= 0 else 0

    def _decoded_from(self, key: int) -> Generator[tuple[int, av.VideoFrame], None, None]:
        """Yield (number, frame) of decodable frames in the index from a key frame on, without damaged ones."""
        index, counted = self.index, 0
        with open_container(index.path) as container:
            stream = best_video(container, str(index.path))
            stream.thread_type = "AUTO"
            if key:  # the first key frame is the beginning of the file
                container.seek(int(index.ticks[key]), stream=stream, backward=True)
            for packet in container.demux(stream):
                for picture in decode(stream.codec_context, packet):
                    if index.clock == AVERAGE_RATE:
                        yield counted, picture
                        counted += 1
                    elif (time := time_of(picture)) is not None and not picture.is_corrupt:
                        tick = time / index.time_base
                        number = int(np.searchsorted(index.ticks, math.ceil(tick)))
                        if number < len(index.ticks) and index.ticks[number] == tick:
                            yield number, picture

    def _decode_to(self, number: int) -> av.VideoFrame | None:
        """Decode up to a frame, and cache the frames before it; return None if the reader is already past it."""
        for at, picture in self._pictures or ():
            self._at = at
            if at not in self._cache:
                self._cache[at] = picture
                n_bytes = sum(plane.buffer_size for plane in picture.planes)  # equal for nearly all of a file
                while len(self._cache) > max(1, self._max_bytes // n_bytes):
                    self._cache.popitem(last=False)
            if at >= number:
                return picture if at == number else None
        self._stop()
        return None

    def _stop(self) -> None:
        if self._pictures:
            self._pictures.close()
        self._pictures, self._at = None, -1

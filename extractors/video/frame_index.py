"""When each frame of a file is shown, from its packets: which frame a moment has, and where decoding begins."""

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from lstr.extractors.errors import VideoError
from lstr.extractors.video.containers import best_video, open_container
from lstr.extractors.video.first_picture import first_picture
from lstr.extractors.video.probe import counts_frames, frame_step, seconds, unreadable

DIGITS = 6
"""Decimals of a second: times are told in microseconds, which tell any two frames apart."""
OFTEN = 1000
"""Packets after which is told how far it is."""


@dataclass(frozen=True)
class FrameIndex:
    """The frames of a file in the order in which they are shown."""

    path: Path
    ticks: NDArray[np.int64]
    """(n,) times in units of `time_base`, strictly increasing; numbers of frames where `by_rate`."""
    keys: NDArray[np.int64]
    """Times of the key frames, increasing, in the same units."""
    time_base: Fraction
    last_duration: Fraction
    """Seconds that the last frame is shown."""
    start: float
    """Seconds by which a player's clock is ahead when the first frame is shown."""
    by_rate: bool
    """Frames have no times of their own, or none in their order: frame n is shown at n / average rate."""

    @cached_property
    def times(self) -> NDArray[np.float64]:
        """(n,) seconds from the first frame, as they are told and written, to the microsecond."""
        base = self.time_base
        exact = (self.ticks - self.ticks[0]) * base.numerator / base.denominator
        return np.round(exact, DIGITS)

    @property
    def duration(self) -> float:
        """Seconds from the first frame's start to the last one's end."""
        exact = int(self.ticks[-1] - self.ticks[0]) * self.time_base + self.last_duration
        return round(float(exact), DIGITS)


def find_start(path: Path) -> float:
    """Seconds by which a player's clock is ahead when the first frame that decodes is shown; no more is read.

    Raises VideoError where the file cannot be read or holds no such frame.
    """
    try:
        first = first_picture(path, skip_damaged=True)
        with open_container(path) as container:
            if first.start is None or counts_frames(container, best_video(container, str(path))):
                return 0.0
            return round(float(first.start - Fraction(container.start_time or 0, av.time_base)), DIGITS)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise unreadable(str(path), error) from error


def index_frames(path: Path, tell: Callable[[float], object] | None = None) -> FrameIndex:
    """Read a file's packets; time begins at the first picture that decodes, which alone is decoded.

    Raises VideoError where the file cannot be read or holds no frame that decodes.

    tell: gets now and then which part of the file has been read, from 0 to 1.
    """
    size = path.stat().st_size if tell and path.is_file() else 0
    try:
        first = first_picture(path, skip_damaged=True)
        with open_container(path) as container:
            stream = best_video(container, str(path))
            starts, keys = array("q"), array("q")
            missing = end = 0
            for packet in container.demux(stream):
                if packet.size == 0 or packet.is_discard:
                    continue
                if tell and size and len(starts) % OFTEN == 0 and packet.pos is not None:
                    tell(min(1.0, packet.pos / size))
                if packet.pts is None:
                    missing += 1
                    continue
                starts.append(packet.pts)
                end = max(end, packet.pts + (packet.duration or 0))
                if packet.is_keyframe:
                    keys.append(packet.pts)
            base, step = stream.time_base, frame_step(stream)
            by_rate = missing > 0 or counts_frames(container, stream)
            began = Fraction(container.start_time or 0, av.time_base)
    except (av.error.FFmpegError, OSError, ValueError) as error:
        raise unreadable(str(path), error) from error
    if not starts and not missing:
        raise VideoError(f"{path} has a video stream without frames.", "record or download the file again.")
    if by_rate or base is None:
        numbers = np.arange(len(starts) + missing - first.lost)
        return FrameIndex(path, numbers, numbers[:1], step, step, 0.0, True)
    ticks = first.onwards(np.unique(np.frombuffer(starts, np.int64)), base)
    last = seconds(end - int(ticks[-1]), base)
    start = float(seconds(int(ticks[0]), base) - began)
    begins = np.unique(np.frombuffer(keys, np.int64)) if keys else ticks[:0]
    begins = begins[begins >= ticks[0]]
    return FrameIndex(path, ticks, begins, base, last if last > 0 else step, start, False)

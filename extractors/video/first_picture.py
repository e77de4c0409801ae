"""Where the time of a file begins: at its first picture that decodes, which need not be of its first packet.

A recording that was cut out of another one begins with packets whose key frame is not in it: those before the next key
frame, and those after it that are shown before it. No decoder makes pictures of them.
"""

import math
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from numpy.typing import NDArray

from lstr.extractors.errors import VideoError
from lstr.extractors.video.containers import best_video, open_container


@dataclass(frozen=True)
class FirstPicture:
    """The first picture of a file that decodes."""

    rotation: int
    """Degrees by which pictures must be turned."""
    bits: int
    """Bits of a sample."""
    start: Fraction | None
    """Its time, in seconds of the container; None where it has none."""
    lost: int
    """Packets before it that give no picture, in a file that does not begin with a key frame."""

    def onwards(self, ticks: NDArray[np.int64], time_base: Fraction) -> NDArray[np.int64]:
        """Sorted times of packets, in units of `time_base`, without those before it."""
        if self.start is None:
            return ticks
        tick = self.start / time_base
        number = int(np.searchsorted(ticks, math.ceil(tick)))
        # a decoder that tells another time than its packet has says nothing of where the file begins
        return ticks[number:] if number < len(ticks) and int(ticks[number]) == tick else ticks


def first_picture(path: Path, skip_damaged: bool = False) -> FirstPicture:
    """Decode up to the first picture, or with `skip_damaged` up to the first one that is whole.

    Raises VideoError where there is none, else what PyAV raises.
    """
    with open_container(path) as container:
        stream = best_video(container, str(path))
        packets, is_cut = 0, False
        for packet in container.demux(stream):
            if packet.size and not packet.is_discard:
                is_cut = is_cut or not (packets or packet.is_keyframe)
                packets += 1
            try:
                pictures = [p for p in packet.decode() if not (skip_damaged and p.is_corrupt)]
            except av.error.InvalidDataError:
                if not skip_damaged:
                    raise
                continue
            if not pictures:
                continue
            first, made = pictures[0], len(pictures)
            if is_cut and packet.size:
                with suppress(av.error.InvalidDataError):
                    made += len(stream.codec_context.decode(None))  # those that it holds back
            bits = max(component.bits for component in first.format.components)
            start = None if first.pts is None or first.time_base is None else first.pts * first.time_base
            return FirstPicture(first.rotation, bits, start, max(0, packets - made) if is_cut else 0)
    raise VideoError(f"{path} holds no decodable frame.", "record or download the file again.")

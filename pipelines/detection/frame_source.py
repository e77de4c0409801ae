"""Frames that a program has, with their times, as a source to detect on."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from itertools import accumulate
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.checkpoints.loaded import Checkpoint
from lstr.errors import VideoError
from lstr.extractors.prefetch import closed_after
from lstr.extractors.video.frames import FPS, Chunk, SourceFrame, chunks_of, shrink, working_size
from lstr.extractors.video.stretches import GAP_SECONDS, stretches
from lstr.pipelines.detection.networks import Networks
from lstr.pipelines.detection.sources import Limits, Recorded, Source, Unreadable
from lstr.pipelines.detection.warnings import warnings_of_shape

FIRST_STEPS = 3
"""So many steps between frames, all of more than two seconds, are no pause: their times are no seconds."""
PAIRS = "give pairs of a frame, uint8 (H, W, 3) RGB, and its time in seconds."


@dataclass(frozen=True)
class FrameSource(Recorded):
    """An iterable of frames (H, W, 3) uint8 RGB with times in seconds; nobody knows how many will come."""

    frames: Iterable[Any] = field(repr=False, compare=False)

    def open(self, networks: Networks, limits: Limits) -> Source | Unreadable:
        """Raises as `Networks.open`."""
        if not isinstance(self.frames, Iterable):
            error = VideoError(f"{self.frames!r} is neither a path, nor an address, nor frames.", PAIRS)
            return Unreadable(self.id, error, self.origin)
        twostream, workers, known = networks.open()
        warnings = [*known]
        seen = seen_chunks(source_frames(self.frames, twostream.recipe.long_side), limits.first)
        chunks = _looked_at(_chosen(seen, limits), networks.loaded, warnings)
        rows = twostream.rows(chunks, workers, live=True)
        return Source(self.id, self.origin, None, None, None, rows, warnings)


def seen_chunks(frames: Iterator[SourceFrame], first: int = 0) -> Iterator[Chunk]:
    """Chunks of frames, from `first` on, without those of more than two seconds in which no frame came."""
    for begin, stretch in stretches(frames):
        yield from chunks_of(stretch, max(first, begin))


def _chosen(chunks: Iterator[Chunk], limits: Limits) -> Iterator[Chunk]:
    """The chunks within the limits; after the last one no frame is asked for."""
    with closed_after(chunks) as source:
        for number, chunk in enumerate(source, 1):
            if limits.end is not None and chunk.index >= limits.end:
                return
            yield chunk
            if number == limits.max_chunks or chunk.index + 1 == limits.end:
                return


def _looked_at(chunks: Iterator[Chunk], loaded: Checkpoint, warnings: list[str]) -> Iterator[Chunk]:
    """The chunks; what must be known of their shape joins the warnings as the first one comes."""
    for number, chunk in enumerate(chunks):
        if not number:
            height, width = chunk.frames.shape[1:3]
            warnings += warnings_of_shape(loaded, width, height)
        yield chunk


def source_frames(frames: Iterable[Any], long_side: int) -> Iterator[SourceFrame]:
    """Each frame at the working size of the first one, its time counted from the first one's.

    A frame is read before the next one is asked for, so that a program may use one array for all. Raises VideoError
    for what is no frame, for a time that falls or is no number, and for times that are no seconds.
    """
    first = last = None
    apart: list[Fraction] = []  # how far the first frames are from each other
    step, size = Fraction(1, FPS), (0, 0)
    with closed_after(frames) as source:
        for number, item in enumerate(source):
            image, time = _checked(item, number)
            if first is None or last is None:
                first = last = time
                size = working_size(image.shape[1], image.shape[0], long_side)
            if time < last:
                raise VideoError(
                    f"The time of frame {number} is {float(time):g} s, and that of the one before {float(last):g} s.",
                    "give times that do not fall; where a source begins anew, detect on it anew.",
                )
            if 0 < number <= FIRST_STEPS:
                apart.append(time - last)
            if len(apart) == FIRST_STEPS and min(apart) > GAP_SECONDS:
                times = ", ".join(f"{float(at):g}" for at in accumulate([first, *apart]))
                raise VideoError(
                    f"The first frames are at {times} s: nothing is seen of an action in such frames.",
                    "give times in seconds: what has milliseconds divides by 1000.",
                )
            if 0 < time - last <= GAP_SECONDS:
                step = time - last
            last = time
            fitted = shrink(image, size)
            picture = fitted.copy() if np.may_share_memory(fitted, image) else fitted
            yield SourceFrame(time - first, step, partial(np.asarray, picture))


def _checked(item: Any, number: int) -> tuple[NDArray[np.uint8], Fraction]:
    try:
        frame, time = item
        image = np.asarray(frame)
        sound = math.isfinite(time)
    except (TypeError, ValueError, OverflowError) as error:
        raise VideoError(f"Item {number} is no frame with its time ({error}).", PAIRS) from error
    if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] != 3 or not image.size:
        raise VideoError(f"Frame {number} is {image.dtype} of shape {image.shape}.", PAIRS)
    if not sound:
        raise VideoError(f"The time of frame {number} is {time}.", PAIRS)
    return image, Fraction(time if isinstance(time, Rational) else float(time))

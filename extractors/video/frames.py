"""Frames at 24 per second in chunks, and the stretches of a source between its gaps."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import cv2
import numpy as np
from numpy.typing import NDArray

FPS = 24  # frames per second after resampling (paper, "Feature Encoding")
CHUNK = 6  # frames per chunk; with FPS this makes 4 features per second
CHUNK_SECONDS = CHUNK / FPS
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Chunk:
    """Six consecutive 24 FPS frames; `end_time` in seconds is when the chunk closes."""

    index: int
    end_time: float
    frames: NDArray[np.uint8]
    """(6, H, W, 3) RGB at the working size."""


@dataclass(frozen=True)
class SourceFrame:
    """A decoded frame: seconds from the first frame, seconds it is shown, and how to make its image."""

    time: Fraction
    duration: Fraction
    render: Callable[[], NDArray[np.uint8]]

    @cached_property
    def image(self) -> NDArray[np.uint8]:
        """(H, W, 3) RGB, made when first read: a frame that 24 FPS leaves out is never converted."""
        return self.render()


def n_frames_until(seconds: Fraction) -> int:
    """Number of 24 FPS frames from 0 to `seconds`: floor(seconds · 24 + 1/2)."""
    return int(seconds * FPS + HALF)


def resample(frames: Iterable[SourceFrame], first: int = 0) -> Iterator[SourceFrame]:
    """Frames at their own, never decreasing times to 24 FPS, as FFmpeg's fps filter does, in exact arithmetic.

    A frame's slot is floor(time · 24 + 1/2); output k, from `first` on, is the last frame whose slot is ≤ k; gaps
    repeat. It looks ahead by one frame. The last frame is shown for its duration.
    """
    held, k = None, first
    for frame in frames:
        slot = n_frames_until(frame.time)
        while held is not None and k < slot:
            yield held
            k += 1
        held = frame
    if held is not None:
        for _ in range(k, n_frames_until(held.time + held.duration)):
            yield held


def working_size(width: int, height: int, long_side: int, sample_aspect: Fraction = Fraction(1)) -> tuple[int, int]:
    """(width, height) with square samples and the longer side at most `long_side` pixels; no side is enlarged."""
    across: int | Fraction = width
    down: int | Fraction = height
    if sample_aspect > 1:
        down /= sample_aspect
    else:
        across *= sample_aspect
    scale = min(1.0, long_side / max(across, down))
    return max(1, round(across * scale)), max(1, round(down * scale))


def upright(size: tuple[int, int], rotation: int) -> tuple[int, int]:
    """A size after turning the picture by `rotation` degrees."""
    return size[::-1] if rotation % 180 else size


def shrink(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """(H, W, 3) RGB to (width, height) with area interpolation (part of the recipe)."""
    if size == (image.shape[1], image.shape[0]):
        return np.ascontiguousarray(image)
    return np.asarray(cv2.resize(np.ascontiguousarray(image), size, interpolation=cv2.INTER_AREA), np.uint8)


def chunks_of(frames: Iterable[SourceFrame], first: int = 0, most: int | None = None) -> Iterator[Chunk]:
    """Yield chunks of source frames, in order, each as soon as a later frame closes it; the short tail is dropped.

    Those before chunk `first` are skipped, and their images never made. After `most` chunks no frame is read.
    """
    pending: list[NDArray[np.uint8]] = []
    index = first
    for frame in resample(frames, first * CHUNK):
        pending.append(frame.image)
        if len(pending) == CHUNK:
            yield Chunk(index, (index + 1) * CHUNK_SECONDS, np.stack(pending))  # (6, H, W, 3)
            index += 1
            if most is not None and index - first >= most:
                return
            pending = []


GAP_SECONDS = 2
RATES = (Fraction(1, 10), 240)  # frames per second that a source may say it has
SLOW_STEPS = 4  # of a source with less than two frames per second
SILENCE = 10.0  # seconds without a frame after which another connection is tried


@dataclass(frozen=True)
class Gap:
    """Chunks from `first` to before `end` that are not decided: `dropped`, or `unseen`: they never came."""

    first: int
    end: int
    reason: str


def joined(gaps: Iterable[Gap]) -> list[Gap]:
    """Gaps in order, neighbours of one reason as one."""
    found: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: gap.first):
        if found and found[-1].end == gap.first and found[-1].reason == gap.reason:
            gap = replace(gap, first=found.pop().first)
        found.append(gap)
    return found


def stretches(
    frames: Iterator[SourceFrame], step: Fraction | None = None
) -> Iterator[tuple[int, Iterator[SourceFrame]]]:
    """Frames cut where the next one is too far away to have been seen until then: (first whole chunk, frames) each.

    `step` is that of a frame before. Each stretch must be taken to its end before the next one.
    """
    newest = step or Fraction(0)
    ahead = next(frames, None)

    def stretch() -> Iterator[SourceFrame]:
        nonlocal ahead, newest
        while ahead is not None:
            frame, ahead = ahead, None
            yield frame
            ahead = next(frames, None)
            if ahead is not None:
                allowed = min(max(Fraction(GAP_SECONDS), SLOW_STEPS * newest), Fraction(SLOW_STEPS * SILENCE))
                newest = ahead.time - frame.time
                if newest > allowed:
                    return

    while ahead is not None:
        yield -(-n_frames_until(ahead.time) // CHUNK), stretch()


def counted_on(before: Fraction, duration: Fraction, silence: float) -> Fraction:
    """The time of a frame that follows one at `before` by as long as frames last, or after a silence, in seconds."""
    slowest, fastest = RATES
    step = duration if 1 / Fraction(fastest) <= duration <= 1 / slowest else Fraction(1, FPS)
    return before + (Fraction(silence).limit_denominator(1000) if silence > GAP_SECONDS else step)

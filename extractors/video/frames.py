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
    frames: NDArray[np.uint8]  # (6, H, W, 3) RGB at the working size


@dataclass(frozen=True)
class SourceFrame:
    """A decoded frame: seconds from the first frame, seconds it is shown, and how to make its image."""

    time: Fraction
    duration: Fraction
    render: Callable[[], NDArray[np.uint8]]

    @cached_property
    def image(self) -> NDArray[np.uint8]:
        """(H, W, 3) RGB, made when first read: frames that 24 FPS skips are never converted."""
        return self.render()


def n_frames_until(seconds: Fraction) -> int:
    """Return the number of 24 FPS frames from 0 to `seconds`: floor(seconds · 24 + 1/2)."""
    return int(seconds * FPS + HALF)


def resample(frames: Iterable[SourceFrame], first: int = 0) -> Iterator[SourceFrame]:
    """Yield frames at 24 FPS from their own, never decreasing times, as FFmpeg's fps filter does, in exact arithmetic.

    A frame's slot is floor(time · 24 + 1/2); output k, from `first` on, is the last frame whose slot is ≤ k; gaps
    repeat. It looks ahead by one frame. The last frame is shown for its duration.
    """
    shown, k = None, first
    for frame in frames:
        slot = n_frames_until(frame.time)
        while shown is not None and k < slot:
            yield shown
            k += 1
        shown = frame
    if shown is not None:
        for _ in range(k, n_frames_until(shown.time + shown.duration)):
            yield shown


def working_size(width: int, height: int, long_side: int, sample_aspect: Fraction = Fraction(1)) -> tuple[int, int]:
    """Return (width, height) with square samples and the longer side at most `long_side`; no side is enlarged."""
    across: int | Fraction = width
    down: int | Fraction = height
    if sample_aspect > 1:
        down /= sample_aspect
    else:
        across *= sample_aspect
    scale = min(1.0, long_side / max(across, down))
    return max(1, round(across * scale)), max(1, round(down * scale))


def upright(size: tuple[int, int], rotation: int) -> tuple[int, int]:
    """Return a size after a rotation in degrees."""
    return size[::-1] if rotation % 180 else size


def shrink(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return (H, W, 3) RGB at (width, height) by area interpolation (part of the recipe)."""
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
SLOWEST_STEP, FASTEST_STEP = Fraction(10), Fraction(1, 240)  # seconds per frame that a source may declare
SLOW_STEPS = 4  # longest gap, in steps of a source with less than two frames per second
SILENCE_S = 10.0  # seconds without a frame after which a live source is connected again


@dataclass(frozen=True)
class Gap:
    """Chunks from `first` to before `end` that are not decided: `dropped`, or `unseen` if they never came."""

    first: int
    end: int
    reason: str


def merge_gaps(gaps: Iterable[Gap]) -> list[Gap]:
    """Return gaps in order, with adjacent ones of one reason as one."""
    merged: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: gap.first):
        if merged and merged[-1].end == gap.first and merged[-1].reason == gap.reason:
            gap = replace(gap, first=merged.pop().first)
        merged.append(gap)
    return merged


def stretches(
    frames: Iterator[SourceFrame], step: Fraction | None = None
) -> Iterator[tuple[int, Iterator[SourceFrame]]]:
    """Yield frames cut at gaps: (first whole chunk, frames) of each stretch, to be read to its end before the next.

    A gap is longer than GAP_SECONDS, and than SLOW_STEPS of the step before it; `step` is that before the first frame.
    """
    latest_step = step or Fraction(0)
    ahead = next(frames, None)

    def stretch() -> Iterator[SourceFrame]:
        nonlocal ahead, latest_step
        while ahead is not None:
            frame, ahead = ahead, None
            yield frame
            ahead = next(frames, None)
            if ahead is not None:
                longest = min(max(Fraction(GAP_SECONDS), SLOW_STEPS * latest_step), Fraction(SLOW_STEPS * SILENCE_S))
                latest_step = ahead.time - frame.time
                if latest_step > longest:
                    return

    while ahead is not None:
        yield -(-n_frames_until(ahead.time) // CHUNK), stretch()


def next_time(before: Fraction, duration: Fraction, silence: float) -> Fraction:
    """Return the time of a frame by counting: after the one at `before`, or after a silence in seconds."""
    step = duration if FASTEST_STEP <= duration <= SLOWEST_STEP else Fraction(1, FPS)
    return before + (Fraction(silence).limit_denominator(1000) if silence > GAP_SECONDS else step)

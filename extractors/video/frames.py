"""Chunks of six frames at 24 FPS, frame sizes, and gaps of a source."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

FPS = 24  # frames per second after resampling (paper, "Feature Encoding")
CHUNK = 6  # frames per chunk; with FPS this makes 4 features per second
CHUNK_SECONDS = CHUNK / FPS
HALF = Fraction(1, 2)


@dataclass(frozen=True)
class Chunk:
    """Six consecutive frames at 24 FPS; `end_time` in seconds is the end of the last frame."""

    index: int
    end_time: float
    frames: NDArray[np.uint8]  # (6, H, W, 3) RGB at the working size


def n_frames_until(seconds: Fraction) -> int:
    """Return the number of 24 FPS frames from 0 to `seconds`: floor(seconds · 24 + 1/2)."""
    return int(seconds * FPS + HALF)


def working_size(
    width: int, height: int, long_side: int, sample_aspect: Fraction = Fraction(1), rotation: int = 0
) -> tuple[int, int]:
    """Return (width, height) with square samples, upright after a rotation in degrees, from the size of a coded frame.

    The longer side is at most `long_side`; no side is enlarged.
    """
    across: int | Fraction = width
    down: int | Fraction = height
    if sample_aspect > 1:
        down /= sample_aspect
    else:
        across *= sample_aspect
    scale = min(1.0, long_side / max(across, down))
    size = max(1, round(across * scale)), max(1, round(down * scale))
    return size[::-1] if rotation % 180 else size


GAP_SECONDS = 2
SILENCE_S = 10.0  # seconds without a frame after which the connection to a live source is replaced


@dataclass(frozen=True)
class Gap:
    """Chunks from `first` to before `end` without scores: `dropped`, or `unseen` if they were never received."""

    first: int
    end: int
    reason: str
    start_at: datetime | None = None
    end_at: datetime | None = None
    """Start and end on the clock of the wall, of a live source."""


def merge_gaps(gaps: Iterable[Gap]) -> list[Gap]:
    """Return gaps in order; adjacent gaps with the same reason are merged."""
    merged: list[Gap] = []
    for gap in sorted(gaps, key=lambda gap: gap.first):
        if merged and merged[-1].end == gap.first and merged[-1].reason == gap.reason:
            gap = replace(gap, first=merged.pop().first)
        merged.append(gap)
    return merged

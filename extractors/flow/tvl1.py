"""TV-L1 optical flow in compiled code: the result of OpenCV 5's DualTVL1OpticalFlow with its defaults, faster.

The image pyramid is OpenCV's own resize; everything else is in tvl1.c. Threads run it side by side: it holds no lock.
"""

from collections.abc import Sequence

import cv2
import numpy as np
from numpy.typing import NDArray

try:
    from extractors.flow import _tvl1
except ImportError:
    _tvl1 = None  # type: ignore[assignment]  # not compiled on this machine

SCALES = 5
STEP = 0.8
SMALLEST = 16  # pixels; a scale with a shorter side is left out

_spare: list[NDArray[np.uint8]] = []  # scratch memory to use again, one per running thread


def available() -> bool:
    """Whether the kernel was compiled on this machine."""
    return _tvl1 is not None


def variants() -> tuple[str, ...]:
    """Instruction sets this processor can run, slowest first; the last one is used."""
    return _tvl1.variants() if _tvl1 else ()


def _check(image: object) -> None:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 2:
        raise ValueError("a frame must be a grey uint8 array (H, W)")
    if min(image.shape) < SMALLEST:
        raise ValueError(f"a frame must have at least {SMALLEST} pixels per side, not {image.shape}")


def _pyramid(image: NDArray[np.uint8]) -> list[NDArray[np.float32]]:
    """The image (H, W) as float32, then smaller by 0.8 per scale."""
    scales = [image.astype(np.float32, order="C")]
    while len(scales) < SCALES:
        smaller = np.asarray(cv2.resize(scales[-1], None, fx=STEP, fy=STEP, interpolation=cv2.INTER_LINEAR), np.float32)
        if min(smaller.shape) < SMALLEST:
            break
        scales.append(smaller)
    return scales


def _solve(
    before: Sequence[NDArray[np.float32]], after: Sequence[NDArray[np.float32]], variant: int
) -> NDArray[np.float32]:
    """Flow (H, W, 2) between two pyramids."""
    size = _tvl1.workspace_size(*reversed(before[0].shape))
    memory = _spare.pop() if _spare else None
    if memory is None or memory.size < size:
        memory = np.empty(size, np.uint8)
    u = np.zeros((2, *before[-1].shape), np.float32)
    for i0, i1 in zip(reversed(before), reversed(after), strict=True):
        h, w = i0.shape
        if u.shape[1:] != (h, w):
            u = np.stack([cv2.resize(plane, (w, h), interpolation=cv2.INTER_LINEAR) for plane in u]) * (1 / STEP)
        _tvl1.solve_scale(i0, i1, u[0], u[1], memory, w, h, variant)
    _spare.append(memory)
    return np.stack((u[0], u[1]), axis=-1)


def flow(before: NDArray[np.uint8], after: NDArray[np.uint8], variant: str = "") -> NDArray[np.float32]:
    """Flow (H, W, 2) in pixels between two grey images (H, W). Raises ValueError for other input.

    `variant` names an instruction set of variants(); their results are the same but for rare roundings.
    """
    _check(before)
    _check(after)
    if before.shape != after.shape:
        raise ValueError(f"the two frames differ in size: {before.shape} and {after.shape}")
    number = variants().index(variant) if variant else len(variants()) - 1
    return _solve(_pyramid(before), _pyramid(after), number)

"""TV-L1 optical flow in compiled code: the result of OpenCV 5's DualTVL1OpticalFlow with its defaults, faster.

The image pyramid is OpenCV's own resize; everything else is in tvl1.c. Threads run it side by side: it holds no lock.
"""

import cv2
import numpy as np

try:
    from extractors.flow import _tvl1
except ImportError:  # not compiled on this machine
    _tvl1 = None

SCALES = 5
STEP = 0.8
SMALLEST = 16  # pixels; a scale with a shorter side is left out

_spare: list[np.ndarray] = []  # scratch memory to use again, one a running thread


def available() -> bool:
    """Whether the compiled kernel is there."""
    return _tvl1 is not None


def variants() -> tuple[str, ...]:
    """Instruction sets this processor can run, slowest first; the last one is used."""
    return _tvl1.variants() if _tvl1 else ()


def _check(image: np.ndarray) -> None:
    if not isinstance(image, np.ndarray) or image.dtype != np.uint8 or image.ndim != 2:
        raise ValueError("a frame must be a grey uint8 array (H, W)")
    if min(image.shape) < SMALLEST:
        raise ValueError(f"a frame must have at least {SMALLEST} pixels a side, not {image.shape}")


def _pyramid(image: np.ndarray) -> list[np.ndarray]:
    """The image (H, W) uint8 as float32, then smaller by 0.8 a scale."""
    scales = [image.astype(np.float32, order="C")]
    while len(scales) < SCALES:
        smaller = cv2.resize(scales[-1], None, fx=STEP, fy=STEP, interpolation=cv2.INTER_LINEAR)
        if min(smaller.shape) < SMALLEST:
            break
        scales.append(smaller)
    return scales


def _solve(before: list[np.ndarray], after: list[np.ndarray], variant: int) -> np.ndarray:
    """Flow (H, W, 2) float32 between two pyramids."""
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


def flow(before: np.ndarray, after: np.ndarray, variant: str = "") -> np.ndarray:
    """Flow (H, W, 2) float32 in pixels between two grey images (H, W) uint8. Raises ValueError for other input.

    `variant` names an instruction set of variants(); all give the same result but for rare roundings.
    """
    _check(before)
    _check(after)
    if before.shape != after.shape:
        raise ValueError(f"the two frames differ in size: {before.shape} and {after.shape}")
    number = variants().index(variant) if variant else len(variants()) - 1
    return _solve(_pyramid(before), _pyramid(after), number)

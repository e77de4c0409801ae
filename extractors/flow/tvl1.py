"""TV-L1 optical flow in compiled code: the result of OpenCV 5's DualTVL1OpticalFlow with its defaults, faster.

The image pyramid is OpenCV's own resize; everything else is in tvl1.c. Threads run it side by side: it holds no lock.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import cv2
import numpy as np
from numpy.typing import NDArray

try:
    from lstr.extractors.flow import _tvl1
except ImportError:
    _tvl1 = None  # type: ignore[assignment]  # not compiled on this machine

if TYPE_CHECKING:  # the processor needs no torch
    from torch import Tensor

# The defaults of OpenCV 5's DualTVL1OpticalFlow, for all implementations; tvl1.c repeats those of a scale.
SCALES = 5
STEP = 0.8  # size of a scale by that of the one before
SMALLEST = 16  # pixels; scales with a shorter side are skipped
WARPS, OUTER, INNER = 5, 10, 30
EPSILON = 0.01  # pixels; a pair stops when its flow changes by less, root mean square
TAUT, L_T, THETA = 0.25 / 0.3, 0.15 * 0.3, 0.3
FLAT = float(np.finfo(np.float32).eps)  # a squared gradient up to this explains no brightness
BOUND = 20.0  # pixels; denseflow clips flow to ± this before it becomes a byte
MEDIAN_WIRE = 17

_spare: list[_Scratch] = []  # to use again, one per thread that ran at once


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


def _pyramid(image: NDArray[np.uint8], memory: Sequence[NDArray[np.float32]] = ()) -> list[NDArray[np.float32]]:
    """The image (H, W) as float32, then smaller by 0.8 per scale; in the memory of a pyramid of such an image."""
    scales = [memory[0] if memory else np.empty(image.shape, np.float32)]
    scales[0][...] = image
    while len(scales) < SCALES:
        into = memory[len(scales)] if len(scales) < len(memory) else None
        smaller = np.asarray(cv2.resize(scales[-1], None, into, STEP, STEP, cv2.INTER_LINEAR), np.float32)
        if min(smaller.shape) < SMALLEST:
            break
        scales.append(smaller)
    return scales


class _Scratch:
    """Memory for pairs of one size, of one thread at a time: of the kernel, of pyramids, of flow of two scales."""

    def __init__(self, h: int, w: int):
        self.shape = (h, w)
        self.kernel = np.empty(_tvl1.workspace_size(w, h), np.uint8)
        self._flow = np.empty((2, 2 * h * w), np.float32)
        self._pyramids: tuple[list[NDArray[np.float32]], ...] = ([], [])

    def pyramids(self, *images: NDArray[np.uint8]) -> tuple[list[NDArray[np.float32]], ...]:
        """The pyramids of a pair, which last until the next."""
        self._pyramids = tuple(map(_pyramid, images, self._pyramids))
        return self._pyramids

    def flow(self, scale: int, h: int, w: int) -> NDArray[np.float32]:
        """A field (2, H, W) of a scale; those of two neighbouring scales lie apart."""
        return self._flow[scale % 2, : 2 * h * w].reshape(2, h, w)


def _scratch(h: int, w: int) -> _Scratch:
    with suppress(IndexError):
        while _spare:  # another thread may take the last one
            scratch = _spare.pop()
            if scratch.shape == (h, w):  # memory of another size is dropped: sources of two sizes take turns rarely
                return scratch
    return _Scratch(h, w)


def _solve(first: NDArray[np.uint8], second: NDArray[np.uint8], variant: int) -> NDArray[np.float32]:
    """Flow (H, W, 2) between two images; x and y lie in planes of their own."""
    scratch = _scratch(*first.shape)
    before, after = scratch.pyramids(first, second)
    u = scratch.flow(len(before) - 1, *before[-1].shape)
    u.fill(0)
    for scale in reversed(range(len(before))):
        h, w = before[scale].shape
        if u.shape[1:] != (h, w):
            finer = scratch.flow(scale, h, w)
            for coarse, fine in zip(u, finer, strict=True):
                cv2.resize(coarse, (w, h), dst=fine, interpolation=cv2.INTER_LINEAR)
            u = np.multiply(finer, 1 / STEP, out=finer)
        _tvl1.solve_scale(before[scale], after[scale], u[0], u[1], scratch.kernel, w, h, variant)
    field = u.copy().transpose(1, 2, 0)
    _spare.append(scratch)
    return field


def flow(before: NDArray[np.uint8], after: NDArray[np.uint8], variant: str = "") -> NDArray[np.float32]:
    """Flow (H, W, 2) in pixels between two grey images (H, W). Raises ValueError for other input.

    `variant` names an instruction set of variants(); their results are the same but for rare roundings.
    """
    _check(before)
    _check(after)
    if before.shape != after.shape:
        raise ValueError(f"the two frames differ in size: {before.shape} and {after.shape}")
    number = variants().index(variant) if variant else len(variants()) - 1
    return _solve(before, after, number)


def comparators(name: str) -> tuple[tuple[int, int], ...]:
    """Return a comparator network of tvl1_median.h, such as FIND_MEDIAN, as pairs of wires."""
    text = (Path(__file__).parent / "tvl1_median.h").read_text().replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line.startswith(f"#define {name} "))
    return tuple((int(i), int(j)) for i, j in re.findall(r"\((\d+), (\d+)\)", next(lines)))


def stop_bound(h: int, w: int) -> float:
    """Return the summed squared change at which a pair of this size stops."""
    return float(np.float32(EPSILON * EPSILON * (h * w)))


def image_planes(i1: Tensor) -> Tensor:
    """Return what a warp interpolates, (B, 3, H, W): the image (B, H, W) and its centred gradient, halved at edges."""
    import torch
    import torch.nn.functional as F

    wide = F.pad(i1[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    return torch.stack(
        (i1, 0.5 * (wide[:, 1:-1, 2:] - wide[:, 1:-1, :-2]), 0.5 * (wide[:, 2:, 1:-1] - wide[:, :-2, 1:-1])), 1
    )

"""TV-L1 optical flow of a batch of pairs on a GPU: OpenCV 5's DualTVL1OpticalFlow with its defaults.

Pyramid and rounding are those of the processor's path (OpenCV, tvl1.c, workers.to_bytes), to the bit. A scale is one
launch of tvl1_cluster.py, whose iterations touch no memory but the processors' own, or 105 of tvl1_triton.py;
tvl1_solvers.py chooses. No step looks at what a tensor holds, so that the GPU is never waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from lstr.extractors.flow.tvl1 import SCALES, SMALLEST, STEP
from lstr.extractors.flow.tvl1_solvers import Solve, open_solver
from lstr.extractors.flow.tvl1_spec import BOUND


def flow_planes(frames: Tensor) -> Tensor:
    """TV-L1 between neighbouring frames of B chunks, made on their device and not waited for.

    frames: (B, F, H, W) grey, uint8, sides of 16 pixels or more. Returns (B, 2 (F - 1), H, W) uint8: x and y of each
    pair in turn, clipped to ±20 pixels, 0 as 128. Raises as `flow_between`.
    """
    return to_bytes(flow_between(frames)).flatten(1, 2)


def to_bytes(flow: Tensor) -> Tensor:
    """Flow in pixels to uint8: clip to ±20, 0 becomes 128, half to even (denseflow's rounding)."""
    return ((flow.clamp(-BOUND, BOUND) + BOUND) * (255.0 / (2 * BOUND))).round().to(torch.uint8)


def flow_between(frames: Tensor) -> Tensor:
    """TV-L1 flow between neighbours of B series of grey images, made on their device and not waited for.

    frames: (B, F, H, W) uint8, sides of 16 pixels or more. Returns (B, F - 1, 2, H, W) float32 in pixels, x then y.
    Raises ValueError for other input, and FlowError where no kernel runs.
    Source: extractors/flow/tvl1.c, itself OpenCV 5 optflow/src/tvl1flow.cpp; Zach, Pock and Bischof 2007.
    """
    if not isinstance(frames, Tensor) or frames.dtype != torch.uint8 or frames.ndim != 4:
        raise ValueError("frames must be a grey uint8 tensor (B, F, H, W)")
    n_series, n_frames, *size = frames.shape
    if not n_series or n_frames < 2:
        raise ValueError("frames must hold one pair or more")
    if min(size) < SMALLEST:
        raise ValueError(f"a frame must have at least {SMALLEST} pixels per side, not {tuple(size)}")
    with torch.no_grad(), torch.cuda.device_of(frames):
        return _flow(frames, open_solver(frames.device).solve).unflatten(0, (n_series, n_frames - 1))


def _flow(frames: Tensor, solve: Solve) -> Tensor:
    """Flow (B (F - 1), 2, H, W) of frames (B, F, H, W)."""
    scales = [frames.float()]
    while len(scales) < SCALES:
        size = [round(side * STEP) for side in scales[-1].shape[-2:]]
        if min(size) < SMALLEST:
            break
        scales.append(resize(scales[-1], size, 1 / STEP))
    smallest = scales[-1][:, 1:].flatten(0, 1)
    u = smallest.new_zeros(len(smallest), 2, *smallest.shape[-2:])
    for images in reversed(scales):
        if u.shape[-2:] != images.shape[-2:]:
            u = resize(u, images.shape[-2:]) * (1 / STEP)
        # of two frames a series, what flatten gives is no copy, and pairs lie apart; kernels count on them side by side
        before, after = (frames.flatten(0, 1).contiguous() for frames in (images[:, :-1], images[:, 1:]))
        u = solve(before, after, u)
    return u


def resize(image: Tensor, size: Sequence[int], scale: float | None = None) -> Tensor:
    """cv2.resize of float32 images (..., H, W) to `size` (h, w), INTER_LINEAR; `scale` source pixels per pixel.

    Without `scale` it is H / h and W / w. Equal to OpenCV 5 bit for bit but for a last row or column now and then.
    """
    for dim in (-1, -2):
        low, high, part = _taps(image.shape[dim], size[dim], scale, image.device)
        near, far = image.index_select(dim, low), image.index_select(dim, high)
        image = _fused(far - near, part if dim == -1 else part[:, None], near)
    return image


@lru_cache(maxsize=256)  # the same few for each batch of a video, which would be ten launches each
def _taps(length: int, wanted: int, scale: float | None, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """The two pixels that each pixel of a resized row lies between, and how far from the first.

    Made on the processor and copied at once: what one stream made, another might read too early.
    """
    at = (torch.arange(wanted, dtype=torch.float64) + 0.5) * (scale or length / wanted) - 0.5
    low = at.floor()
    part = torch.where((low < 0) | (low >= length - 1), 0.0, at - low).float()
    low = low.long().clamp(0, length - 1)
    return low.to(device), (low + 1).clamp(max=length - 1).to(device), part.to(device)


def _fused(a: Tensor, b: Tensor | float, c: Tensor | float) -> Tensor:
    """a * b + c rounded once (the product is exact in double), as OpenCV's vector code does."""
    return (a.double() * b + c).float()

"""TV-L1 optical flow of a batch of pairs on a torch device: OpenCV 5's DualTVL1OpticalFlow with its defaults.

Grey, pyramid, flow and rounding are those of the processor's path (OpenCV, tvl1.c, workers.to_bytes), to the bit.

It rounds where tvl1.c rounds. No step looks at what a tensor holds, so that a GPU is never waited for: each
loop runs to its maximum, and a pair that has stopped is left as it is. Counted, an inner iteration is 49 kernels and
930 bytes per pixel, a median filter 135 and 3.2 KB, a warp 155 and 4.9 KB; 406,000 kernels per batch of any size. That
is the definition, and what a CPU runs; no GPU is fast with it. There tvl1_cluster.py makes a scale one launch, whose
iterations touch no memory but the processors' own, or tvl1_triton.py makes it 105; tvl1_solvers.py chooses.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial

import torch
import torch.nn.functional as F
from torch import Tensor

from lstr.extractors.flow.tvl1 import SCALES, SMALLEST, STEP
from lstr.extractors.flow.tvl1_solvers import Solve, open_solver
from lstr.extractors.flow.tvl1_spec import (
    BOUND,
    FIND_MEDIAN,
    FLAT,
    INNER,
    L_T,
    MEDIAN_WIRE,
    OUTER,
    SORT_COLUMN,
    TAUT,
    THETA,
    WARPS,
    image_planes,
    stop_bound,
)

RED, GREEN, BLUE = 9798, 19235, 3735  # of 2^15: what cv2.cvtColor weighs them with


def flow_planes(frames: Tensor) -> Tensor:
    """TV-L1 between neighbouring frames of B chunks, made on their device and not waited for.

    frames: (B, F, H, W, 3) RGB or (B, F, H, W) grey, uint8, sides of 16 pixels or more. Returns (B, 2 (F - 1), H, W)
    uint8: x and y of each pair in turn, clipped to ±20 pixels, 0 as 128. Raises as `flow_between`.
    """
    return to_bytes(flow_between(grey(frames) if frames.ndim == 5 else frames)).flatten(1, 2)


def grey(frames: Tensor) -> Tensor:
    """Grey images (..., H, W) of RGB ones (..., H, W, 3), both uint8, as cv2.cvtColor makes them."""
    if frames.dtype != torch.uint8 or frames.shape[-1] != 3:
        raise ValueError(f"frames must be uint8 (..., H, W, 3), not {frames.dtype} {tuple(frames.shape)}")
    red, green, blue = frames.to(torch.int32).unbind(-1)
    return ((red * RED + green * GREEN + blue * BLUE + (1 << 14)) >> 15).to(torch.uint8)


def to_bytes(flow: Tensor) -> Tensor:
    """Flow in pixels to uint8: clip to ±20, 0 becomes 128, half to even (denseflow's rounding)."""
    return ((flow.clamp(-BOUND, BOUND) + BOUND) * (255.0 / (2 * BOUND))).round().to(torch.uint8)


def flow_between(frames: Tensor) -> Tensor:
    """TV-L1 flow between neighbours of B series of grey images, made on their device and not waited for.

    frames: (B, F, H, W) uint8, sides of 16 pixels or more. Returns (B, F - 1, 2, H, W) float32 in pixels, x then y.
    Raises ValueError for other input, and FlowError where no kernel runs on a GPU.
    Source: extractors/flow/tvl1.c, itself OpenCV 5 optflow/src/tvl1flow.cpp; Zach, Pock and Bischof 2007.
    """
    if not isinstance(frames, Tensor) or frames.dtype != torch.uint8 or frames.ndim != 4:
        raise ValueError("frames must be a grey uint8 tensor (B, F, H, W)")
    n_series, n_frames, *size = frames.shape
    if not n_series or n_frames < 2:
        raise ValueError("frames must hold one pair or more")
    if min(size) < SMALLEST:
        raise ValueError(f"a frame must have at least {SMALLEST} pixels per side, not {tuple(size)}")
    early_exit = frames.device.type == "cpu"
    with torch.no_grad(), torch.cuda.device_of(frames):
        solve = open_solver(frames.device).solve or partial(solve_scale, early_exit=early_exit)
        return _flow(frames, solve).unflatten(0, (n_series, n_frames - 1))


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


def solve_scale(i0: Tensor, i1: Tensor, u: Tensor, early_exit: bool = False) -> Tensor:
    """The flow u (B, 2, H, W) float32 improved at one scale of the images i0, i1 (B, H, W) float32.

    With `early_exit` it looks after each outer iteration whether all pairs have stopped, which waits for the device.
    """
    n_pairs, h, w = i0.shape
    bound = stop_bound(h, w)
    planes = image_planes(i1)
    p = u.new_zeros(n_pairs, 2, 2, h, w)  # flow component, direction
    for _ in range(WARPS):
        gradient, rho_c = warp(planes, i0, u)
        square = gradient[:, 0] * gradient[:, 0] + gradient[:, 1] * gradient[:, 1]
        data = gradient, rho_c, square * L_T, torch.where(square > FLAT, -square, -torch.inf)
        moving = torch.ones(n_pairs, dtype=torch.bool, device=u.device)
        for _ in range(OUTER):
            u = torch.where(moving[:, None, None, None], median(u), u)
            for _ in range(INNER):
                u, p, moving = iterate(u, p, moving, *data, bound)
            if early_exit and not moving.any():
                break
    return u


def warp(planes: Tensor, i0: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
    """Gradient (B, 2, H, W) and constant part of the brightness error (B, H, W) at where the flow u points.

    Cubic with A = -0.75, zero outside the image, weights and sums rounded as cv2.remap of OpenCV 5.
    """
    n_pairs, h, w = i0.shape
    border = 4
    padded = F.pad(planes, (border,) * 4).flatten(2)
    grid = torch.arange(w, device=u.device), torch.arange(h, device=u.device)[:, None]
    corner, weights = [], []
    for axis, length in ((0, w), (1, h)):
        at = u[:, axis] + grid[axis]
        low = at.floor()
        weights.append(_cubic((at - low)[:, None]))
        corner.append(low.clamp(-3, length + 1).long() + (border - 1))  # farther out every tap is zero just the same
    pitch = w + 2 * border
    start = (corner[1] * pitch + corner[0]).flatten(1)[:, None].expand(-1, 3, -1)
    rows = []
    for j in range(4):
        taps = [padded.gather(2, start + (j * pitch + i)).unflatten(2, (h, w)) for i in range(4)]
        rows.append(_weighted(taps, weights[0]))
    warped = _weighted(rows, weights[1])
    gradient = warped[:, 1:]
    product = gradient * u
    return gradient, ((warped[:, 0] - product[:, 0]) - product[:, 1]) - i0


def _weighted(taps: Sequence[Tensor], weights: Sequence[Tensor]) -> Tensor:
    """The sum of four taps, one after the other."""
    total = taps[0] * weights[0]
    for tap, weight in zip(taps[1:], weights[1:], strict=True):
        total = _fused(tap, weight, total)
    return total


def _cubic(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weights of the four taps around the fraction x."""
    y, xx = 1.0 - x, x * x
    w0, w3 = -0.75 * (x * (y * y)), -0.75 * (xx * y)
    w1 = _fused(_fused(x, 1.25, -2.25), xx, 1.0)
    return w0, w1, ((1.0 - w0) - w1) - w3, w3


def median(u: Tensor) -> Tensor:
    """Medians of the 5 x 5 windows of planes (B, 2, H, W), edges replicated."""
    h, w = u.shape[-2:]
    wide = F.pad(u, (2, 2, 2, 2), mode="replicate")
    rows = [wide[:, :, k : k + h] for k in range(5)]
    _compare(rows, SORT_COLUMN)
    wires = [row[..., c : c + w] for row in rows for c in range(5)]
    _compare(wires, FIND_MEDIAN)
    return wires[MEDIAN_WIRE]


def _compare(wires: list[Tensor], network: Sequence[tuple[int, int]]) -> None:
    """Put the smaller of each two wires in the first and the larger in the second."""
    for i, j in network:
        wires[i], wires[j] = torch.minimum(wires[i], wires[j]), torch.maximum(wires[i], wires[j])


def iterate(
    u: Tensor,
    p: Tensor,
    moving: Tensor,
    gradient: Tensor,
    rho_c: Tensor,
    limit: Tensor,
    negative_square: Tensor,
    bound: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """One iteration: flow u (B, 2, H, W), dual p (B, 2, 2, H, W) and which pairs move still (B,) bool, after it.

    A pair that does not move keeps its u and p. The rest is data of the warp, one value per pixel.
    """
    across, down = p[:, :, 0], p[:, :, 1]
    above = F.pad(down[..., :-1, :], (0, 0, 1, 0))
    divergence = (across - F.pad(across[..., :-1], (1, 0))) + (down - above)
    divergence[..., 0] = (across[..., 0] + down[..., 0]) - above[..., 0]  # OpenCV adds column 0 in another order
    product = gradient * u
    rho = rho_c + (product[:, 0] + product[:, 1])
    factor = torch.where(rho > limit, -L_T, rho / negative_square)  # the threshold step
    factor = torch.where(rho < -limit, L_T, factor)
    new = (u + factor[:, None] * gradient) + divergence * THETA
    change = new - u
    error = (change * change).sum((1, 2, 3), dtype=torch.float64)  # so that the order of the sum does not matter
    dx, dy = F.pad(new[..., 1:] - new[..., :-1], (0, 1)), F.pad(new[..., 1:, :] - new[..., :-1, :], (0, 0, 0, 1))
    steps = torch.stack((dx, dy), 2)
    # rounded once on every device: torch.hypot need not be, and one rounding in the last place grows to .01 pixels
    norm = steps.double().square().sum(2, keepdim=True).sqrt().float() * TAUT + 1.0
    new_p = (p + steps * TAUT) / norm
    keep = moving[:, None, None, None]
    return torch.where(keep, new, u), torch.where(keep[..., None], new_p, p), moving & (error > bound)

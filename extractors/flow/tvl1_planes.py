"""Frames to the bytes of their flow on a torch device: nothing but bytes goes there or comes back.

Grey, pyramid, TV-L1 and rounding are those of the processor's path (OpenCV, tvl1.c, workers.to_bytes), to the bit.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lstr.extractors.flow.tvl1_spec import BOUND
from lstr.extractors.flow.tvl1_torch import flow_between

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

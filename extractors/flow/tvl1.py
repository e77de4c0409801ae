"""Constants of TV-L1 for the kernels of processors and GPUs: the defaults of OpenCV 5's DualTVL1OpticalFlow."""

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # flow on the CPU needs no torch
    from torch import Tensor

# tvl1.c repeats the constants of one scale.
SCALES = 5
STEP = 0.8  # size of each scale relative to the next finer one
SMALLEST = 16  # pixels; scales with a shorter side are skipped
WARPS, OUTER, INNER = 5, 10, 30
EPSILON = 0.01  # pixels; a pair stops when its flow changes by less, root mean square
TAUT, L_T, THETA = 0.25 / 0.3, 0.15 * 0.3, 0.3
FLAT = float(np.finfo(np.float32).eps)  # a squared gradient up to this explains no brightness
BOUND = 20.0  # pixels; denseflow clips flow to ± this before it becomes a byte
MEDIAN_WIRE = 17


def comparators(name: str) -> tuple[tuple[int, int], ...]:
    """Return a comparator network of tvl1_median.h, such as FIND_MEDIAN, as pairs of wires."""
    text = (Path(__file__).parent / "tvl1_median.h").read_text().replace("\\\n", " ")
    lines = (line for line in text.splitlines() if line.startswith(f"#define {name} "))
    return tuple((int(i), int(j)) for i, j in re.findall(r"\((\d+), (\d+)\)", next(lines)))


def stop_bound(h: int, w: int) -> float:
    """Return the summed squared change at which a pair of this size stops."""
    return float(np.float32(EPSILON * EPSILON * (h * w)))


def image_planes(i1: "Tensor") -> "Tensor":
    """Return the inputs of a warp, (B, 3, H, W): the image (B, H, W) and its centred gradient, halved at edges."""
    import torch
    import torch.nn.functional as F

    wide = F.pad(i1[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    return torch.stack(
        (i1, 0.5 * (wide[:, 1:-1, 2:] - wide[:, 1:-1, :-2]), 0.5 * (wide[:, 2:, 1:-1] - wide[:, :-2, 1:-1])), 1
    )

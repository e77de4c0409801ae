"""TV-L1 as every implementation computes it: constants, the median's comparators, when a pair stops."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:  # the constants need none
    from torch import Tensor

WARPS, OUTER, INNER = 5, 10, 30

EPSILON = 0.01  # pixels; a pair stops when its flow changes by less, root mean square

TAUT, L_T, THETA = 0.25 / 0.3, 0.15 * 0.3, 0.3

BOUND = 20.0  # pixels; flow is clipped to ± this before it becomes a byte

FLAT = float(np.finfo(np.float32).eps)  # a squared gradient up to this explains no brightness

# Comparators that sort five values, and that bring the median of 25 to MEDIAN_WIRE where wire 5 k + c holds the k-th
# smallest value of column c of the window; extractors/flow/tvl1_median.h says how they were found.
SORT_COLUMN = ((0, 1), (3, 4), (2, 4), (2, 3), (1, 4), (0, 3), (0, 2), (1, 3), (1, 2))

MEDIAN_WIRE = 17

# fmt: off
FIND_MEDIAN = (
    (0, 1), (3, 4), (2, 4), (2, 3), (1, 4), (0, 3), (1, 3), (5, 6), (8, 9), (7, 9), (7, 8), (6, 9), (5, 8), (6, 8),
    (6, 7), (10, 11), (13, 14), (12, 14), (12, 13), (11, 14), (10, 13), (10, 12), (11, 13), (11, 12), (15, 16),
    (17, 19), (17, 18), (16, 19), (15, 18), (15, 17), (16, 18), (16, 17), (20, 21), (23, 24), (21, 24), (20, 23),
    (20, 22), (21, 23), (21, 22), (15, 7), (11, 3), (16, 4), (17, 9), (8, 12), (7, 3), (8, 20), (12, 21), (4, 17),
    (12, 20), (3, 4), (20, 13), (3, 16), (16, 8), (4, 12), (17, 20), (3, 4), (17, 8), (4, 17),
)
# fmt: on


def stop_bound(h: int, w: int) -> float:
    """The summed squared change at which a pair of this size stops."""
    return float(np.float32(EPSILON * EPSILON * (h * w)))


def image_planes(i1: Tensor) -> Tensor:
    """What is warped, (B, 3, H, W): the image (B, H, W) and its centred gradient, halved at the edges too."""
    import torch
    import torch.nn.functional as F

    wide = F.pad(i1[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    return torch.stack(
        (i1, 0.5 * (wide[:, 1:-1, 2:] - wide[:, 1:-1, :-2]), 0.5 * (wide[:, 2:, 1:-1] - wide[:, :-2, 1:-1])), 1
    )

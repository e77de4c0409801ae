"""Kinds whose window has one fixed length and looks at all of it: what they share.

Where the video is younger than the window, rows of zeros stand before it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lstr.windows import Windows


def newest_last(windows: Windows) -> Tensor:
    """Features of the work memory (B, W, D) with the absent slots, which are zeros, before the others."""
    W = windows.work.shape[1]
    order = (torch.arange(W, device=windows.work.device) - absent(windows)) % W  # (B, W)
    return windows.work.gather(1, order[..., None].expand_as(windows.work))


def of_present(windows: Windows, rows: Tensor) -> Tensor:
    """Rows (B, W, ...) in the order of `newest_last` in that of the work slots: the absent ones after the others."""
    W = windows.work.shape[1]
    order = (torch.arange(W, device=rows.device) + absent(windows)) % W  # (B, W)
    return rows.gather(1, order[..., None].expand_as(rows))


def absent(windows: Windows) -> Tensor:
    """Work slots (B, 1) that are not present yet."""
    return windows.work.shape[1] - windows.work_mask.sum(1, keepdim=True)

"""Pictures that flow must survive."""

from __future__ import annotations

import numpy as np


def hard_frames(h: int, w: int) -> dict[str, np.ndarray]:
    """Grey images (H, W) uint8 without motion to find, by name: what flow must survive."""
    noise = np.random.default_rng(0).integers(0, 256, (h, w), np.uint8)
    return {
        "black": np.zeros_like(noise),
        "white": np.full_like(noise, 255),
        "noise": noise,
        "saturated": np.where(noise > 127, 255, 0).astype(np.uint8),
        "checks": (np.indices(noise.shape).sum(0) % 2 * 255).astype(np.uint8),
    }

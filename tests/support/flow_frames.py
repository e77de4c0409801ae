"""Pictures that flow must survive."""

from __future__ import annotations

from pathlib import Path

import av
import cv2
import numpy as np
import pytest
import torch

from lstr.extractors.flow import workers


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


def real_frames(path: Path, start: int, count: int, size: tuple[int, int] = (320, 180)) -> np.ndarray:
    """Frames (count, H, W, 3) of a video, RGB, at the working size."""
    if not path.is_file():
        pytest.skip(f"no shared video {path}")
    with av.open(str(path)) as container:
        decoded = zip(range(start + count), container.decode(video=0), strict=False)
        frames = [frame.to_ndarray(format="rgb24") for number, frame in decoded if number >= start]
    return np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames])


def grey_of(frames: np.ndarray) -> list[np.ndarray]:
    """Grey images (H, W) of RGB frames."""
    return [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]


def compiled_solve(i0: torch.Tensor, i1: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """A Solve of `tvl1_gpu` by the compiled kernel of the processor."""
    flow, (h, w) = u.contiguous().clone(), i0.shape[1:]
    scratch = np.empty(workers._tvl1.workspace_size(w, h), np.uint8)
    for before, after, field in zip(i0.numpy(), i1.numpy(), flow.numpy(), strict=True):
        workers._tvl1.solve_scale(before, after, field[0], field[1], scratch, w, h, len(workers.variants()) - 1)
    return flow

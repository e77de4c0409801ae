"""Pairs of frames for tests of flow, and the flow that OpenCV computes."""

from __future__ import annotations

from pathlib import Path

import av
import cv2
import numpy as np
import pytest

from lstr.extractors.flow import workers

opencv5 = pytest.mark.skipif(
    int(cv2.__version__.split(".")[0]) < 5 or not hasattr(cv2, "optflow"),
    reason="parity is to OpenCV 5 with optflow: 4.x computes cubic remap with a table",
)
needs_kernel = pytest.mark.skipif(
    not workers.has_native(), reason="the compiled kernel extractors/flow/_tvl1 was not built"
)


def texture(h: int, w: int, seed: int = 0) -> np.ndarray:
    """Return a smooth random texture (H, W) float32 with the full grey range."""
    image = cv2.GaussianBlur(np.random.default_rng(seed).random((h, w), np.float32), (0, 0), 3.0)
    return cv2.normalize(image, None, 0, 255, cv2.NORM_MINMAX)


def moved(h: int, w: int, degrees: float = 0.0, scale: float = 1.0, dx: float = 0.0, dy: float = 0.0, seed: int = 0):
    """Return two frames (H, W) uint8 of a texture rotated, scaled and moved about the image centre."""
    image = texture(h + 64, w + 64, seed)
    matrix = cv2.getRotationMatrix2D((w / 2 + 32, h / 2 + 32), degrees, scale)
    matrix[:, 2] += dx, dy
    after = cv2.warpAffine(image, matrix, image.shape[::-1], flags=cv2.INTER_CUBIC)
    return [np.rint(np.clip(frame[32 : 32 + h, 32 : 32 + w], 0, 255)).astype(np.uint8) for frame in (image, after)]


def opencv(before: np.ndarray, after: np.ndarray, schedule: tuple[int, ...] = ()) -> np.ndarray:
    """Return OpenCV's flow (H, W, 2); a schedule has warps, outer and inner iterations."""
    solver = cv2.optflow.DualTVL1OpticalFlow_create()
    setters = (solver.setWarpingsNumber, solver.setOuterIterations, solver.setInnerIterations)
    for set_count, count in zip(setters, schedule, strict=False):
        set_count(count)
    return solver.calc(before, after, None)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.hypot(*np.moveaxis(a.astype(np.float64) - b, -1, 0)).mean())


def hard_frames(h: int, w: int) -> dict[str, np.ndarray]:
    """Return grey images (H, W) uint8 without motion, by name."""
    noise = np.random.default_rng(0).integers(0, 256, (h, w), np.uint8)
    return {
        "black": np.zeros_like(noise),
        "white": np.full_like(noise, 255),
        "noise": noise,
        "saturated": np.where(noise > 127, 255, 0).astype(np.uint8),
        "checks": (np.indices(noise.shape).sum(0) % 2 * 255).astype(np.uint8),
    }


def real_frames(path: Path, start: int, count: int, size: tuple[int, int] = (320, 180)) -> np.ndarray:
    """Read RGB frames (count, H, W, 3) of a video, resized."""
    if not path.is_file():
        pytest.skip(f"no shared video {path}")
    with av.open(str(path)) as container:
        decoded = zip(range(start + count), container.decode(video=0), strict=False)
        frames = [frame.to_ndarray(format="rgb24") for number, frame in decoded if number >= start]
    return np.stack([cv2.resize(frame, size, interpolation=cv2.INTER_AREA) for frame in frames])


def grey_of(frames: np.ndarray) -> list[np.ndarray]:
    return [cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in frames]

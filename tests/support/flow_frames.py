"""Pairs of frames for tests of flow, and the flow that OpenCV computes."""

from __future__ import annotations

import os
from pathlib import Path

import av
import cv2
import numpy as np
import pytest
import torch

from lstr.extractors.flow import workers

SHARED = Path(os.environ.get("LSTR_SHARED", Path(__file__).parents[3] / "shared"))
CLOSE, NEAR = 1e-5, 1e-2
"""Mean end-point difference to OpenCV in pixels: for motion, and for frames where rounding errors grow"""
opencv5 = pytest.mark.skipif(
    int(cv2.__version__.split(".")[0]) < 5 or not hasattr(cv2, "optflow"),
    reason="parity is to OpenCV 5 with optflow: 4.x computes cubic remap with a table",
)
needs_kernel = pytest.mark.skipif(
    not workers.has_native(), reason="the compiled kernel extractors/flow/_tvl1 was not built"
)
MOTIONS = {
    "translation": dict(dx=2.5, dy=-1.25),
    "large translation": dict(dx=-6.0, dy=3.0),
    "rotation": dict(degrees=2.0),
    "zoom": dict(scale=1.03),
}
VIDEOS = {"seq01": "ut_interaction", "seq04": "ut_interaction", "fall-01": "urfall"}


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


def pair_of(name: str) -> list[np.ndarray]:
    """Return two frames by name: a motion, a size such as 47x33, a video, "cut", or two of hard_frames."""
    if name in MOTIONS:
        return moved(120, 160, **MOTIONS[name])
    if name in VIDEOS:
        path = SHARED / "data" / VIDEOS[name] / "videos" / f"{name}.mp4"
        return grey_of(real_frames(path, 60, 2, (320, 180)))
    if name == "doubtful root":  # the rounding of one square root grows to 4e-4 pixels
        return grey_of(real_frames(SHARED / "data" / "ut_interaction" / "videos" / "seq07.mp4", 3, 2, (340, 256)))
    if name == "cut":  # samples too far apart for a register; the number of iterations is close to a limit
        return [np.rint(texture(64, 96, seed)).astype(np.uint8) for seed in (11, 12)]
    if " to " in name:
        return [hard_frames(50, 61)[part] for part in name.split(" to ")]
    h, w = map(int, name.split("x"))
    return moved(h, w, dx=1.0, dy=-0.5, seed=h)


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


def compiled_solve(i0: torch.Tensor, i1: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """Solve as `tvl1_gpu` does, with the compiled kernel of the processor."""
    flow, (h, w) = u.contiguous().clone(), i0.shape[1:]
    scratch = np.empty(workers._tvl1.workspace_size(w, h), np.uint8)
    for before, after, field in zip(i0.numpy(), i1.numpy(), flow.numpy(), strict=True):
        workers._tvl1.solve_scale(before, after, field[0], field[1], scratch, w, h, len(workers.variants()) - 1)
    return flow

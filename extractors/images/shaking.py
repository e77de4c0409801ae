"""A camera that shakes: the frames of a chunk moved against each other, as wind or a hand moves the camera."""

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.extractors.video.frames import CHUNK

Movement = NDArray[np.float64]
"""(6, 2): how far right and down each frame of a chunk lies, as shares of the width of the picture."""
SLOWEST = 1 / 15
"""The smallest mean step of a movement, of the largest."""
JITTER = 0.4
"""Standard deviation of the steps of one movement, as a share of their mean."""


def draw_movement(random: np.random.Generator, largest: float) -> Movement:
    """A movement in one direction, with jitter; its mean step from frame to frame is at most `largest`.

    Small steps are as likely as large ones: their logarithm is uniform.
    """
    step = largest * SLOWEST ** random.random()
    angle = random.uniform(0, 2 * np.pi)
    steps = step * (np.array([np.cos(angle), np.sin(angle)]) + random.normal(0, JITTER, (CHUNK - 1, 2)))
    return np.concatenate([np.zeros((1, 2)), np.cumsum(steps, 0)])


def shaken(frames: NDArray[np.uint8], movement: Movement) -> NDArray[np.uint8]:
    """Frames (6, H, W, 3), or (6, H, W) without colour, as a camera has them that moves; new edges repeat old ones."""
    height, width = frames.shape[1:3]
    moved = np.empty(frames.shape, np.uint8)  # frames may be one, six times
    for frame, (x, y), out in zip(frames, movement * width, moved, strict=True):
        by = np.array([[1, 0, x], [0, 1, y]])
        cv2.warpAffine(frame, by, (width, height), out, cv2.INTER_LINEAR, cv2.BORDER_REPLICATE)
    return moved

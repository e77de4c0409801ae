"""The frames of a chunk as a camera that shakes has them."""

import numpy as np
import pytest

from lstr.extractors.networks.crops import shaken
from lstr.extractors.video.frames import CHUNK

WIDTH, HEIGHT = 40, 32
FRAME = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3), np.uint8)


@pytest.mark.parametrize("frame", [FRAME, FRAME[..., 0]], ids=["colour", "grey"])
def test_frames_move_as_the_camera_has_them_and_the_edge_is_repeated(frame):
    movement = np.zeros((CHUNK, 2))
    movement[2], movement[5] = (3 / WIDTH, 1 / WIDTH), (-2 / WIDTH, 0)
    moved = shaken(np.stack([frame] * CHUNK), movement)
    for still in (0, 1, 3, 4):
        np.testing.assert_array_equal(moved[still], frame)
    np.testing.assert_array_equal(moved[2, 1:, 3:], frame[:-1, :-3])
    np.testing.assert_array_equal(moved[5, :, :-2], frame[:, 2:])
    np.testing.assert_array_equal(moved[2, 1:, 0], frame[:-1, 0])
    np.testing.assert_array_equal(moved[2, 0, 3:], frame[0, :-3])

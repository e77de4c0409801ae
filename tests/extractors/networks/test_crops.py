"""The images that networks get of a chunk, and the camera movement that training adds."""

import cv2
import numpy as np
import pytest

from lstr.extractors.networks.crops import View, picture_of, shaken, views_of
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.streams import PICTURES
from lstr.extractors.video.frames import CHUNK

FRAMES = np.random.default_rng(0).integers(0, 256, (6, 30, 40, 3), np.uint8)
GREYS = np.stack([cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in FRAMES])


def test_grey_has_three_frames_as_channels():
    image = picture_of("grey", FRAMES, None, 3)
    assert image.shape == (30, 40, 3) and np.array_equal(image, GREYS[[0, 2, 5]].transpose(1, 2, 0))


def test_differences_are_doubled_and_clipped():
    greys = np.full((6, 2, 2), 100, np.uint8)
    greys[1] += 10  # the differences are 10, -10 and 155, which is clipped
    greys[5] = 255
    assert [*picture_of("difference", greys, None, 3)[0, 0]] == [147, 107, 255]


@pytest.mark.parametrize("stream", PICTURES[1:])
def test_a_network_gets_the_centre_and_its_mirror_image(stream):
    part = NetworkRecipe("resnet18", "random", "", 2, (0.0,) * 3, (1.0,) * 3, size=(24, 32), margin=1.25)
    parts = {"rgb": None, "flow": None, stream: part}
    recipe = Recipe(**parts, flow_algorithm=None)
    view = views_of(recipe)[stream]
    assert view == View((24, 32), 2, margin=1.25, stream=stream) and view.whole == (30, 40)
    centre, mirrored = view.cropped(FRAMES)
    assert np.array_equal(centre, picture_of(stream, FRAMES, None, 3)[3:27, 4:36])
    assert np.array_equal(mirrored, centre[:, ::-1])
    assert Recipe.from_dict(recipe.to_dict()) == recipe


@pytest.mark.parametrize("frame", [FRAMES[0], GREYS[0]], ids=["colour", "grey"])
def test_camera_movement_shifts_frames_and_repeats_the_edge(frame):
    movement = np.zeros((CHUNK, 2))
    movement[2], movement[5] = (3 / 40, 1 / 40), (-2 / 40, 0)  # of the frame's width
    moved = shaken(np.stack([frame] * CHUNK), movement)
    for still in (0, 1, 3, 4):
        np.testing.assert_array_equal(moved[still], frame)
    np.testing.assert_array_equal(moved[2, 1:, 3:], frame[:-1, :-3])
    np.testing.assert_array_equal(moved[5, :, :-2], frame[:, 2:])
    np.testing.assert_array_equal(moved[2, 1:, 0], frame[:-1, 0])
    np.testing.assert_array_equal(moved[2, 0, 3:], frame[0, :-3])

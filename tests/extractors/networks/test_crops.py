"""What each stream shows of a chunk, how it is fitted and shaken, and what of it a network sees."""

import cv2
import numpy as np
import pytest

from lstr.extractors.networks.crops import View, picture_of, shaken, views_of
from lstr.extractors.recipe import NetworkRecipe, Recipe
from lstr.extractors.streams import PICTURES
from lstr.extractors.video.frames import CHUNK

MEANS, ONES = (0.0,) * 3, (1.0,) * 3
FRAMES = np.random.default_rng(0).integers(0, 256, (6, 30, 40, 3), np.uint8)
GREYS = np.stack([cv2.cvtColor(frame, cv2.COLOR_RGB2GRAY) for frame in FRAMES])


def recipe(stream: str, size=(24, 32), margin=1.25) -> Recipe:
    part = NetworkRecipe("resnet18", "random", "", 2, MEANS, ONES, size=size, margin=margin)
    return (
        Recipe(None, None, flow_algorithm=None).having({stream: part})
        if stream == "rgb"
        else Recipe(**{"rgb": None, "flow": None, stream: part}, flow_algorithm=None)
    )


def test_grey_is_three_moments_as_the_channels_of_one_picture():
    shown = picture_of("grey", FRAMES, None, 3)
    assert shown.shape == (30, 40, 3) and np.array_equal(shown, GREYS[[0, 2, 5]].transpose(1, 2, 0))


def test_differences_are_twice_as_large_about_the_middle_and_end_where_a_byte_does():
    greys = np.full((6, 2, 2), 100, np.uint8)
    greys[1] += 10  # 10 more than the first, then 10 less than that, then 200 more: too much for a byte
    greys[5] = 255
    assert [*picture_of("difference", greys, None, 3)[0, 0]] == [147, 107, 255]


@pytest.mark.parametrize("stream", PICTURES[1:])
def test_a_network_sees_the_middle_of_the_picture_and_its_mirror_image(stream):
    made = recipe(stream)
    view = views_of(made)[stream]
    assert view == View((24, 32), 2, margin=1.25, stream=stream) and view.whole == (30, 40)
    seen = views_of(made)[stream].cropped(FRAMES)
    whole = picture_of(stream, FRAMES, None, 3)
    assert np.array_equal(seen[0], whole[3:27, 4:36]) and np.array_equal(seen[1], seen[0][:, ::-1])
    assert Recipe.from_dict(made.to_dict()) == made


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

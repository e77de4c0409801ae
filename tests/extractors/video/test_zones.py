"""Zones: polygons on a frame, and the still backdrop outside them."""

import numpy as np
import pytest

from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.zones import BACKDROP_SECONDS, MOST_CORNERS, MOST_ZONES, Backdrop, inside, parse_zones

SQUARE = [[0.25, 0.25], [0.75, 0.25], [0.75, 0.75], [0.25, 0.75]]


def contains(zone, x: float, y: float) -> bool:
    """Return whether a line from a point upwards crosses the sides of a polygon an odd number of times."""
    crossings = 0
    for (x0, y0), (x1, y1) in zip(zone, [*zone[1:], zone[0]], strict=True):
        crossings += (x0 > x) != (x1 > x) and y0 + (x - x0) / (x1 - x0) * (y1 - y0) < y
    return crossings % 2 == 1


@pytest.mark.parametrize("seed", range(8))
def test_pixels_of_random_polygons_are_inside_if_their_centre_is(seed):
    random = np.random.default_rng(seed)
    zones = [random.random((int(random.integers(3, 9)), 2)).tolist() for _ in range(1 + seed % 3)]
    height, width = (27, 40) if seed % 2 else (40, 27)
    mask = inside(parse_zones(zones), height, width)
    assert mask.dtype == np.bool_ and 0 < mask.mean() < 1
    for (y, x), is_inside in np.ndenumerate(mask):
        assert is_inside == any(contains(zone, (x + 0.5) / width, (y + 0.5) / height) for zone in zones)


@pytest.mark.parametrize(
    "value, place",
    [
        (3, ""),
        ([SQUARE] * (MOST_ZONES + 1), str(MOST_ZONES + 1)),
        ([3], "zone 1"),
        ([SQUARE, SQUARE[:2]], "zone 2"),
        ([[[0.1, 0.1]] * (MOST_CORNERS + 1)], str(MOST_CORNERS + 1)),
        *(
            ([[*SQUARE, corner]], "zone 1, corner 5")
            for corner in (0.5, [0.5, "0.5"], [0.5, True], [0.5, 1.01], [float("nan"), 0.5], [10**400, 0.5])
        ),
        ([[[0.2, 0.2]] * 3], "zone 1"),
        ([[[0, 0], [0.3, 0.9], [1, 0.4], [0.3, 0.9]]], "zone 1"),
        ([[[0.2, 0.2], [0.8, 0.2001], [0.8, 0.2]]], "zone 1"),
    ],
)
def test_invalid_zones(value, place):
    with pytest.raises(ValueError, match=place or None):
        parse_zones(value)
    assert parse_zones([]) == () and len(parse_zones([SQUARE] * MOST_ZONES)) == MOST_ZONES


HALF_FRAME = parse_zones([[[0, 0], [0.5, 0], [0.5, 1], [0, 1]]])


def test_the_backdrop_replaces_the_area_outside():
    """It is the running average of each chunk's last frame, by its formula; it is equal in all frames of a chunk."""
    backdrop, share, random = Backdrop(), 1 - np.exp(-0.25 / BACKDROP_SECONDS), np.random.default_rng(0)
    mask = inside(HALF_FRAME, 24, 32)
    chunks = [Chunk(k, (k + 1) / 4, random.integers(0, 256, (6, 24, 32, 3), np.uint8)) for k in range(60)]
    average = chunks[0].frames[0].astype(float)
    for chunk in chunks:
        assert Backdrop().behind(chunk, ()) is chunk
        original = chunk.frames.copy()
        masked = backdrop.behind(chunk, HALF_FRAME)
        assert (masked.index, masked.end_time) == (chunk.index, chunk.end_time)
        np.testing.assert_array_equal(masked.frames[:, mask], original[:, mask])
        assert not np.ptp(masked.frames[:, ~mask], axis=0).any()
        assert np.abs(masked.frames[0].astype(float) - average)[~mask].max() < 0.51
        np.testing.assert_array_equal(chunk.frames, original, "the input is not modified")
        average += share * (chunk.frames[-1] - average)

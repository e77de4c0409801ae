"""Polygons over a picture, against another way to find what they hold, and what is no polygon."""

import math

import numpy as np
import pytest

from lstr.extractors.video.zones import MOST_CORNERS, MOST_ZONES, inside, parse_zones

SQUARE = [[0.25, 0.25], [0.75, 0.25], [0.75, 0.75], [0.25, 0.75]]


def holds(x: float, y: float, corners) -> bool:
    """Whether most of three slanted rays from a point cross the sides of a polygon an odd number of times."""
    odd = 0
    for k in range(3):
        dx, dy = math.cos(1 + 2.1 * k), math.sin(1 + 2.1 * k)
        crossings = 0
        for (x0, y0), (x1, y1) in zip(corners, [*corners[1:], corners[0]], strict=True):
            before = dx * (y0 - y) - dy * (x0 - x)
            after = dx * (y1 - y) - dy * (x1 - x)
            if before * after < 0:  # the ray's line has one end on each side; does the ray itself, forwards?
                part = before / (before - after)
                ahead = dx * (x0 + part * (x1 - x0) - x) + dy * (y0 + part * (y1 - y0) - y)
                crossings += ahead > 0
        odd += crossings % 2
    return odd >= 2


def by_points(zones, height: int, width: int) -> np.ndarray:
    return np.array(
        [
            [any(holds((x + 0.5) / width, (y + 0.5) / height, zone) for zone in zones) for x in range(width)]
            for y in range(height)
        ]
    )


@pytest.mark.parametrize("seed", range(8))
def test_a_pixel_is_inside_where_its_centre_is(seed):
    """Random corners: most polygons cross themselves, and overlap."""
    random = np.random.default_rng(seed)
    zones = [random.random((int(random.integers(3, 9)), 2)).tolist() for _ in range(1 + seed % 3)]
    height, width = (27, 40) if seed % 2 else (40, 27)
    found = inside(parse_zones(zones), height, width)
    assert found.dtype == np.bool_ and 0 < found.mean() < 1
    np.testing.assert_array_equal(found, by_points(zones, height, width))


def test_corners_on_centres_and_edges_leave_no_seam():
    """Two halves that share a side hold each pixel once; the whole picture holds all of it."""
    for edge in (0.5, 0.45, 0.3):  # between pixels, on their centres, and neither
        left, right = [[0, 0], [edge, 0], [edge, 1], [0, 1]], [[edge, 0], [1, 0], [1, 1], [edge, 1]]
        halves = [inside(parse_zones([zone]), 10, 10).astype(int) for zone in (left, right)]
        assert (halves[0] + halves[1] == 1).all()
        slanted = [[[0, 0], [1, 0], [0, 1]], [[1, 0], [1, 1], [0, 1]]]
        assert sum(inside(parse_zones([zone]), 10, 10).sum() for zone in slanted) == 100
    assert inside(parse_zones([[[0, 0], [1, 0], [1, 1], [0, 1]]]), 7, 9).all()
    assert not inside((), 7, 9).any()


@pytest.mark.parametrize(
    "value, named",
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
def test_what_is_no_zone(value, named):
    with pytest.raises(ValueError, match=named or None):
        parse_zones(value)
    assert parse_zones([]) == () and len(parse_zones([SQUARE] * MOST_ZONES)) == MOST_ZONES

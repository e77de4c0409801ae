"""Polygons over a picture, and what the networks see of a stream with zones: nothing that moves outside."""

import math

import numpy as np
import pytest

from lstr.extractors.networks.crops import picture_of
from lstr.extractors.video.frames import Chunk
from lstr.extractors.video.zones import BACKDROP_SECONDS, MOST_CORNERS, MOST_ZONES, Backdrop, inside, parse_zones

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


LEFT = parse_zones([[[0, 0], [0.5, 0], [0.5, 1], [0, 1]]])
HEIGHT, WIDTH = 24, 32
WITHIN = inside(LEFT, HEIGHT, WIDTH)


def noise(n: int, seed: int = 0) -> list[Chunk]:
    random = np.random.default_rng(seed)
    return [Chunk(k, (k + 1) / 4, random.integers(0, 256, (6, HEIGHT, WIDTH, 3), np.uint8)) for k in range(n)]


def film(n: int, right: bool) -> np.ndarray:
    """(n, H, W, 3) drawn frames: a block falls on the left, and on the right one waves, or does not."""
    frames = np.empty((n, HEIGHT, WIDTH, 3), np.uint8)
    frames[:] = np.linspace(60, 120, WIDTH, dtype=np.uint8)[None, None, :, None]
    for k, frame in enumerate(frames):
        y = k % (HEIGHT - 6)
        frame[y : y + 6, 4:10] = (200, 90, 40)
        if right and k >= 6:
            x = 20 + round(4 * np.sin(k))
            frame[6:18, x : x + 5] = (250, 250, 20)
    return frames


def test_inside_no_bit_changes_and_outside_nothing_moves():
    backdrop = Backdrop()
    for chunk in noise(12):
        assert Backdrop().behind(chunk, ()) is chunk
        given = chunk.frames.copy()
        seen = backdrop.behind(chunk, LEFT)
        assert (seen.index, seen.end_time) == (chunk.index, chunk.end_time)
        np.testing.assert_array_equal(seen.frames[:, WITHIN], given[:, WITHIN])
        assert not np.ptp(seen.frames[:, ~WITHIN], axis=0).any(), "one picture for the whole chunk"
        np.testing.assert_array_equal(chunk.frames, given, "whoever else has the chunk sees all of it")


def test_outside_is_the_slow_average_of_what_came_before():
    """By the formula in double precision: the first frame, then each chunk's last one with its share."""
    backdrop, share = Backdrop(), 1 - np.exp(-0.25 / BACKDROP_SECONDS)
    chunks = noise(60)
    expected = chunks[0].frames[0].astype(float)
    for chunk in chunks:
        seen = backdrop.behind(chunk, LEFT).frames[0]
        assert np.abs(seen.astype(float) - expected)[~WITHIN].max() < 0.51
        expected += share * (chunk.frames[-1] - expected)


@pytest.mark.parametrize("stream", ["difference", "change", "grey", "rgb"])
def test_an_action_outside_is_seen_by_no_stream(stream):
    """A film with two actions, a zone over one: what differs from a film with that one alone is the backdrop."""
    pictures, n = {}, 20
    for right in (True, False):
        backdrop, frames = Backdrop(), film(6 * n, right).reshape(n, 6, HEIGHT, WIDTH, 3)
        seen = [backdrop.behind(Chunk(k, k / 4, chunk), LEFT).frames for k, chunk in enumerate(frames)]
        pictures[right] = np.stack([picture_of(stream, chunk, None, 3) for chunk in seen]).astype(int)
        if right:
            whole = np.stack([picture_of(stream, chunk, None, 3) for chunk in frames]).astype(int)
    apart = np.abs(pictures[True] - pictures[False])
    assert np.abs(whole - pictures[False]).max() > 100, "without zones it would be seen"
    assert not apart[:, WITHIN].any()
    if stream == "difference":
        assert not apart.any(), "to the bit"
    if stream == "change":
        assert (pictures[True][..., :3] == pictures[True][..., 3:])[:, ~WITHIN].all(), "both ends alike outside"
    else:
        shares = 1 - np.exp(-np.arange(n) / 4 / BACKDROP_SECONDS)
        assert (apart.max((1, 2, 3)) <= 255 * shares + 1).all()

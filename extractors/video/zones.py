"""Zones of a camera frame, and the backdrop that replaces the area outside them."""

from dataclasses import replace
from functools import lru_cache
from math import exp
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.extractors.video.frames import CHUNK_SECONDS, Chunk

Corner = tuple[float, float]  # distance from the left and from the top, each from 0 to 1
Zone = tuple[Corner, ...]  # A closed polygon. If its sides cross, the even-odd rule defines the inside.
Zones = tuple[Zone, ...]  # the union of the zones is kept; without zones the whole frame

MOST_ZONES = 16
LEAST_CORNERS, MOST_CORNERS = 3, 32
SIDE = 100  # on a frame of this many pixels per side, a zone must contain at least one pixel
FLAT = 0.005  # A zone is rejected if all corners are this close to one line.


def parse_zones(value: Any) -> Zones:
    """Parse zones from nested lists, as in TOML and JSON. Raises ValueError with a phrase that describes the error."""
    if not isinstance(value, list):
        raise ValueError("write a list of polygons, for example [[[0.1, 0.2], [0.6, 0.2], [0.6, 0.9]]].")
    if len(value) > MOST_ZONES:
        raise ValueError(f"{len(value)} zones are given; the limit is {MOST_ZONES}.")
    zones = []
    for n, polygon in enumerate(value, 1):
        if not isinstance(polygon, list):
            raise ValueError(f"zone {n} is not a list of corners such as [[0.1, 0.2], [0.6, 0.2], [0.6, 0.9]].")
        if not LEAST_CORNERS <= len(polygon) <= MOST_CORNERS:
            raise ValueError(f"zone {n} has {len(polygon)} corners; use {LEAST_CORNERS} to {MOST_CORNERS}.")
        for k, corner in enumerate(polygon, 1):
            is_pair = isinstance(corner, list) and len(corner) == 2
            # the comparison also rejects NaN; True is an int
            if not is_pair or not all(type(part) in (int, float) and 0 <= part <= 1 for part in corner):
                raise ValueError(f"zone {n}, corner {k} is not a pair of numbers from 0 to 1 such as [0.1, 0.2].")
        zone = tuple((float(x), float(y)) for x, y in polygon)
        # if the corners are nearly on one line, only rounding decides which pixels are inside
        distances = np.linalg.svd(np.array(zone) - np.mean(zone, 0), compute_uv=False)
        if distances[-1] < FLAT or not inside((zone,), SIDE, SIDE).any():
            raise ValueError(f"zone {n} encloses too small an area.")
        zones.append(zone)
    return tuple(zones)


@lru_cache(maxsize=64)  # each chunk of a camera needs the same one
def inside(zones: Zones, height: int, width: int) -> NDArray[np.bool_]:
    """Return a mask (height, width) of the pixels that have their centre in any of the zones."""
    across = (np.arange(width) + 0.5) / width
    down = (np.arange(height) + 0.5) / height
    union = np.zeros((height, width), np.bool_)
    for zone in zones:
        odd = np.zeros_like(union)  # whether a line from the left crosses the zone's sides an odd number of times
        for side in zip(zone, (*zone[1:], zone[0]), strict=True):
            (x0, y0), (x1, y1) = sorted(side)  # sorted, so that a side that occurs in both directions cancels out
            rows = np.flatnonzero((y0 <= down) != (y1 <= down))
            if rows.size:
                crossing = x0 + (down[rows] - y0) * ((x1 - x0) / (y1 - y0))
                odd[rows] ^= across >= crossing[:, None]
        union |= odd
    return union


BACKDROP_SECONDS = 30.0  # time constant: a permanent change of a pixel is blended in by 63 % (1 − 1/e) after this time


class Backdrop:
    """A slow running average of each pixel, for one connection to a source.

    It starts with the first frame, and starts over if the frame size changes or after a chunk without zones.
    """

    def __init__(self) -> None:
        self._average: NDArray[np.float32] | None = None
        self._chunk = 0

    def behind(self, chunk: Chunk, zones: Zones) -> Chunk:
        """Return a chunk with the area outside the zones replaced by the backdrop, which is equal in all its frames.

        The backdrop depends only on earlier chunks; the last frame of this chunk updates it afterwards. Without zones
        the chunk is returned unchanged.
        """
        if not zones:
            self._average = None
            return chunk
        first, last = chunk.frames[0], chunk.frames[-1]
        if self._average is None or self._average.shape != first.shape:
            self._average, self._chunk = first.astype(np.float32), chunk.index - 1
        is_inside = inside(zones, *first.shape[:2])[..., None]
        frames = np.where(is_inside, chunk.frames, np.rint(self._average).astype(np.uint8))
        passed = (chunk.index - self._chunk) * CHUNK_SECONDS
        cv2.accumulateWeighted(last, self._average, 1 - exp(-passed / BACKDROP_SECONDS))
        self._chunk = chunk.index
        return replace(chunk, frames=frames)

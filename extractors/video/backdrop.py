"""What the networks see outside the zones of a stream: a picture in which nothing moves, and light changes slowly."""

from dataclasses import replace
from math import exp

import cv2
import numpy as np
from numpy.typing import NDArray

from lstr.extractors.video.frames import CHUNK_SECONDS, Chunk
from lstr.extractors.video.zones import Zones, inside

BACKDROP_SECONDS = 30.0
"""After so long a pixel that has changed for good is shown as changed by 63 % (1 − 1/e)."""


class Backdrop:
    """The state of one connection to a source: for each pixel the slow average of its past.

    It begins with the first frame that it is given, and anew where the size of the picture changes, or after a chunk
    without zones.
    """

    def __init__(self) -> None:
        self._average: NDArray[np.float32] | None = None
        self._chunk = 0
        self._zones: Zones = ()
        self._outside: NDArray[np.bool_] | None = None

    def behind(self, chunk: Chunk, zones: Zones) -> Chunk:
        """A chunk with the backdrop outside the zones, the same in all its frames; inside its pixels are as they were.

        The backdrop is of what came before the chunk, and takes its last frame in afterwards. Without zones the chunk
        itself.
        """
        if not zones:
            self._average = None
            return chunk
        first, last = chunk.frames[0], chunk.frames[-1]
        if self._average is None or self._average.shape != first.shape:
            self._average, self._outside, self._chunk = first.astype(np.float32), None, chunk.index - 1
        if self._outside is None or zones != self._zones:
            self._zones, self._outside = zones, ~inside(zones, *first.shape[:2])
        frames = np.where(self._outside[..., None], np.rint(self._average).astype(np.uint8), chunk.frames)
        passed = (chunk.index - self._chunk) * CHUNK_SECONDS
        cv2.accumulateWeighted(last, self._average, 1 - exp(-passed / BACKDROP_SECONDS))
        self._chunk = chunk.index
        return replace(chunk, frames=frames)

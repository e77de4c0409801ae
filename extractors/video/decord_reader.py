"""Frames by decord, in a process of its own."""

from collections.abc import Generator
from contextlib import closing
from functools import partial

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.video.decord_process import SECONDS, decord_process
from lstr.extractors.video.frames import SourceFrame
from lstr.extractors.video.probe import Video


class DecordReader:
    """Frames of a probed file by decord, in a process of its own, at the times of its packets.

    Damage is decord's failure: raises DecordError where decord fails or is not to be trusted, VideoError where a call
    takes longer than `seconds`.
    """

    decoder = "decord"
    decode_errors = 0

    def __init__(self, video: Video, seconds: float = SECONDS):
        self._video = video
        self._seconds = seconds
        self.decoded = 0
        self.clock = video.clock

    def frames(self, long_side: int) -> Generator[SourceFrame, None, None]:
        """Each frame at the working size."""
        video = self._video
        ends = (*video.timestamps[1:], video.timestamps[-1] + video.last_duration)
        with decord_process() as process:
            images = process.read(video, video.size(long_side), self._seconds)
            with closing(images):
                for time, end, image in zip(video.timestamps, ends, images, strict=True):
                    self.decoded += 1
                    yield SourceFrame(time, end - time, partial(_same, image))


def _same(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return image

"""Frames of a video file by decord, which LSTR_DECODER=decord names; PyAV took .5 to .95 times its processor time."""

import os
from collections.abc import Generator
from functools import partial

import decord

from lstr.errors import VideoError, first_line
from lstr.extractors.video.frames import SourceFrame, shrink
from lstr.extractors.video.probe import Video
from lstr.extractors.video.reader import PYAV_HINT

# Bytes of decoded frames, all of which decord may hold at once: it decodes ahead without bound.
MAX_BYTES = 256 * 2**20
# Pixels; narrower frames come from decord with too many channels.
MIN_SIDE = 16


def suits_decord(video: Video) -> bool:
    """Return whether decord makes the same frames of a file as PyAV, as the odd videos of the tests show.

    At 10 bits it differs by 3.6 levels, at odd sizes by half a level, in MPEG-4 part 2 by one. It cannot decode AV1,
    and repeats frames that cannot be decoded.
    """
    return (
        video.width * video.height * 3 * len(video.ticks) <= MAX_BYTES
        and video.bits == 8
        and all(side > MIN_SIDE and side % 2 == 0 for side in (video.width, video.height))
        and video.codec not in ("av1", "mpeg4")
        and video.clock == "container"
        and bool((video.ticks[1:] > video.ticks[:-1]).all())
        and not video.damage
        and not video.left_out
    )


def decord_frames(video: Video, long_side: int) -> Generator[SourceFrame, None, None]:
    """Yield each frame of a probed file at the working size, at the times of its packets.

    Raises VideoError if decord fails or does not suit the file. decord hides damage within frames, which PyAV finds.
    """
    if not suits_decord(video):
        raise VideoError(f"decord cannot read the exact frames of {video.path}.", PYAV_HINT)
    n, size = len(video.ticks), video.size(long_side)
    try:
        reader = decord.VideoReader(os.path.abspath(video.path), num_threads=1)  # a bare name could be a protocol's
        if len(reader) != n:
            raise ValueError(f"it counts {len(reader)} frames, the container {n}")
        for number in range(n):
            image, time = reader.next().asnumpy(), video.time(number)
            end = video.time(number + 1) if number + 1 < n else video.end
            yield SourceFrame(time, end - time, partial(shrink, image, size))
    except Exception as error:  # decord raises RuntimeError and its own types for every kind of failure
        raise VideoError(f"decord cannot read {video.path} ({first_line(error)}).", PYAV_HINT) from error

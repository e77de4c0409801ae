"""Decoders other than PyAV on the processor, which LSTR_DECODER names: decord, and PyAV with a GPU's decoder.

PyAV took .5 to .95 times the processor time of decord on the videos of the tests.
"""

import os
from collections.abc import Generator
from functools import cache, partial
from importlib.util import find_spec

import av
from av.codec import Codec
from av.codec.hwaccel import HWAccel, hwdevices_available

from lstr.errors import VideoError, first_line
from lstr.extractors.video.frames import SourceFrame, shrink
from lstr.extractors.video.probe import Video

PYAV_HINT = "unset LSTR_DECODER: PyAV reads every video on the processor."
# Bytes of decoded frames, all of which decord may hold at once: it decodes ahead without bound.
MAX_BYTES = 256 * 2**20
# Pixels; narrower frames come from decord with too many channels.
MIN_SIDE = 16


def choose_decoder() -> str:
    """Return the decoder that LSTR_DECODER names, or `pyav`. Raises VideoError if it is unknown or not available."""
    decoder = os.environ.get("LSTR_DECODER") or "pyav"
    if decoder not in ("pyav", "decord", "nvdec"):
        raise VideoError(f"There is no decoder {decoder!r}.", "set LSTR_DECODER to pyav, decord or nvdec.")
    if decoder == "decord" and not find_spec("decord"):
        raise VideoError("decord is not installed.", PYAV_HINT)
    if decoder == "nvdec" and not has_nvdec():
        raise VideoError("There is no NVDEC that PyAV can use here.", PYAV_HINT)
    return decoder


@cache
def has_nvdec() -> bool:
    """Return whether there is a GPU whose decoder PyAV can use."""
    if "cuda" not in hwdevices_available():
        return False
    try:
        HWAccel("cuda").create(Codec("h264", "r"))
    except (av.error.FFmpegError, NotImplementedError):
        return False
    return True


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
    import decord

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

"""Any video as 24 FPS RGB frames in chunks of six.

PyAV reads every file; it took .5 to .95 times the processor time of decord on the videos of the tests. $LSTR_DECODER
names another decoder: decord, for a file of which it makes the same frames (`suits_decord`), or nvdec, which is PyAV
with a GPU's decoder, until somebody has measured what it gains. What that decoder leaves to the processor, the
processor decodes. Sources without a file are read by `PyAVReader`.
"""

import os
from collections.abc import Generator, Iterator
from fractions import Fraction
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import av
from av.codec import Codec
from av.codec.hwaccel import HWAccel, hwdevices_available

from lstr.errors import VideoError, first_line
from lstr.extractors.stages import PROBE
from lstr.extractors.video.containers import PLAIN, Opening
from lstr.extractors.video.frames import CHUNK, Chunk, SourceFrame, chunks_of, shrink
from lstr.extractors.video.probe import Video, damaged, probe
from lstr.extractors.video.pyav_reader import PyAVReader

DECODERS = ("pyav", "decord", "nvdec")
PYAV_HINT = "unset LSTR_DECODER: PyAV reads every video."
NVDEC = Opening(hardware="cuda")
AHEAD_BYTES = 256 * 2**20  # of decoded frames, all of which decord may hold at once
SMALLEST = 16  # pixels; narrower frames come from decord with too many channels


class FrameReader:
    """The frames of a probed file, once; `decoder` is $LSTR_DECODER, or else `pyav`.

    With `allow_damaged` a damaged file ends where the damage begins.
    """

    def __init__(self, video: Video, allow_damaged: bool = False):
        self.video = video
        self.allow_damaged = allow_damaged
        self.decoder = os.environ.get("LSTR_DECODER") or "pyav"
        if self.decoder not in DECODERS:
            raise VideoError(f"There is no decoder {self.decoder!r}.", f"set LSTR_DECODER to {' or '.join(DECODERS)}.")
        if self.decoder == "decord" and not find_spec("decord"):
            raise VideoError("decord is not installed.", PYAV_HINT)
        if self.decoder == "nvdec" and not has_nvdec():
            raise VideoError("There is no NVDEC that PyAV can use here.", PYAV_HINT)
        self.decoded = 0
        self.decode_errors = 0
        self.end = Fraction(0)  # seconds from the first frame's start to the end of the last one so far
        self.clock = video.clock

    def frames(self, long_side: int) -> Generator[SourceFrame, None, None]:
        """Each frame at the working size, with its time.

        Raises VideoError where the file is damaged, or where the decoder cannot read it.
        """
        video = self.video
        if video.damage and not self.allow_damaged:
            raise damaged(str(video.path), video.damage)
        if self.decoder == "decord":
            for frame in decord_frames(video, long_side):
                yield self._counted(frame)
            return
        damage = "stop" if self.allow_damaged else "raise"
        reader = PyAVReader(video.path, damage, opening=NVDEC if self.decoder == "nvdec" else PLAIN)
        for frame in reader.frames(long_side):
            self.decode_errors, self.clock = reader.decode_errors, reader.clock
            yield self._counted(frame)
        self.decode_errors = reader.decode_errors

    def _counted(self, frame: SourceFrame) -> SourceFrame:
        self.decoded += 1
        self.end = frame.time + frame.duration
        return frame


@cache
def has_nvdec() -> bool:
    """Whether there is a GPU whose decoder PyAV can use."""
    if "cuda" not in hwdevices_available():
        return False
    try:
        HWAccel("cuda").create(Codec("h264", "r"))
    except (av.error.FFmpegError, NotImplementedError):
        return False
    return True


def suits_decord(video: Video) -> bool:
    """Whether decord makes the same frames of a file as PyAV, as the odd videos of the tests show.

    At 10 bits it differs by 3.6 levels, at odd sizes by half a level, in MPEG-4 part 2 by one; it cannot decode AV1,
    shows copies where frames cannot be decoded, and decodes ahead without bound.
    """
    return (
        video.width * video.height * 3 * len(video.ticks) <= AHEAD_BYTES
        and video.bits == 8
        and all(side > SMALLEST and side % 2 == 0 for side in (video.width, video.height))
        and video.codec not in ("av1", "mpeg4")
        and video.clock == "container"
        and bool((video.ticks[1:] > video.ticks[:-1]).all())
        and not video.damage
        and not video.left_out
    )


def decord_frames(video: Video, long_side: int) -> Generator[SourceFrame, None, None]:
    """Each frame of a probed file at the working size by decord, at the times of its packets.

    Raises VideoError where decord fails or does not suit. It conceals damage within frames, which PyAV finds.
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
    except Exception as error:  # decord raises bare RuntimeErrors and its own types for every kind of trouble
        raise VideoError(f"decord cannot read {video.path} ({first_line(error)}).", PYAV_HINT) from error


def read_chunks(reader: FrameReader | PyAVReader, long_side: int) -> Iterator[Chunk]:
    """A reader's chunks in order, each as soon as a later frame closes it; the short tail is dropped.

    Raises what the reader raises.
    """
    return chunks_of(reader.frames(long_side))


def probe_chunks(path: Path) -> Video:
    """A video's facts. Raises MissingPathError or VideoError, also when it is shorter than one chunk."""
    with PROBE:
        video = probe(path)
    if video.n_chunks == 0:
        raise VideoError(
            f"{path} lasts {video.duration:.2f} s, less than one chunk of {CHUNK} frames at 24 per second.",
            "choose a video of at least a quarter of a second.",
        )
    return video


def open_chunks(path: Path, long_side: int, allow_damaged: bool = False) -> tuple[Video, FrameReader, Iterator[Chunk]]:
    """A video's facts, its reader, and its chunks; of a damaged one those before the damage, where that is allowed.

    Raises as `probe_chunks`.
    """
    video = probe_chunks(path)
    with PROBE:
        reader = FrameReader(video, allow_damaged)
    return video, reader, read_chunks(reader, long_side)

"""Readers of video files: as 24 FPS RGB frames in chunks of six, and as single frames by their number.

PyAV reads every file; it took .5 to .95 times the processor time of decord on the videos of the tests. $LSTR_DECODER
names another decoder: decord, for a file of which it makes the same frames (`suits_decord`), or nvdec, which is PyAV
with a GPU's decoder, until its gain has been measured. What that decoder leaves to the processor, the processor
decodes. Sources without a file are read by `PyAVReader`.

A single frame is decoded from the key frame before it, and is identified by its own time and never by counting; where a
file does not start where it was asked to, as streams with open groups of pictures do, from an earlier key frame.
"""

import math
import os
import threading
from collections import OrderedDict
from collections.abc import Generator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from fractions import Fraction
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path

import av
import numpy as np
from av.codec import Codec
from av.codec.hwaccel import HWAccel, hwdevices_available
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from lstr.errors import VideoError, first_line
from lstr.extractors.stages import PROBE
from lstr.extractors.video.containers import PLAIN, Opening, best_video, open_container
from lstr.extractors.video.frames import CHUNK, Chunk, SourceFrame, chunks_of, shrink, upright, working_size
from lstr.extractors.video.probe import AVERAGE_RATE, Video, aspect_of, damaged, probe, seconds, unreadable
from lstr.extractors.video.pyav_reader import PyAVReader, render

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


# Bytes of decoded pictures that are kept, so that a step back is no new decoding.
KEPT_BYTES = 96 * 2**20
# Frames up to which decoding goes on rather than begin at the next key frame.
AHEAD = 48


def index_frames(path: Path) -> Video:
    """A file as ExactFrames takes it: damage is skipped, and of frames at one time only one is there.

    Raises as `probe`.
    """
    video = probe(path, skip_damaged=True)
    return replace(video, ticks=np.unique(video.ticks))


class ExactFrames:
    """The frames of an indexed file, from any thread, one at a time; use it as a context manager."""

    def __init__(self, index: Video, kept_bytes: int = KEPT_BYTES):
        self.index = index
        self._most = kept_bytes
        self._kept: OrderedDict[int, av.VideoFrame] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._opened = ExitStack()
        self._pictures: Iterator[tuple[int, av.VideoFrame]] = iter(())
        self._at = -1
        """The number of the picture that was decoded last; the next one follows it. -1 where nothing is open."""
        self._reformatter = VideoReformatter()

    def __enter__(self) -> "ExactFrames":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and forget its pictures."""
        with self._lock:
            self._stop()
            self._kept.clear()
            self._bytes = 0

    def image(self, number: int, long_side: int) -> NDArray[np.uint8]:
        """Frame `number`, upright, (H, W, 3) RGB with square samples, its longer side at most `long_side` pixels.

        Raises IndexError where there is no such frame, VideoError where it cannot be decoded.
        """
        if not 0 <= number < len(self.index.ticks):
            raise IndexError(number)
        with self._lock:
            picture = self._picture(number)
            size = upright(working_size(picture.width, picture.height, long_side, self._aspect), picture.rotation)
            return render(picture, size, self._reformatter)

    def _picture(self, number: int) -> av.VideoFrame:
        if number in self._kept:
            self._kept.move_to_end(number)
            return self._kept[number]
        try:
            if self._at >= 0 and 0 < number - self._at <= max(AHEAD, number - self._key_before(number)):
                if picture := self._go_to(number):
                    return picture
            key = self._key_before(number)
            while True:
                self._begin(key)
                if picture := self._go_to(number):
                    return picture
                if key == 0:
                    break
                key = self._key_before(key - 1)
        except (av.error.FFmpegError, OSError, ValueError) as error:
            self._stop()
            raise unreadable(str(self.index.path), error) from error
        time = self.index.times[number]
        raise VideoError(f"The frame at {time:g} s of {self.index.path} cannot be decoded.", "it may be damaged there.")

    def _key_before(self, number: int) -> int:
        """The number of the last key frame up to a frame; 0 where there is none."""
        index = self.index
        at = int(np.searchsorted(index.keys, index.ticks[number], side="right")) - 1
        return int(np.searchsorted(index.ticks, index.keys[at])) if at >= 0 else 0

    def _begin(self, key: int) -> None:
        """Let the next pictures be those from a key frame on; those of the whole file where it is the first."""
        self._stop()
        container = self._opened.enter_context(open_container(self.index.path))
        stream = best_video(container, str(self.index.path))
        stream.thread_type = "AUTO"
        self._aspect = aspect_of(stream)
        if key:
            container.seek(int(self.index.ticks[key]), stream=stream, backward=True)
        self._pictures = self._decoded(container, stream)

    def _decoded(
        self, container: av.container.InputContainer, stream: av.VideoStream
    ) -> Iterator[tuple[int, av.VideoFrame]]:
        """(number, picture) of what can be decoded; what is damaged, or is in no index, is left out."""
        counted = 0
        for packet in container.demux(stream):
            try:
                pictures = packet.decode()
            except av.error.InvalidDataError:
                continue
            for picture in pictures:
                if self.index.clock == AVERAGE_RATE:
                    yield counted, picture
                    counted += 1
                elif picture.pts is not None and not picture.is_corrupt:
                    tick = seconds(picture.pts, picture.time_base) / self.index.time_base
                    number = int(np.searchsorted(self.index.ticks, math.ceil(tick)))
                    if number < len(self.index.ticks) and self.index.ticks[number] == tick:
                        yield number, picture

    def _go_to(self, number: int) -> av.VideoFrame | None:
        """Decode on until a frame, keeping what comes on the way; None where the file has gone past it."""
        for at, picture in self._pictures:
            self._at = at
            self._keep(at, picture)
            if at >= number:
                return picture if at == number else None
        self._stop()
        return None

    def _keep(self, number: int, picture: av.VideoFrame) -> None:
        if number in self._kept:
            return
        self._kept[number] = picture
        self._bytes += _size(picture)
        while self._bytes > self._most and len(self._kept) > 1:
            self._bytes -= _size(self._kept.popitem(last=False)[1])

    def _stop(self) -> None:
        self._opened.close()
        self._pictures, self._at = iter(()), -1


def _size(picture: av.VideoFrame) -> int:
    return sum(plane.buffer_size for plane in picture.planes)

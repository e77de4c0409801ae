"""Read frames of files, URLs, cameras and pipes with PyAV, and cut them into chunks at 24 FPS.

With LSTR_DECODER=decord, decord decodes files; it was slower than PyAV on all videos of the tests.
"""

import os
from collections import deque
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, partial
from importlib.util import find_spec
from math import gcd
from pathlib import Path
from time import monotonic
from typing import BinaryIO

import av
import cv2
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from lstr.errors import StalledError, VideoError, first_line
from lstr.extractors.stages import PROBE
from lstr.extractors.video.containers import FASTSTART, Pipe, Source, best_video, copy_whole, look, open_container
from lstr.extractors.video.frames import (
    CHUNK,
    CHUNK_SECONDS,
    FPS,
    GAP_SECONDS,
    HALF,
    SILENCE_S,
    Chunk,
    n_frames_until,
    working_size,
)
from lstr.extractors.video.probe import (
    AVERAGE_RATE,
    Video,
    aspect_of,
    counts_frames,
    damaged,
    frame_step,
    missing_end,
    probe_chunks,
    time_of,
    unreadable,
)
from lstr.files.names import shown

# A function of each packet of a source, its stream, and its time of arrival in seconds of the monotonic clock.
PacketSink = Callable[[av.Packet, av.VideoStream, float], None]
# If timestamps step back by more, the clock starts over; by less, the frame is shown at once, as in FFmpeg.
JUMP_SECONDS = 1
TIMELESS = ("mpjpeg", "mjpeg", "h264", "hevc")  # FFmpeg's demuxers of frames without times
# Timestamps are stuck if at most MOVED of STANDING frames (about two seconds) move time forward. After a clock was set
# back, time moves again sooner.
STANDING, MOVED = 48, 3
FEW, LONG_S = 3, 2.0  # or if FEW frames do not within LONG_S seconds, for sources with few frames per second
BACK, BETWEEN = 3, 240  # unusable after BACK steps back within BETWEEN frames; setting a clock makes only one
# Pixel formats of raw cameras, mapped to decoders' formats with the same samples: converting them directly changes
# colours by up to 21 levels in real videos.
PLANAR = {"nv12": "yuv420p", "p010le": "yuv420p10le"}
MOST_ROWS = 15  # that are averaged at once; of more the product takes longer, and BLAS starts threads for it
SMALL_PIXELS = 640 * 480  # smaller frames decode on one thread: 320 x 240 took .005 s instead of .008 per second
DECORD_BYTES = 256 * 2**20  # maximum of all frames of a file: decord decodes ahead without limit
DECORD_SIDE = 16  # pixels; decord returns narrower frames with too many channels
PYAV_HINT = "unset LSTR_DECODER: PyAV reads every video."
SLOW_STEPS = 4  # longest gap in frame intervals, for a source with less than two frames per second


@dataclass(frozen=True)
class SourceFrame:
    """A decoded frame: start in seconds from the first frame, duration in seconds, and a function for its image."""

    time: Fraction
    duration: Fraction
    render: Callable[[], NDArray[np.uint8]]

    @cached_property
    def image(self) -> NDArray[np.uint8]:
        """Return RGB (H, W, 3), converted at the first call, so that frames skipped at 24 FPS are never converted."""
        return self.render()


class Stamps:
    """Detects unusable timestamps of a live source: in some sources they stand still or jump back and forth."""

    def __init__(self) -> None:
        self.since = 0.0  # arrival of the latest frame that moved time forward
        self._frames = 0
        self._moved: deque[bool] = deque(maxlen=STANDING)
        self._back: deque[int] = deque(maxlen=BACK)

    def take(self, forward: bool, back: bool, arrival: float) -> None:
        """Count a frame at `arrival` (s) that moves time `forward`, or steps `back` by more than JUMP_SECONDS."""
        self._frames += 1
        if back:
            self._back.append(self._frames)
        self._moved.append(forward)
        if forward:
            self.since = arrival

    def fault(self, arrival: float | None = None) -> str:
        """Describe in a phrase why the timestamps are unusable; `arrival` of the latest frame if it is in real time."""
        if len(self._back) == BACK and self._frames - self._back[0] < BETWEEN:
            return "step back again and again"
        # the first frame moves time forward, so FEW frames have come if none of the last ones did
        slow = arrival is not None and not any(list(self._moved)[-FEW:]) and arrival - self.since > LONG_S
        stands = len(self._moved) == STANDING and sum(self._moved) <= MOVED
        return "stand still or fall" if slow or stands else ""


class PyAVReader:
    """Reader of the frames of any source that FFmpeg opens, or of a binary file object, without probing.

    At a damaged packet or frame, `damage` is to `raise` VideoError, `stop` as if the source ended there, or `skip` it.
    With `live` each frame is yielded at once, instead of decoding several frames in parallel. `options`, `demuxer` and
    `timeout` are as for `open_container`. `stopped` is called while a pipe is silent; True ends the source. `packets`
    is called with each packet of the video stream before it is decoded. With `endless` a recording has no frames: it is
    a live event that was already read to its end.
    """

    def __init__(
        self,
        source: str | Path | BinaryIO,
        damage: str = "raise",
        live: bool = False,
        options: Mapping[str, str] | None = None,
        demuxer: str | None = None,
        timeout: float | None = None,
        stopped: Callable[[], bool] = lambda: False,
        packets: PacketSink | None = None,
        endless: bool = False,
    ):
        self._endless, self.name = endless, shown(source)
        self._stalled = StalledError(f"{self.name} sent nothing for too long.", "check that it is on, and its address.")
        self._source: Source = source
        if not isinstance(source, str | Path) and hasattr(source, "read1") and not source.seekable():
            self._source = Pipe(source, self._stalled, timeout, stopped)
        self._damage, self._live, self._packets = damage, live, packets
        self._options, self._demuxer, self._timeout = options, demuxer, timeout
        self.decoded = self.decode_errors = 0
        self.end = Fraction(0)  # seconds from the first frame's start to the end of the latest one
        self.clock = "container"
        self.stamps = Stamps()
        # Set when it is opened: whether it declares its length, and whether FFmpeg invents the times of its frames.
        self.finite = self.timeless = False
        self.note = ""  # shown while the user waits for the first frame

    def frames(self, long_side: int) -> Generator[SourceFrame, None, None]:
        """Yield each frame; images have the working size of the first frame.

        Raises VideoError if the source cannot be read or is damaged, and StalledError after `timeout`.
        """
        source, is_index_last = self._source, False
        try:
            with ExitStack() as opened:
                if isinstance(source, Pipe):
                    source.head, is_index_last = look(source.read)
                    if not source.head:
                        raise VideoError(f"Nothing came from {self.name}.", "check the command before the pipe.")
                    if is_index_last:
                        self.note = f"{self.name} is an MP4 with its index at the end, so it is read whole first. "
                        self.note += f"To start at once, {FASTSTART}, or name the file."
                        source = opened.enter_context(copy_whole(source))
                container = open_container(source, self._options, self._demuxer, self._timeout)
                opened.enter_context(container)
                self.finite = bool(container.duration) or (container.size > 0 and container.format.name != "hls")
                self.timeless = container.format.name in TIMELESS
                if self._endless and self.finite:
                    return
                yield from self._frames(container, long_side)
        except av.error.ExitError as error:
            raise self._stalled from error
        except (av.error.FFmpegError, OSError, ValueError) as error:
            if is_index_last and isinstance(error, av.error.FFmpegError) and not self.decoded:
                raise VideoError(
                    f"{self.name} is an MP4 that ended before its index: it is incomplete.",
                    "check the command before the pipe, or name the file.",
                ) from error
            raise unreadable(self.name, error) from error
        if self.decoded == 0 and self.decode_errors:
            raise damaged(self.name, "no frame can be decoded")
        if self.decoded == 0:
            raise VideoError(f"{self.name} contains no decodable frame.", "record or download the file again.")

    def _frames(self, container: av.container.InputContainer, long_side: int) -> Iterator[SourceFrame]:
        stream = best_video(container, self.name)
        small = stream.width * stream.height <= SMALL_PIXELS
        stream.thread_type = "SLICE" if self._live else "NONE" if small else "AUTO"
        aspect, step = aspect_of(stream), frame_step(stream)
        first, gap, size = Fraction(0), step, (0, 0)
        last: Fraction | None = None
        by_rate = counts_frames(container, stream)
        reformatter = VideoReformatter()  # one for all frames, because each reformatter starts threads
        for picture in self._pictures(container, stream):
            start = None if by_rate else time_of(picture)
            back = start is not None and last is not None and last - (start - first) > JUMP_SECONDS
            if last is None:
                first, time, by_rate = start or Fraction(0), Fraction(0), start is None
                size = working_size(picture.width, picture.height, long_side, aspect, picture.rotation)
                self.clock = AVERAGE_RATE if by_rate else "container"
            else:
                if back and self._live and gap > JUMP_SECONDS:
                    gap = step  # a second jump ahead by the same amount would count one jump twice
                time = last + gap if start is None or back else max(start - first, last)
                if start is not None and back:
                    first = start - time
                gap = time - last or gap
            self.stamps.take(last is None or time > last, back, monotonic())
            last = time
            duration = step
            if picture.duration and picture.time_base and not by_rate:
                duration = picture.duration * picture.time_base
            self.decoded += 1
            self.end = time + duration
            yield SourceFrame(time, duration, partial(render, picture, size, reformatter))

    def _pictures(self, container: av.container.InputContainer, stream: av.VideoStream) -> Iterator[av.VideoFrame]:
        """Yield undamaged decoded frames up to the end or the first damage.

        Raises StalledError if packets arrive for longer than the timeout without a frame.
        """
        packets: Iterator[av.Packet] = container.demux()
        heard, reached = monotonic(), Fraction(0)
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                break
            except av.error.InvalidDataError as error:
                self._handle_damage(error)
                return
            if packet.size and packet.pts is not None and packet.time_base:
                reached = max(reached, (packet.pts + (packet.duration or 0)) * packet.time_base)
            if self._timeout and monotonic() - heard > self._timeout:
                raise self._stalled
            if packet.stream is not stream:
                continue
            if self._packets:
                try:
                    self._packets(packet, stream, monotonic())
                except Exception as error:  # an error of the clips must not stop decoding
                    self._packets = None
                    self.note = f"The packets of {self.name} are not kept for clips ({error or type(error).__name__})."
            try:
                pictures = packet.decode()
            except av.error.InvalidDataError as error:
                if self._handle_damage(error):
                    return
                continue
            if packet.is_corrupt and self._handle_damage():
                return
            for picture in pictures:
                if not picture.is_corrupt:
                    yield picture
                    heard = monotonic()
                elif self._handle_damage():
                    return
        if missing := missing_end(container, reached):
            self.decode_errors += 1
            if self._damage == "raise":
                raise damaged(self.name, missing)

    def _handle_damage(self, error: Exception | None = None) -> bool:
        """Count damage; return whether to stop before it. Raises VideoError."""
        self.decode_errors += 1
        if self._damage == "raise":
            raise damaged(self.name, f"decoding stopped after {self.decoded} whole frames") from error
        return self._damage == "stop"


def render(picture: av.VideoFrame, size: tuple[int, int], reformatter: VideoReformatter) -> NDArray[np.uint8]:
    """Return a decoded frame as an upright (H, W, 3) uint8 RGB image."""
    if planar := PLANAR.get(picture.format.name):
        picture = reformatter.reformat(picture, format=planar, threads=1)
    # one thread: more threads cost more than they save, and the other cores compute flow and networks
    image = np.asarray(reformatter.reformat(picture, format="rgb24", threads=1).to_ndarray(), np.uint8)
    return shrink(np.rot90(image, picture.rotation // 90) if picture.rotation else image, size)


def shrink(image: NDArray[np.uint8], size: tuple[int, int]) -> NDArray[np.uint8]:
    """Return (H, W, 3) RGB at (width, height) by area interpolation (part of the recipe)."""
    image = np.ascontiguousarray(image)
    if size == image.shape[1::-1]:
        return image
    height, width = image.shape[:2]
    if width % size[0] or height % size[1]:
        averaged: np.ndarray = image
        rows, columns = height // gcd(height, size[1]), width // gcd(width, size[0])
        if 1 < rows <= MOST_ROWS and rows * columns % 2:
            # First within columns, a few rows at a time, which stay in the cache: 1920 × 1080 pixels take 2 ms instead
            # of 6. The pixels are equal, because fractions of odd numbers are never halfway between two levels.
            small = rows, rows * size[1] // height
            weights = cv2.resize(np.eye(rows, dtype=np.float32), small, interpolation=cv2.INTER_AREA)
            parts = [weights @ part.astype(np.float32) for part in image.reshape(-1, rows, 3 * width)]
            averaged = np.concatenate(parts).reshape(size[1], width, 3)
        # float32 gives the same pixels in two thirds of the time; for integer factors OpenCV is faster on bytes
        averaged = cv2.resize(averaged.astype(np.float32), size, interpolation=cv2.INTER_AREA)
        return np.asarray(cv2.convertScaleAbs(averaged), np.uint8)
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


class FrameReader(PyAVReader):
    """Reader of the frames of a probed file; with `allow_damaged` a damaged file ends where the damage begins.

    Raises VideoError if LSTR_DECODER is not pyav or decord, or if decord is not installed.
    """

    def __init__(self, video: Video, allow_damaged: bool = False):
        self.video = video
        self.decoder = os.environ.get("LSTR_DECODER") or "pyav"
        if self.decoder not in ("pyav", "decord"):
            raise VideoError(f"Unknown decoder: {self.decoder!r}.", "set LSTR_DECODER to pyav or decord.")
        if self.decoder == "decord" and not find_spec("decord"):
            raise VideoError("decord is not installed.", PYAV_HINT)
        super().__init__(video.path, "stop" if allow_damaged else "raise")
        self.clock = video.clock

    def frames(self, long_side: int) -> Generator[SourceFrame, None, None]:
        """Yield frames as PyAVReader does; raises VideoError also for damage that `probe` found."""
        if self.video.damage and self._damage == "raise":
            raise damaged(self.name, self.video.damage)
        if self.decoder == "pyav":
            yield from super().frames(long_side)
            return
        import decord

        # with the times of their packets; decord hides damage within frames
        video, n, size = self.video, len(self.video.ticks), self.video.size(long_side)
        # decord differs from PyAV by 3.6 levels at 10 bits, by half a level at odd sizes, and by one in MPEG-4 part 2.
        # It cannot decode AV1, and repeats the previous frame if a frame cannot be decoded.
        is_exact = (
            video.width * video.height * 3 * n <= DECORD_BYTES
            and video.bits == 8
            and all(side > DECORD_SIDE and side % 2 == 0 for side in (video.width, video.height))
            and video.codec not in ("av1", "mpeg4")
            and video.clock == "container"
            and bool((video.ticks[1:] > video.ticks[:-1]).all())
            and not video.damage
            and not video.left_out
        )
        if not is_exact:
            raise VideoError(f"decord cannot read the exact frames of {video.path}.", PYAV_HINT)
        try:
            # an absolute path, because FFmpeg could take the beginning of a relative name for a protocol
            reader = decord.VideoReader(os.path.abspath(video.path), num_threads=1)
            if len(reader) != n:
                raise ValueError(f"it counts {len(reader)} frames, the container {n}")
            for number in range(n):
                image, time = reader.next().asnumpy(), video.time(number)
                end = video.time(number + 1) if number + 1 < n else video.end
                self.decoded += 1
                self.end = end
                yield SourceFrame(time, end - time, partial(shrink, image, size))
        except Exception as error:  # decord raises RuntimeError and other types
            raise VideoError(f"decord cannot read {video.path} ({first_line(error)}).", PYAV_HINT) from error


def resample(frames: Iterable[SourceFrame], first: int = 0) -> Iterator[SourceFrame]:
    """Resample frames with non-decreasing times to 24 FPS, like FFmpeg's fps filter, in exact arithmetic.

    The slot of a frame is floor(time · 24 + 1/2). Output k, from `first` on, is the last frame with a slot ≤ k, so gaps
    repeat frames. Reads one frame ahead. The last frame is shown for its duration.
    """
    shown, k = None, first
    for frame in frames:
        slot = int(frame.time * FPS + HALF)
        while shown is not None and k < slot:
            yield shown
            k += 1
        shown = frame
    if shown is not None:
        for _ in range(k, n_frames_until(shown.time + shown.duration)):
            yield shown


def chunks_of(
    frames: Iterable[SourceFrame], first: int = 0, most: int | None = None, seen: Collection[int] = range(CHUNK)
) -> Iterator[Chunk]:
    """Yield chunks of source frames, in order, each as soon as a later frame completes it; drop the incomplete tail.

    Chunks before `first` are skipped without converting their images. After `most` chunks no frame is read. Of each
    chunk the images in `seen` are converted, the last one among them; the next of these is repeated for the others.
    """
    pending: list[NDArray[np.uint8]] = []
    index, n_read = first, 0
    for frame in resample(frames, first * CHUNK):
        if n_read in seen:
            pending += [frame.image] * (n_read + 1 - len(pending))
        n_read += 1
        if n_read == CHUNK:
            yield Chunk(index, (index + 1) * CHUNK_SECONDS, np.stack(pending))  # (6, H, W, 3)
            index += 1
            if most is not None and index - first >= most:
                return
            pending, n_read = [], 0


def stretches(
    frames: Iterator[SourceFrame], step: Fraction | None = None
) -> Iterator[tuple[int, Iterator[SourceFrame]]]:
    """Split frames at gaps: yield (first complete chunk, frames) of each part; read each part before the next one.

    A gap is longer than GAP_SECONDS and than SLOW_STEPS times the previous frame interval; `step` is the interval
    before the first frame.
    """
    latest_step = step or Fraction(0)
    ahead = next(frames, None)

    def stretch() -> Iterator[SourceFrame]:
        nonlocal ahead, latest_step
        while ahead is not None:
            frame, ahead = ahead, None
            yield frame
            ahead = next(frames, None)
            if ahead is not None:
                longest = min(max(Fraction(GAP_SECONDS), SLOW_STEPS * latest_step), Fraction(SLOW_STEPS * SILENCE_S))
                latest_step = ahead.time - frame.time
                if latest_step > longest:
                    return

    while ahead is not None:
        yield -(-n_frames_until(ahead.time) // CHUNK), stretch()


def open_chunks(
    path: Path, long_side: int, allow_damaged: bool = False, seen: Collection[int] = range(CHUNK)
) -> tuple[Video, FrameReader, Iterator[Chunk]]:
    """Probe a video; return its metadata, its reader and its chunks, with `allow_damaged` up to the damage.

    `seen` as for `chunks_of`. Raises as `probe_chunks`.
    """
    video = probe_chunks(path)
    with PROBE:
        reader = FrameReader(video, allow_damaged)
    return video, reader, chunks_of(reader.frames(long_side), seen=seen)

"""Readers of anything FFmpeg opens, by PyAV: frames of files, addresses, cameras and pipes, and chunks of them.

With LSTR_DECODER=nvdec PyAV uses a GPU's decoder for files, which was not timed, and the processor for what it rejects.
"""

import math
import os
import select
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, BinaryIO

import av
import numpy as np
from av.video.reformatter import VideoReformatter
from numpy.typing import NDArray

from lstr.errors import StalledError, VideoError
from lstr.extractors.stages import PROBE
from lstr.extractors.video.containers import (
    FASTSTART,
    PLAIN,
    Looked,
    Opening,
    Source,
    best_video,
    keep,
    look,
    open_container,
)
from lstr.extractors.video.decoders import choose_decoder, decord_frames
from lstr.extractors.video.frames import CHUNK, Chunk, SourceFrame, chunks_of, shrink, upright, working_size
from lstr.extractors.video.probe import (
    AVERAGE_RATE,
    Video,
    aspect_of,
    counts_frames,
    damaged,
    frame_step,
    missing_end,
    probe,
    unreadable,
)
from lstr.files.names import shown

if TYPE_CHECKING:  # only a live source needs it
    from lstr.extractors.video.packet_ring import PacketSink

NVDEC = Opening(hardware="cuda")
JUMP_SECONDS = 1  # timestamps that step back by more begin anew; by less, the frame is shown at once, as FFmpeg does
TIMELESS = ("mpjpeg", "mjpeg", "h264", "hevc")  # FFmpeg's demuxers of pictures alone
# how a GPU's decoder lays pictures out, to how FFmpeg's own does: the same samples, of which FFmpeg makes other colours
# where it converts them directly, up to 21 levels away in real videos
PLANAR = {"nv12": "yuv420p", "p010le": "yuv420p10le"}
TICK = 0.2  # seconds between two looks at whether a silent pipe is still wanted
STANDING, MOVED = 48, 3  # of so many frames, about two seconds, no more moved time: a clock set back moves it sooner
FEW, LONG = 3, 2.0  # as many frames in so many seconds of arrival mean the same, of a source with few frames a second
BACK, AMONG = 3, 240  # steps back among so many frames; a clock that is set, or a list that begins anew, makes one


class Stamps:
    """Whether the time stamps of a live source can be its clock: some stand still, fall, or jump to and fro."""

    def __init__(self) -> None:
        self.since = 0.0
        """Arrival of the newest frame that moved time forward."""
        self._standing = self._frames = 0
        self._moved: deque[bool] = deque(maxlen=STANDING)
        self._back: deque[int] = deque(maxlen=BACK)

    def take(self, forward: bool, back: bool, arrival: float) -> None:
        """Whether a frame moves time forward, or its stamp steps back so far that time goes on from where it was.

        `arrival` is when it came, in seconds of any clock.
        """
        self._frames += 1
        if back:
            self._back.append(self._frames)
        self._moved.append(forward)
        self._standing = 0 if forward else self._standing + 1
        if forward:
            self.since = arrival

    def fault(self, arrival: float | None = None) -> str:
        """What is wrong with them, in a phrase, and empty where nothing is.

        `arrival` is that of the newest frame, of a source that sends each when it happens.
        """
        if len(self._back) == BACK and self._frames - self._back[0] < AMONG:
            return "step back again and again"
        slow = arrival is not None and self._standing >= FEW and arrival - self.since > LONG
        stands = len(self._moved) == STANDING and sum(self._moved) <= MOVED
        return "stand still or fall" if slow or stands else ""


class PyAVReader:
    """Frames of anything FFmpeg opens, or of a binary file object, as they come; nothing need be known before.

    `damage` is what a broken packet or frame does: `raise` VideoError, `stop` as if the source ended before it, or
    `skip` it and go on. `live` yields each frame at once instead of decoding in several frames' time. `stopped` is
    called while a pipe is silent; True ends it. `packets` gets each packet of the video stream before it is decoded.
    With `endless` no frames come of what turns out to be a recording: it is an event that was watched to its end.
    """

    def __init__(
        self,
        source: str | Path | BinaryIO,
        damage: str = "raise",
        live: bool = False,
        opening: Opening = PLAIN,
        stopped: Callable[[], bool] = lambda: False,
        packets: "PacketSink | None" = None,
        endless: bool = False,
    ):
        self._endless, self.name = endless, shown(source)
        timeout = opening.timeout
        self._patience = timeout[1] if isinstance(timeout, tuple) else timeout
        self._source: Source = source
        if not isinstance(source, str | Path) and hasattr(source, "read1") and not source.seekable():
            # a buffered pipe's `read` would wait for all the bytes that FFmpeg requests
            self._source = _Arriving(source, self._silent, self._patience, stopped)
        self._damage, self._live, self._opening, self._packets = damage, live, opening, packets
        self.decoded = 0
        self.decode_errors = 0
        self.end = Fraction(0)
        """Seconds from the first frame's start to the end of the latest one."""
        self.clock = "container"
        self.stamps = Stamps()
        """How its time stamps have gone on so far."""
        self.finite = False
        """Once opened: whether the source declares how long it is."""
        self.timeless = False
        """Once opened: whether its frames come without times, so that FFmpeg makes some up."""
        self.note = ""
        """What a person should know who waits for the first frame."""

    def frames(self, long_side: int) -> Generator[SourceFrame, None, None]:
        """Each frame, its image at the working size of the first one.

        Raises VideoError where the source cannot be read or is damaged, StalledError after `timeout`.
        """
        try:
            with self._at_hand() as source, open_container(source, self._opening) as container:
                self.finite = bool(container.duration) or (container.size > 0 and container.format.name != "hls")
                self.timeless = container.format.name in TIMELESS
                if self._endless and self.finite:
                    return
                yield from self._frames(container, long_side)
        except av.error.ExitError as error:
            raise self._silent() from error
        except (av.error.FFmpegError, OSError, ValueError) as error:
            raise unreadable(self.name, error) from error
        if self.decoded == 0 and self.decode_errors:
            raise damaged(self.name, "not one frame of it is whole")
        if self.decoded == 0:
            raise VideoError(f"{self.name} holds no decodable frame.", "record or download the file again.")

    @contextmanager
    def _at_hand(self) -> Iterator[Source]:
        """The source as FFmpeg can read it: of an MP4 with its index at the end, which it cannot, a whole copy."""
        if not isinstance(self._source, _Arriving):
            yield self._source
            return
        head, index_last = look(self._source.read)
        if not head:
            raise VideoError(f"Nothing came from {self.name}.", "check the command before the pipe.")
        if not index_last:
            yield Looked(self.name, head, self._source.read)
            return
        self.note = f"{self.name} is an MP4 with its index at the end: nothing is decided before it has come whole. "
        self.note += f"To decide at once, {FASTSTART}, or name the file."
        with keep(head, self._source.read, self.name) as copy:
            try:
                yield copy
            except av.error.FFmpegError as error:
                if self.decoded:
                    raise
                raise VideoError(
                    f"{self.name} is an MP4 that ended before its index came: it was cut off.",
                    "check the command before the pipe, or name the file.",
                ) from error

    def _frames(self, container: av.container.InputContainer, long_side: int) -> Iterator[SourceFrame]:
        stream = best_video(container, self.name)
        stream.thread_type = "SLICE" if self._live else "AUTO"
        aspect, step = aspect_of(stream), frame_step(stream)
        first, gap, size = Fraction(0), step, (0, 0)
        last: Fraction | None = None
        by_rate = counts_frames(container, stream)
        reformatter = VideoReformatter()  # a picture's own would be made anew for each, with threads of its own
        for picture in self._pictures(container, stream):
            base = picture.time_base or Fraction(0)  # where there is a time, its unit is known
            start = None if by_rate or picture.pts is None else picture.pts * base
            back = start is not None and last is not None and last - (start - first) > JUMP_SECONDS
            if last is None:
                first, time, by_rate = start or Fraction(0), Fraction(0), start is None
                size = upright(working_size(picture.width, picture.height, long_side, aspect), picture.rotation)
                self.clock = AVERAGE_RATE if by_rate else "container"
            else:
                if back and self._live and gap > JUMP_SECONDS:
                    gap = step  # to jump ahead by as much again would be two jumps of one
                time = last + gap if start is None or back else max(start - first, last)
                if start is not None and back:
                    first = start - time
                gap = time - last or gap
            self.stamps.take(last is None or time > last, back, monotonic())
            last = time
            duration = picture.duration * base if picture.duration and not by_rate else step
            self.decoded += 1
            self.end = time + duration
            yield SourceFrame(time, duration, partial(render, picture, size, reformatter))

    def _silent(self) -> StalledError:
        return StalledError(f"{self.name} sent nothing for too long.", "check that it is on, and its address.")

    def _pictures(self, container: av.container.InputContainer, stream: av.VideoStream) -> Iterator[av.VideoFrame]:
        """Decoded pictures up to the end or the first damage, whole ones only.

        Raises StalledError where packets come for longer than the timeout, and no picture.
        """
        packets: Iterator[av.Packet] = container.demux()
        began, reached = monotonic(), Fraction(0)
        while True:
            try:
                packet = next(packets)
            except StopIteration:
                break
            except av.error.InvalidDataError as error:
                self._broken(error)
                return
            if packet.size and packet.pts is not None and packet.time_base:
                reached = max(reached, (packet.pts + (packet.duration or 0)) * packet.time_base)
            if self._patience and monotonic() - began > self._patience:
                raise self._silent()
            if packet.stream is not stream:
                continue
            if self._packets:
                try:
                    self._packets(packet, stream, monotonic())
                except Exception as error:  # what goes wrong there does not stop the decoding
                    self._packets = None
                    self.note = f"The packets of {self.name} are kept no more ({error or type(error).__name__})."
            try:
                pictures = packet.decode()
            except av.error.InvalidDataError as error:
                if self._broken(error):
                    return
                continue
            if packet.is_corrupt and self._broken(None):
                return
            for picture in pictures:
                if not picture.is_corrupt:
                    yield picture
                    began = monotonic()
                elif self._broken(None):
                    return
        if missing := missing_end(container, reached):
            self.decode_errors += 1
            if self._damage == "raise":
                raise damaged(self.name, missing)

    def _broken(self, error: Exception | None) -> bool:
        """Count damage; whether to stop before it. Raises VideoError."""
        self.decode_errors += 1
        if self._damage == "raise":
            raise damaged(self.name, f"decoding stopped after {self.decoded} whole frames") from error
        return self._damage == "stop"


class _Arriving:
    """A pipe whose bytes are read as they arrive; `read` raises what `silent` makes when none do for `patience`."""

    def __init__(
        self, file: BinaryIO, silent: Callable[[], Exception], patience: float | None, stopped: Callable[[], bool]
    ):
        self._file, self._silent, self._patience, self._stopped = file, silent, patience, stopped

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end, or once stopped."""
        deadline = monotonic() + (math.inf if self._patience is None else self._patience)
        # what Python has buffered is not in the pipe, but nothing has read from it before
        while not select.select([self._file], [], [], TICK)[0]:
            if self._stopped():
                return b""
            if monotonic() > deadline:
                raise self._silent()
        return os.read(self._file.fileno(), size)


def render(picture: av.VideoFrame, size: tuple[int, int], reformatter: VideoReformatter) -> NDArray[np.uint8]:
    """A decoded picture as an upright (H, W, 3) uint8 RGB image."""
    if planar := PLANAR.get(picture.format.name):
        picture = reformatter.reformat(picture, format=planar, threads=1)
    # one thread: more cost more than a picture, and the other cores have flow and networks to compute
    image = np.asarray(reformatter.reformat(picture, format="rgb24", threads=1).to_ndarray(), np.uint8)
    return shrink(np.rot90(image, picture.rotation // 90) if picture.rotation else image, size)


class FrameReader(PyAVReader):
    """The frames of a probed file, once; with `allow_damaged` a damaged file ends where the damage begins."""

    def __init__(self, video: Video, allow_damaged: bool = False):
        self.video = video
        self.decoder = choose_decoder()
        damage = "stop" if allow_damaged else "raise"
        super().__init__(video.path, damage, opening=NVDEC if self.decoder == "nvdec" else PLAIN)
        self.clock = video.clock

    def frames(self, long_side: int) -> Generator[SourceFrame, None, None]:
        """See PyAVReader; raises VideoError also for damage that the packets showed."""
        if self.video.damage and self._damage == "raise":
            raise damaged(self.name, self.video.damage)
        if self.decoder != "decord":
            yield from super().frames(long_side)
            return
        for frame in decord_frames(self.video, long_side):
            self.decoded += 1
            self.end = frame.time + frame.duration
            yield frame


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
    return video, reader, chunks_of(reader.frames(long_side))

"""A clip in MP4 of packets as they were received; only what MP4 does not hold is encoded anew, as H.264."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from time import monotonic

import av
import numpy as np
from av.video.reformatter import ColorRange, VideoReformatter
from numpy.typing import NDArray

from lstr.extractors.video.frames import upright, working_size
from lstr.extractors.video.packet_ring import TICKS, Coding, Packet, shown_first
from lstr.extractors.video.reader import render

# The codecs that MP4 holds, and a player finds in it.
HELD = ("h264", "hevc", "mpeg4", "av1", "vp9")
TAGS = {"hevc": "hvc1"}  # without it Apple's players show nothing
CLOCK = Fraction(1, TICKS)
# its index first, so that a browser plays before all has come; made when it is closed
OPTIONS = {"movflags": "faststart", "video_track_timescale": str(TICKS)}
ENCODER = {"preset": "superfast", "crf": "23", "g": "50"}


class ClipFile:
    """An MP4 that packets are written to as they come, from a key frame on, its time from 0; then `close` it.

    Raises OSError where it cannot be written, else av.FFmpegError for packets that are of no use.
    """

    def __init__(self, path: Path, first: Packet):
        assert first.is_key
        coding = first.coding.declared(first.data)
        self.coding = first.coding
        self.origin = first.pts
        """The ring's time that is its 0."""
        self.end = first.pts
        """The ring's time at which its newest frame is no longer shown."""
        self.newest = first.number - 1
        """The number of the newest packet in it, or passed over."""
        self.size = 0
        """Bytes of what was written, about."""
        self._container = av.open(f"file:{path}", "w", format="mp4", options=OPTIONS)
        try:
            self._writer: _Copied | _Encoded
            if coding.template and coding.codec in HELD:
                self._writer = _Copied(self._container, coding, coding.template)
            else:
                self._writer = _Encoded(self._container, coding)
        except BaseException:
            self.abandon()
            raise

    @property
    def codec(self) -> str:
        """By FFmpeg's name."""
        return self.coding.codec if isinstance(self._writer, _Copied) else "h264"

    @property
    def pictures(self) -> tuple[int, int]:
        """Width and height."""
        return self._writer.size

    @property
    def seconds(self) -> float:
        """How long it is so far."""
        return (self.end - self.origin) / TICKS

    def write(self, packet: Packet) -> None:
        """Add a packet, of the same coding; one that is shown before the first one is left out."""
        self.newest = packet.number
        if packet.pts < self.origin:
            return
        self.size += self._writer.write(packet, self.origin)
        self.end = max(self.end, packet.pts + packet.duration)

    def close(self) -> None:
        """Write its index."""
        try:
            self._writer.finish()
        except BaseException:
            self.abandon()
            raise
        self._container.close()

    def abandon(self) -> None:
        """Write no more; the file is of no use."""
        with suppress(OSError, av.FFmpegError):
            self._container.close()


class _Copied:
    """Packets as they are."""

    def __init__(self, container: av.container.OutputContainer, coding: Coding, template: av.VideoStream):
        self._container, self.size = container, coding.size
        self._stream = container.add_stream_from_template(template, opaque=True)
        self._stream.time_base = CLOCK
        if coding.codec in TAGS:
            self._stream.codec_context.codec_tag = TAGS[coding.codec]

    def write(self, packet: Packet, origin: int) -> int:
        """Bytes that it added."""
        made = packet.to_av(origin)
        made.stream = self._stream
        self._container.mux(made)
        return len(packet.data)

    def finish(self) -> None:
        """Nothing is held back."""


class _Encoded:
    """Packets decoded, and encoded as H.264."""

    def __init__(self, container: av.container.OutputContainer, coding: Coding):
        self._container, self._decoder = container, coding.decoder()
        self._reformatter = VideoReformatter()
        stream = container.add_stream("libx264", options=ENCODER)
        assert isinstance(stream, av.VideoStream)
        self.size = coding.size
        stream.pix_fmt = "yuv420p"
        stream.codec_context.sample_aspect_ratio = coding.aspect
        stream.codec_context.time_base = stream.time_base = CLOCK
        stream.codec_context.thread_count = 1  # the other cores have cameras to decide on
        self._stream, self._last = stream, -1

    def write(self, packet: Packet, origin: int) -> int:
        """Bytes that it added; a packet that cannot be decoded adds none."""
        try:
            frames = self._decoder.decode(packet.to_av(origin))
        except av.error.InvalidDataError:
            return 0
        return self._encode(frames)

    def finish(self) -> None:
        """Write what decoder and encoder hold back."""
        self._encode(_rest(self._decoder))
        self._mux(self._stream.encode(None))

    def _encode(self, frames: Iterable[av.VideoFrame]) -> int:
        added, stream = 0, self._stream
        for frame in frames:
            if frame.pts is None or frame.pts <= self._last:
                continue
            if self._last < 0:  # the encoder writes what it is told before its first frame
                self.size = stream.width, stream.height = _even(frame.width), _even(frame.height)
                stream.codec_context.color_range = ColorRange.MPEG
                stream.codec_context.colorspace = frame.colorspace
            made = self._reformatter.reformat(frame, *self.size, "yuv420p", dst_color_range=ColorRange.MPEG, threads=1)
            made.pts, made.time_base, made.pict_type = frame.pts, CLOCK, 0
            self._last = frame.pts
            added += self._mux(stream.encode(made))
        return added

    def _mux(self, packets: Iterable[av.Packet]) -> int:
        added = 0
        for packet in packets:
            added += packet.size
            self._container.mux(packet)
        return added


def _even(side: int) -> int:
    """The pixels of a side that H.264 takes."""
    return max(2, side - side % 2)


def picture_of(
    packets: list[Packet], at: int, long_side: int, patience: float, clock: Callable[[], float] = monotonic
) -> NDArray[np.uint8] | None:
    """(H, W, 3) RGB of the frame that is shown at a time in ticks, from packets that begin with a key frame.

    After `patience` seconds of decoding it is the newest one decoded; None where none could be. Raises av.FFmpegError.
    """
    wanted = [packet for packet in packets if packet.dts <= at] or packets[:1]
    keys = [place for place, packet in enumerate(wanted) if packet.is_key]
    if not keys:
        return None
    until, best = clock() + patience, None
    coding = wanted[keys[-1]].coding
    decoder = coding.decoder()
    for packet in shown_first(wanted[keys[-1] :]):
        try:
            frames = decoder.decode(packet.to_av())
        except av.error.InvalidDataError:
            continue
        best = _nearest([best, *frames], at)
        if clock() > until:
            break
    best = _nearest([best, *_rest(decoder)], at)
    if best is None:
        return None
    size = upright(working_size(best.width, best.height, long_side, coding.aspect), best.rotation)
    return render(best, size, VideoReformatter())


def _rest(decoder: av.VideoCodecContext) -> list[av.VideoFrame]:
    """The frames that a decoder holds back."""
    try:
        return decoder.decode(None)
    except av.error.InvalidDataError:
        return []


def _nearest(frames: Iterable[av.VideoFrame | None], at: int) -> av.VideoFrame | None:
    """The newest frame that is shown at a time, or the first one after it."""
    there = [frame for frame in frames if frame is not None]
    return max((f for f in there if (f.pts or 0) <= at), key=lambda f: f.pts or 0, default=there[0] if there else None)

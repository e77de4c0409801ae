"""The latest packets of a live source, bounded in bytes, and MP4 clips of them as they were received.

Nothing is decoded for a clip, except what MP4 cannot hold, which is encoded as H.264.
"""

import io
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from time import monotonic

import av
import numpy as np
from av.video.reformatter import ColorRange, VideoReformatter
from numpy.typing import NDArray

from lstr.extractors.video.frames import upright, working_size
from lstr.extractors.video.probe import aspect_of
from lstr.extractors.video.reader import render

TICKS = 90_000  # per second, as in MPEG-TS and RTP
CLOCK = Fraction(1, TICKS)
MAX_LEAD = 2 * TICKS  # a stamp that is ahead of its arrival by more is of another clock
OVERHEAD = 400  # bytes of a Python object for a packet, besides its data
# The parameter sets of a stream, which say how to decode it: the type of a unit, and their types.
PARAMETERS = {"h264": (lambda unit: unit & 31, (7, 8)), "hevc": (lambda unit: unit >> 1 & 63, (32, 33, 34))}
PARAMETER_BYTES = 4096  # of a key frame, which contain them
POINTERS = ("wrapped_avframe",)  # codecs whose packets hold the address of a frame that is freed soon
KEYS_ONLY = ("mjpeg", "rawvideo")  # every frame is a key frame, also where a demuxer does not mark it

MP4_CODECS = ("h264", "hevc", "mpeg4", "av1", "vp9")  # codecs in MP4 that players know
TAGS = {"hevc": "hvc1"}  # without it Apple's players show nothing
# The index comes first, so that a browser plays before the file is complete; FFmpeg writes it at the end.
MP4_OPTIONS = {"movflags": "faststart", "video_track_timescale": str(TICKS)}
ENCODER = {"preset": "superfast", "crf": "23", "g": "50"}


@dataclass(frozen=True)
class Coding:
    """How packets are decoded; packets of equal codings may follow one another in one file. Outlives a connection."""

    codec: str  # FFmpeg's name
    size: tuple[int, int]
    pixels: str | None
    extradata: bytes  # for the decoder, before the first packet
    units: tuple[bytes, ...]  # the parameter sets of the latest key frame, if it has any
    aspect: Fraction = field(compare=False)  # width of a sample over its height
    # For a container of the stream; None where the stream has changed in a way that no container can describe.
    template: av.VideoStream | None = field(repr=False, compare=False)

    def decoder(self) -> av.VideoCodecContext:
        """Return a decoder of its packets."""
        decoder = av.CodecContext.create(self.codec, "r")
        assert isinstance(decoder, av.VideoCodecContext)
        decoder.width, decoder.height = self.size
        if self.pixels:
            decoder.pix_fmt = self.pixels
        if self.extradata:
            decoder.extradata = self.extradata
        decoder.thread_count = 1
        return decoder

    def declared(self, first: bytes) -> "Coding":
        """Return the coding by its first key frame, where that differs from the connection. Raises av.FFmpegError."""
        if self.template is None or all(unit in self.extradata for unit in self.units):
            return self
        stream_file = io.BytesIO()
        with av.open(stream_file, "w", format="mpegts") as output:
            packet = av.Packet(first)
            packet.pts, packet.dts, packet.time_base, packet.is_keyframe = 0, 0, CLOCK, True
            packet.stream = output.add_stream_from_template(self.template, opaque=True)
            output.mux(packet)
        stream_file.seek(0)
        with av.open(stream_file, format="mpegts") as container:
            return coding_of(container.streams.video[0], self.units)


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet of video; times in ticks of one clock that never falls, over all connections."""

    number: int  # counts the packets of its ring, in the order of arrival
    data: bytes
    pts: int
    dts: int
    duration: int
    is_key: bool
    arrival: float  # on the monotonic clock
    coding: Coding

    def to_av(self, origin: int = 0) -> av.Packet:
        """Return it for PyAV, times counted from `origin`."""
        packet = av.Packet(self.data)
        packet.pts, packet.dts, packet.duration = self.pts - origin, self.dts - origin, self.duration
        packet.time_base, packet.is_keyframe = CLOCK, self.is_key
        return packet


class PacketRing:
    """The packets of one source: at most `most_bytes`, and no more than `most_seconds` need; from any thread.

    It begins with a key frame, and drops the oldest group (a key frame with the packets up to the next one) as a whole.
    A group that is larger than the ring is not kept. `take` is the PacketSink; it copies, and never waits for readers.
    """

    def __init__(self, most_bytes: int, most_seconds: float):
        self.most_bytes, self.most_seconds = most_bytes, most_seconds
        self.size = 0  # bytes, OVERHEAD included
        self._groups: deque[list[Packet]] = deque()
        self._lock = threading.Lock()
        self._stream: av.VideoStream | None = None
        self._coding: Coding | None = None
        self._number = 0
        self._shift: int | None = None  # from the stream's clock to the ring's; None if it is unknown
        self._last = (0, 0.0)  # decoding time of the latest packet, and its arrival

    def take(self, packet: av.Packet, stream: av.VideoStream, arrival: float) -> None:
        """Keep a packet, which came at `arrival` in seconds of the monotonic clock.

        Raises ValueError for a stream whose packets cannot be kept, or av.FFmpegError.
        """
        if not packet.size:  # the end of a connection
            return
        codec = stream.codec_context.codec.canonical_name
        if codec in POINTERS:
            raise ValueError(f"{codec} cannot be kept")
        data, is_key = bytes(packet), packet.is_keyframe or codec in KEYS_ONLY
        if stream is not self._stream:
            self._shift = None
        if is_key:
            # RTMP sends new extradata with a packet
            has_new = packet.has_sidedata("new_extradata")
            extradata = bytes(packet.get_sidedata("new_extradata")) if has_new else b""
            units = parameter_units(codec, data)
            if extradata or stream is not self._stream or units not in ((), self._coding and self._coding.units):
                coding = coding_of(stream, units)
                if extradata and extradata != coding.extradata:
                    coding = replace(coding, extradata=extradata, template=None)
                if coding != self._coding:
                    self._coding = coding
            self._stream = stream
        if stream is not self._stream or self._coding is None:  # a connection begins with its first key frame
            return
        pts, dts = self._times(packet, arrival)
        duration = round((packet.duration or 0) * (packet.time_base or CLOCK) * TICKS)
        with self._lock:
            self._number += 1
            if is_key:
                self._groups.append([])
            elif not self._groups:
                return
            self._groups[-1].append(Packet(self._number, data, pts, dts, duration, is_key, arrival, self._coding))
            self.size += len(data) + OVERHEAD
            while self._groups and (self.size > self.most_bytes or self._has_excess(dts)):
                self.size -= sum(len(packet.data) + OVERHEAD for packet in self._groups.popleft())

    def _has_excess(self, now: int) -> bool:
        """Return whether the groups after the oldest one hold all the seconds."""
        return len(self._groups) > 1 and now - self._groups[1][0].dts >= self.most_seconds * TICKS

    def since(self, arrival: float, seconds: float) -> list[Packet]:
        """Return packets from the key frame `seconds` before the latest at `arrival`, or from the oldest one."""
        packets = self.after(0)
        if not packets:
            return []
        begin = time_at(packets, arrival) - seconds * TICKS
        keys = [place for place, packet in enumerate(packets) if packet.is_key and packet.pts <= begin]
        return packets[keys[-1] if keys else 0 :]

    def after(self, number: int) -> list[Packet]:
        """Return the packets after one; from a key frame on if the next ones are lost."""
        with self._lock:
            groups = [group for group in self._groups if group[-1].number > number]
            return [packet for group in groups for packet in group if packet.number > number]

    def _times(self, packet: av.Packet, arrival: float) -> tuple[int, int]:
        """Return when a packet is shown and decoded, on a clock that follows the stream's while that is plausible."""
        stamp = packet.pts if packet.dts is None else packet.dts
        base = packet.time_base or CLOCK
        last, before = self._last
        elapsed = max(1, round((arrival - before) * TICKS))
        dts = last + elapsed if self._number else 0
        pts = dts
        if stamp is None:
            self._shift = None
        else:
            own = round(stamp * base * TICKS)
            if self._shift is not None and 0 < own + self._shift - last <= elapsed + MAX_LEAD:
                dts = own + self._shift
            self._shift = dts - own
            own_pts = stamp if packet.pts is None else packet.pts
            pts = min(max(dts, round(own_pts * base * TICKS) + self._shift), dts + MAX_LEAD)
        self._last = (dts, arrival)
        return pts, dts


def coding_of(stream: av.VideoStream, units: tuple[bytes, ...] = ()) -> Coding:
    """Return how the packets of a stream are decoded. Raises av.FFmpegError."""
    context = stream.codec_context
    container = av.open(io.BytesIO(), "w", format="null")  # takes every codec, and is never written
    template = container.add_stream_from_template(stream, opaque=True)
    size, extradata = (context.width, context.height), bytes(context.extradata or b"")
    return Coding(context.codec.canonical_name, size, context.pix_fmt, extradata, units, aspect_of(stream), template)


def parameter_units(codec: str, data: bytes) -> tuple[bytes, ...]:
    """Return the parameter sets of a key frame, of a stream whose units begin with start codes."""
    if codec not in PARAMETERS or not data.startswith((b"\0\0\1", b"\0\0\0\1")):
        return ()
    type_of, wanted = PARAMETERS[codec]
    units = (unit.rstrip(b"\0") for unit in data[:PARAMETER_BYTES].split(b"\0\0\1"))
    return tuple(unit for unit in units if unit and type_of(unit[0]) in wanted)


def time_at(packets: list[Packet], arrival: float) -> int:
    """Return the time of the latest packet at `arrival`, in ticks; of the first packet if none had come."""
    return max((packet.dts for packet in packets if packet.arrival <= arrival), default=packets[0].dts)


class ClipFile:
    """An MP4 of packets from a key frame on, its time from 0; `write` packets as they come, then `close` it.

    Raises OSError if it cannot be written, else av.FFmpegError for unusable packets.
    """

    def __init__(self, path: Path, first: Packet):
        assert first.is_key
        coding = first.coding.declared(first.data)
        self.coding = first.coding
        self.size = 0  # bytes of packets
        self.newest = first.number - 1  # of the latest packet, written or skipped
        self.origin = self.end = first.pts  # on the ring's clock
        self._container = av.open(f"file:{path}", "w", format="mp4", options=MP4_OPTIONS)
        self._encoder: _Encoder | None = None
        try:
            if coding.template and coding.codec in MP4_CODECS:
                self._stream = self._container.add_stream_from_template(coding.template, opaque=True)
                self._stream.time_base = CLOCK
                if coding.codec in TAGS:
                    self._stream.codec_context.codec_tag = TAGS[coding.codec]
            else:
                self._encoder = _Encoder(self._container, coding)
        except BaseException:
            self.abandon()
            raise
        self._frame_size = coding.size

    @property
    def codec(self) -> str:
        """FFmpeg's name of the codec in the file."""
        return "h264" if self._encoder else self.coding.codec

    @property
    def frame_size(self) -> tuple[int, int]:
        """Width and height."""
        return self._encoder.size if self._encoder else self._frame_size

    @property
    def seconds(self) -> float:
        """Its length so far."""
        return (self.end - self.origin) / TICKS

    def write(self, packet: Packet) -> None:
        """Add a packet of the same coding; one that is shown before the first one is skipped."""
        self.newest = packet.number
        if packet.pts < self.origin:
            return
        copy = packet.to_av(self.origin)
        if self._encoder:
            self.size += self._encoder.write(copy)
        else:
            copy.stream = self._stream
            self._container.mux(copy)
            self.size += len(packet.data)
        self.end = max(self.end, packet.pts + packet.duration)

    def close(self) -> None:
        """Write its index."""
        try:
            if self._encoder:
                self._encoder.finish()
        except BaseException:
            self.abandon()
            raise
        self._container.close()

    def abandon(self) -> None:
        """Write no more; the file is unusable."""
        with suppress(OSError, av.FFmpegError):
            self._container.close()


class _Encoder:
    """Decodes packets and encodes them as H.264 into a container."""

    def __init__(self, container: av.container.OutputContainer, coding: Coding):
        self._container, self._decoder, self.size = container, coding.decoder(), coding.size
        self._reformatter = VideoReformatter()
        stream = container.add_stream("libx264", options=ENCODER)
        assert isinstance(stream, av.VideoStream)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.sample_aspect_ratio = coding.aspect
        stream.codec_context.time_base = stream.time_base = CLOCK
        stream.codec_context.thread_count = 1  # the other cores have detection to do
        self._stream, self._last = stream, -1

    def write(self, packet: av.Packet) -> int:
        """Return the bytes added; a packet that cannot be decoded adds none."""
        try:
            frames = self._decoder.decode(packet)
        except av.error.InvalidDataError:
            return 0
        return self._encode(frames)

    def finish(self) -> None:
        """Write the frames that decoder and encoder hold back."""
        self._encode(flush(self._decoder))
        self._mux(self._stream.encode(None))

    def _encode(self, frames: Iterable[av.VideoFrame]) -> int:
        added, stream = 0, self._stream
        for frame in frames:
            if frame.pts is None or frame.pts <= self._last:
                continue
            if self._last < 0:  # the encoder writes its header before the first frame
                # H.264 needs even sides
                self.size = stream.width, stream.height = max(2, frame.width & ~1), max(2, frame.height & ~1)
                stream.codec_context.color_range = ColorRange.MPEG
                stream.codec_context.colorspace = frame.colorspace
            copy = self._reformatter.reformat(frame, *self.size, "yuv420p", dst_color_range=ColorRange.MPEG, threads=1)
            copy.pts, copy.time_base, copy.pict_type = frame.pts, CLOCK, 0
            self._last = frame.pts
            added += self._mux(stream.encode(copy))
        return added

    def _mux(self, packets: list[av.Packet]) -> int:
        for packet in packets:
            self._container.mux(packet)
        return sum(packet.size for packet in packets)


def image_at(
    packets: list[Packet], at: int, long_side: int, patience: float, clock: Callable[[], float] = monotonic
) -> NDArray[np.uint8] | None:
    """Return (H, W, 3) RGB of the frame that is shown at a time in ticks; packets begin with a key frame.

    After `patience` seconds of decoding it is the latest one decoded; None if none could be. Raises av.FFmpegError.
    """
    wanted = [packet for packet in packets if packet.dts <= at] or packets[:1]
    keys = [place for place, packet in enumerate(wanted) if packet.is_key]
    if not keys:
        return None
    group = wanted[keys[-1] :]
    coding, until = group[0].coding, clock() + patience
    decoder, best = coding.decoder(), None

    def decoded() -> Iterator[av.VideoFrame]:
        for packet in group:
            if packet.pts >= group[0].pts:  # those shown before a key frame need packets before it
                with suppress(av.error.InvalidDataError):
                    yield from decoder.decode(packet.to_av())
            if clock() > until:
                break
        yield from flush(decoder)

    for frame in decoded():
        is_better = best is None or (best.pts or 0) < (frame.pts or 0) <= at
        best = frame if is_better else best
    if best is None:
        return None
    size = upright(working_size(best.width, best.height, long_side, coding.aspect), best.rotation)
    return render(best, size, VideoReformatter())


def flush(decoder: av.VideoCodecContext) -> list[av.VideoFrame]:
    """Return the frames that a decoder holds back."""
    try:
        return decoder.decode(None)
    except av.error.InvalidDataError:
        return []

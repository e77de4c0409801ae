"""The latest packets of a live source, bounded in bytes, and MP4 clips of them as they were received.

Nothing is decoded for a clip, except what MP4 cannot hold, which is encoded as H.264.
"""

import io
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from time import monotonic

import av
import numpy as np
from av.video.reformatter import ColorRange, VideoReformatter
from numpy.typing import NDArray

from lstr.extractors.video.containers import decode
from lstr.extractors.video.frames import GAP_SECONDS, working_size
from lstr.extractors.video.probe import aspect_of
from lstr.extractors.video.reader import render

TICKS = 90_000  # per second, as in MPEG-TS and RTP
CLOCK = Fraction(1, TICKS)
MAX_LEAD = 2 * TICKS  # a timestamp that is further ahead of its arrival belongs to another clock
OVERHEAD = 400  # bytes of a Packet object in addition to its data
# Parameter sets, which a decoder needs first: a function that returns the type of a unit, and their types.
PARAMETERS = {"h264": (lambda unit: unit & 31, (7, 8)), "hevc": (lambda unit: unit >> 1 & 63, (32, 33, 34))}
PARAMETER_BYTES = 4096  # the beginning of a key frame, which contains them
POINTERS = ("wrapped_avframe",)  # codecs with packets that only point to a frame, which is freed soon
KEYS_ONLY = ("mjpeg", "rawvideo")  # every frame is a key frame, even if the demuxer does not mark it
MP4_CODECS = ("h264", "hevc", "mpeg4", "av1", "vp9")  # codecs that players support in MP4
TAGS = {"hevc": "hvc1"}  # Apple's players show nothing without this tag
# The index comes first, so that a browser plays before the file is complete; FFmpeg writes it at the end.
MP4_OPTIONS = {"movflags": "faststart", "video_track_timescale": str(TICKS)}
ENCODER = {"preset": "superfast", "crf": "23", "g": "50"}


@dataclass(frozen=True)
class Coding:
    """Decoder settings of packets; packets in one file need equal codings. Remains valid after a connection ends."""

    codec: str  # FFmpeg's name
    size: tuple[int, int]
    pixels: str | None
    extradata: bytes  # for the decoder, before the first packet
    units: tuple[bytes, ...]  # parameter sets of the latest key frame; empty if it has none
    aspect: Fraction = field(compare=False)  # width of a sample over its height
    # Template for an output stream; None if the stream changed in a way that no container can describe.
    template: av.VideoStream | None = field(repr=False, compare=False)

    def decoder(self) -> av.VideoCodecContext:
        """Return a new decoder for its packets."""
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
        """Return the coding that the first key frame declares, if it differs from the header. Raises av.FFmpegError."""
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
    """A video packet; times are in ticks of one clock that never decreases, over all connections."""

    number: int  # index in its ring, in the order of arrival
    data: bytes
    pts: int
    dts: int
    duration: int
    is_key: bool
    arrival: float  # on the monotonic clock
    coding: Coding

    def to_av(self, origin: int = 0) -> av.Packet:
        """Convert it for PyAV, with times relative to `origin`."""
        packet = av.Packet(self.data)
        packet.pts, packet.dts, packet.duration = self.pts - origin, self.dts - origin, self.duration
        packet.time_base, packet.is_keyframe = CLOCK, self.is_key
        return packet


class PacketRing:
    """The latest packets of one source: at most `most_bytes`, and about `most_seconds`; thread-safe.

    The ring begins with a key frame, and drops its oldest group (a key frame with the packets before the next one) as a
    whole. A group that is larger than the ring is not kept. `take` is the PacketSink; it copies, and never waits for
    readers.
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
        self._last = (0, 0.0)  # decoding time and arrival of the latest packet

    def take(self, packet: av.Packet, stream: av.VideoStream, arrival: float) -> None:
        """Store a packet that arrived at `arrival`, in seconds of the monotonic clock.

        Raises ValueError if the stream's packets cannot be stored, or av.FFmpegError.
        """
        if not packet.size:  # PyAV marks the end of a connection by an empty packet
            return
        codec = stream.codec_context.codec.canonical_name
        if codec in POINTERS:
            raise ValueError(f"{codec} cannot be kept")
        data, is_key = bytes(packet), packet.is_keyframe or codec in KEYS_ONLY
        if stream is not self._stream:
            self._shift = None
        if is_key:
            has_new = packet.has_sidedata("new_extradata")  # RTMP sends new extradata with a packet
            extradata = bytes(packet.get_sidedata("new_extradata")) if has_new else b""
            units = parameter_units(codec, data)
            if extradata or stream is not self._stream or units not in ((), self._coding and self._coding.units):
                coding = coding_of(stream, units)
                if extradata and extradata != coding.extradata:
                    coding = replace(coding, extradata=extradata, template=None)
                # a new object also after an outage, so that no clip shows its last frame for as long as it lasted
                if coding != self._coding or arrival - self._last[1] > GAP_SECONDS:
                    self._coding = coding
            self._stream = stream
        if stream is not self._stream or self._coding is None:  # skip packets before the first key frame
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
            while self._groups and (
                self.size > self.most_bytes
                # the groups after the oldest one cover all the seconds
                or (len(self._groups) > 1 and dts - self._groups[1][0].dts >= self.most_seconds * TICKS)
            ):
                self.size -= sum(len(packet.data) + OVERHEAD for packet in self._groups.popleft())

    def since(self, arrival: float, seconds: float) -> list[Packet]:
        """Return packets from the key frame `seconds` before the latest one at `arrival`, or from the oldest packet."""
        packets = self.after(0)
        if not packets:
            return []
        begin = time_at(packets, arrival) - seconds * TICKS
        keys = [place for place, packet in enumerate(packets) if packet.is_key and packet.pts <= begin]
        return packets[keys[-1] if keys else 0 :]

    def after(self, number: int) -> list[Packet]:
        """Return the packets after a number; if the next packets are lost, start at a key frame."""
        with self._lock:
            groups = [group for group in self._groups if group[-1].number > number]
            return [packet for group in groups for packet in group if packet.number > number]

    def _times(self, packet: av.Packet, arrival: float) -> tuple[int, int]:
        """Return presentation and decoding time of a packet, by the stream's clock as long as that is plausible."""
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
    container = av.open(io.BytesIO(), "w", format="null")  # accepts every codec; nothing is written
    template = container.add_stream_from_template(stream, opaque=True)
    size, extradata = (context.width, context.height), bytes(context.extradata or b"")
    return Coding(context.codec.canonical_name, size, context.pix_fmt, extradata, units, aspect_of(stream), template)


def parameter_units(codec: str, data: bytes) -> tuple[bytes, ...]:
    """Return the parameter sets of a key frame in a stream with start codes (Annex B)."""
    if codec not in PARAMETERS or not data.startswith((b"\0\0\1", b"\0\0\0\1")):
        return ()
    type_of, wanted = PARAMETERS[codec]
    units = (unit.rstrip(b"\0") for unit in data[:PARAMETER_BYTES].split(b"\0\0\1"))
    return tuple(unit for unit in units if unit and type_of(unit[0]) in wanted)


def time_at(packets: list[Packet], arrival: float) -> int:
    """Return the time of the latest packet at `arrival`, in ticks; the first packet's time if none had arrived."""
    return max((packet.dts for packet in packets if packet.arrival <= arrival), default=packets[0].dts)


class ClipFile:
    """An MP4 file that starts with a key frame at time 0; `write` packets as they arrive, then `close` it.

    Raises OSError if the file cannot be written, and av.FFmpegError for unusable packets.
    """

    def __init__(self, path: Path, first: Packet):
        assert first.is_key
        coding = first.coding.declared(first.data)
        self.coding, self.codec = first.coding, coding.codec
        self.size = 0  # bytes of packets
        self.newest = first.number - 1  # number of the latest packet, written or skipped
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
                self._encoder, self.codec = _Encoder(self._container, coding), "h264"
        except BaseException:
            self.abandon()
            raise
        self._frame_size = coding.size

    @property
    def frame_size(self) -> tuple[int, int]:
        """Width and height."""
        return self._encoder.size if self._encoder else self._frame_size

    @property
    def seconds(self) -> float:
        """Its length so far."""
        return (self.end - self.origin) / TICKS

    def write(self, packet: Packet) -> None:
        """Add a packet of the same coding; a packet that is shown before the first one is skipped."""
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
        """Write the index and close the file."""
        try:
            if self._encoder:
                self._encoder.write(None)
        except BaseException:
            self.abandon()
            raise
        self._container.close()

    def abandon(self) -> None:
        """Close without an index; the file is unusable."""
        with suppress(OSError, av.FFmpegError):
            self._container.close()


class _Encoder:
    """A transcoder of packets to H.264 in a container."""

    def __init__(self, container: av.container.OutputContainer, coding: Coding):
        self._container, self._decoder, self.size = container, coding.decoder(), coding.size
        self._reformatter = VideoReformatter()
        stream = container.add_stream("libx264", options=ENCODER)
        assert isinstance(stream, av.VideoStream)
        stream.pix_fmt = "yuv420p"
        stream.codec_context.sample_aspect_ratio = coding.aspect
        stream.codec_context.time_base = stream.time_base = CLOCK
        stream.codec_context.thread_count = 1  # the other cores are needed for detection
        self._stream, self._last = stream, -1

    def write(self, packet: av.Packet | None) -> int:
        """Transcode a packet, or for None what decoder and encoder still buffer; return the number of bytes added."""
        stream = self._stream
        encoded: list[av.Packet] = []
        for frame in decode(self._decoder, packet):
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
            encoded += stream.encode(copy)
        if packet is None:
            encoded += stream.encode(None)
        for made in encoded:
            self._container.mux(made)
        return sum(made.size for made in encoded)


def image_at(
    packets: list[Packet], at: int, long_side: int, patience: float, clock: Callable[[], float] = monotonic
) -> NDArray[np.uint8] | None:
    """Return the frame that is shown at a time in ticks, as RGB (H, W, 3).

    Args:
        packets: Packets that begin with a key frame.
        at: The time in ticks.
        long_side: Maximum length of the longer side, in pixels.
        patience: Seconds of decoding after which the latest decoded frame is returned.
        clock: The clock for `patience`.

    Returns:
        The frame; None if no packet could be decoded.

    Raises:
        av.FFmpegError: The decoder fails.
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
            if packet.pts >= group[0].pts:  # frames shown before a key frame need packets before it
                yield from decode(decoder, packet.to_av())
            if clock() > until:
                break
        yield from decode(decoder, None)

    for frame in decoded():
        is_better = best is None or (best.pts or 0) < (frame.pts or 0) <= at
        best = frame if is_better else best
    if best is None:
        return None
    size = working_size(best.width, best.height, long_side, coding.aspect, best.rotation)
    return render(best, size, VideoReformatter())

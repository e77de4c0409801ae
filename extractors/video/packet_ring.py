"""The newest packets of a live source as they came, bounded in bytes: of these a clip is made without decoding."""

import io
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from fractions import Fraction

import av

from lstr.extractors.video.probe import aspect_of

# What is handed each packet of a source with its stream and its arrival, in seconds of the monotonic clock.
PacketSink = Callable[[av.Packet, av.VideoStream, float], None]

TICKS = 90_000  # a second; those of MPEG-TS and of RTP
JUMP = 2 * TICKS  # a stamp that is ahead of its arrival by more is of another clock
OVERHEAD = 400  # bytes that Python needs for a packet beside its data
# the types of the units of a stream that say how it is decoded, and where in a unit its type stands
PARAMETERS = {"h264": (lambda unit: unit & 31, (7, 8)), "hevc": (lambda unit: unit >> 1 & 63, (32, 33, 34))}
LOOKED = 4096  # bytes of a key frame in which they are
POINTERS = ("wrapped_avframe",)  # whose packets hold the address of a picture that goes away
KEYS_ALONE = ("mjpeg", "rawvideo")  # each picture by itself, whether a demuxer says so or not


@dataclass(frozen=True, eq=False)
class Coding:
    """How the packets of a stretch are decoded; it outlives their connection."""

    codec: str
    """By FFmpeg's name of the codec."""
    size: tuple[int, int]
    pixels: str | None
    extradata: bytes
    """What a decoder is told before the first packet."""
    units: tuple[bytes, ...]
    """The same as the newest key frame says it; empty where key frames do not."""
    aspect: Fraction
    """Width of a sample over its height."""
    template: av.VideoStream | None = field(repr=False)
    """What a container is told of it, of a container in memory that is never written; None where a stream has changed
    in a way that no container can be told of."""

    def is_as(self, other: "Coding") -> bool:
        """Whether packets of both may follow one another in one file."""
        names = ("codec", "size", "pixels", "extradata", "units")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def decoder(self) -> av.VideoCodecContext:
        """A decoder of its packets."""
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
        """Itself, or where its first key frame says other than the connection did, as that frame says.

        Raises av.FFmpegError.
        """
        if self.template is None or all(unit in self.extradata for unit in self.units):
            return self
        whole = io.BytesIO()
        with av.open(whole, "w", format="mpegts") as written:
            packet = av.Packet(first)
            packet.pts, packet.dts, packet.time_base, packet.is_keyframe = 0, 0, Fraction(1, TICKS), True
            packet.stream = written.add_stream_from_template(self.template, opaque=True)
            written.mux(packet)
        whole.seek(0)
        with av.open(whole, format="mpegts") as container:
            return coding_of(container.streams.video[0], self.units)


@dataclass(frozen=True, slots=True)
class Packet:
    """A packet of video; times in ticks of one clock that never falls, whatever the connections said."""

    number: int
    """Counts the packets of its ring, in the order of arrival."""
    data: bytes
    pts: int
    dts: int
    duration: int
    is_key: bool
    arrival: float
    """On the monotonic clock."""
    coding: Coding

    def to_av(self, origin: int = 0) -> av.Packet:
        """The same for PyAV, times counted from `origin`."""
        packet = av.Packet(self.data)
        packet.pts, packet.dts, packet.duration = self.pts - origin, self.dts - origin, self.duration
        packet.time_base, packet.is_keyframe = Fraction(1, TICKS), self.is_key
        return packet


@dataclass
class _Group:
    """A key frame and what follows it up to the next one."""

    packets: list[Packet]
    size: int = 0


class PacketRing:
    """The packets of one source: at most `most_bytes`, and no more than `most_seconds` need; from any thread.

    It begins with a key frame, and loses whole groups of pictures, the oldest first. A group that is larger than the
    ring is not kept. `take` is the PacketSink; it copies, and never waits for whoever reads.
    """

    def __init__(self, most_bytes: int, most_seconds: float):
        self.most_bytes, self.most_seconds = most_bytes, most_seconds
        self.size = 0
        """Bytes that it holds, with what Python needs for them."""
        self._groups: deque[_Group] = deque()
        self._lock = threading.Lock()
        self._stream: av.VideoStream | None = None
        self._coding: Coding | None = None
        self._number = 0
        self._shift: int | None = None  # from the stream's clock to the ring's; None where it is to be found
        self._last = (0, 0.0)  # the newest packet's time to decode it, and its arrival

    def take(self, packet: av.Packet, stream: av.VideoStream, arrival: float) -> None:
        """Keep a packet, which came at `arrival` in seconds of the monotonic clock.

        Raises ValueError for a stream whose packets cannot be kept, or av.FFmpegError.
        """
        if not packet.size:  # the end of a connection
            return
        codec = stream.codec_context.codec.canonical_name
        if codec in POINTERS:
            raise ValueError(f"{codec} cannot be kept")
        data, key = bytes(packet), packet.is_keyframe or codec in KEYS_ALONE
        if stream is not self._stream:
            self._shift = None
        if key:
            self._renew_coding(stream, data, changed_extradata(packet))
        if stream is self._stream:  # which begins for the ring with its first key frame
            self._append(packet, data, key, arrival)

    def since(self, arrival: float, seconds: float) -> list[Packet]:
        """From the key frame that is `seconds` before what had come at `arrival`, or from the oldest one."""
        with self._lock:
            packets = [packet for group in self._groups for packet in group.packets]
        if not packets:
            return []
        begin = time_at(packets, arrival) - seconds * TICKS
        keys = [place for place, packet in enumerate(packets) if packet.is_key and packet.pts <= begin]
        return packets[keys[-1] if keys else 0 :]

    def after(self, number: int) -> list[Packet]:
        """What came after a packet; from a key frame on where what followed it is lost."""
        with self._lock:
            groups = [group.packets for group in self._groups if group.packets[-1].number > number]
            return [packet for packets in groups for packet in packets if packet.number > number]

    def _renew_coding(self, stream: av.VideoStream, data: bytes, changed: bytes) -> None:
        """Take note of how packets are decoded from a key frame on, where that is not as before."""
        units = parameter_units(stream.codec_context.codec.canonical_name, data)
        if self._coding and stream is self._stream and units in ((), self._coding.units) and not changed:
            return
        fresh = coding_of(stream, units)
        if changed and changed != fresh.extradata:
            fresh = replace(fresh, extradata=changed, template=None)
        if self._coding is None or not self._coding.is_as(fresh):
            self._coding = fresh
        self._stream = stream

    def _append(self, packet: av.Packet, data: bytes, key: bool, arrival: float) -> None:
        assert self._coding
        pts, dts = self._times(packet, arrival)
        base = packet.time_base or Fraction(1, TICKS)
        duration = round((packet.duration or 0) * base * TICKS)
        with self._lock:
            self._number += 1
            if not key and not self._groups:
                return
            kept = Packet(self._number, data, pts, dts, duration, key, arrival, self._coding)
            if key:
                self._groups.append(_Group([]))
            group, size = self._groups[-1], len(data) + OVERHEAD
            group.packets.append(kept)
            group.size += size
            self.size += size
            while self._groups and (self.size > self.most_bytes or self._oldest_is_over(dts)):
                self.size -= self._groups.popleft().size

    def _oldest_is_over(self, now: int) -> bool:
        """Whether the groups after the oldest one hold all the seconds."""
        return len(self._groups) > 1 and now - self._groups[1].packets[0].dts >= self.most_seconds * TICKS

    def _times(self, packet: av.Packet, arrival: float) -> tuple[int, int]:
        """When a packet is shown and decoded on the ring's clock, which follows the stream's while that goes on."""
        stamp = packet.pts if packet.dts is None else packet.dts
        base = packet.time_base or Fraction(1, TICKS)
        last, before = self._last
        elapsed = max(1, round((arrival - before) * TICKS))
        dts = last + elapsed if self._number else 0
        pts = dts
        if stamp is None:
            self._shift = None
        else:
            own = round(stamp * base * TICKS)
            if self._shift is not None and 0 < own + self._shift - last <= elapsed + JUMP:
                dts = own + self._shift
            self._shift = dts - own
            shown = stamp if packet.pts is None else packet.pts
            pts = min(max(dts, round(shown * base * TICKS) + self._shift), dts + JUMP)
        self._last = (dts, arrival)
        return pts, dts


def coding_of(stream: av.VideoStream, units: tuple[bytes, ...] = ()) -> Coding:
    """How the packets of a stream are decoded. Raises av.FFmpegError."""
    context = stream.codec_context
    held = av.open(io.BytesIO(), "w", format="null")  # of all codecs, and never written
    template = held.add_stream_from_template(stream, opaque=True)
    return Coding(
        context.codec.canonical_name,
        (context.width, context.height),
        context.pix_fmt,
        bytes(context.extradata or b""),
        units,
        aspect_of(stream),
        template,
    )


def changed_extradata(packet: av.Packet) -> bytes:
    """What a decoder is told anew before a packet, as RTMP does; empty where it is not."""
    return bytes(packet.get_sidedata("new_extradata")) if packet.has_sidedata("new_extradata") else b""


def parameter_units(codec: str, data: bytes) -> tuple[bytes, ...]:
    """The units of a key frame that say how it is decoded, of a stream whose units begin with start codes."""
    if codec not in PARAMETERS or not data.startswith((b"\0\0\1", b"\0\0\0\1")):
        return ()
    type_of, wanted = PARAMETERS[codec]
    units = (unit.rstrip(b"\0") for unit in data[:LOOKED].split(b"\0\0\1"))
    return tuple(unit for unit in units if unit and type_of(unit[0]) in wanted)


def time_at(packets: list[Packet], arrival: float) -> int:
    """When what had come at `arrival` is shown, in ticks; of the first packet where nothing had."""
    come = [packet.dts for packet in packets if packet.arrival <= arrival]
    return come[-1] if come else packets[0].dts


def shown_first(packets: list[Packet]) -> Iterator[Packet]:
    """Packets from a key frame on, without those that are shown before it: they need what came before it."""
    first = packets[0].pts if packets else 0
    return (packet for packet in packets if packet.pts >= first)

"""Containers of video: opened so that FFmpeg reads nothing else, and MP4 that comes through a pipe.

FFmpeg follows what a file names, whatever the file is called: a playlist its segments, a concat script its parts, an
SDP description its host. So a file may read itself alone, a pipe nothing, and an address only what its network protocol
needs; and what is opened must be a container of video. Frames of more than MOST_PIXELS are never allocated. The index
of an MP4 from a pipe may be at its end: then nothing can be decoded before all of it has come.
"""

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import BinaryIO, Protocol

import av
from av.codec.hwaccel import HWAccel

from lstr.errors import VideoError
from lstr.files.names import shown

MOST_PIXELS = 2**26  # 8K is 2**25; a header that declares more is a bomb, not a video
LIMITS = {"max_pixels": str(MOST_PIXELS)}  # of a decoder, whose stream may declare more than its container

# by the names of FFmpeg's demuxers; none of these opens anything but its own bytes
VIDEO = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,live_flv,asf,ogg,mxf,nut,wtv,rm,ivf,dv,gxf,"
    "h264,hevc,av1,obu,vvc,m4v,h261,h263,vc1,vc1test,cavsvideo,dirac,mjpeg,gif,apng,yuv4mpegpipe,amv,nuv,nsv,dhav,"
    "vivo,pva,ty,smk,bink,film_cpk,roq,flic"
)
SOUND = "wav,w64,mp3,flac,aac,aiff"  # which are then told that they have no pictures
WEB = "http,https,httpproxy,tcp,tls,crypto"
CAMERA = f"rtp,srtp,udp,{WEB}"
NETWORK = {  # scheme of an address: the protocols it may use, and its demuxers besides VIDEO
    "http": (WEB, "hls,mpjpeg"),
    "https": (WEB, "hls,mpjpeg"),
    "rtsp": (CAMERA, "rtsp"),
    "rtsps": (CAMERA, "rtsp"),
    "rtmp": ("rtmp,tcp", ""),
    "rtmps": ("rtmps,tls,tcp", ""),
    "srt": ("srt", ""),
    "udp": ("udp", ""),
    "tcp": ("tcp", ""),
}


class Readable(Protocol):
    """A binary file object, of which FFmpeg needs no more than this."""

    def read(self, size: int, /) -> bytes:
        """At most `size` bytes; none at the end."""
        ...


# A path, an address (a string with ://), or a binary file object.
Source = str | Path | Readable


@dataclass(frozen=True)
class Opening:
    """How FFmpeg opens a source."""

    options: Mapping[str, str] = field(default_factory=dict)
    demuxer: str | None = None
    """None where FFmpeg looks for itself."""
    timeout: float | tuple[float, float] | None = None
    """Seconds to open and seconds to read, or one number for both."""
    hardware: str | None = None
    """What decodes beside the processor, by FFmpeg's name (`cuda` is NVDEC); the processor does what it cannot."""


PLAIN = Opening()


def open_container(source: Source, opening: Opening = PLAIN) -> av.container.InputContainer:
    """Open a source for reading.

    Raises VideoError for an address of another kind and for what is no container of video, such as a playlist, else
    what PyAV raises.
    """
    scheme = source.partition("://")[0].lower() if isinstance(source, str) and "://" in source else ""
    if scheme and scheme not in NETWORK:
        known = ", ".join(f"{name}://" for name in NETWORK)
        raise VideoError(f"{shown(source)} is not an address that is read here.", f"name a path, or one with {known}.")
    opened: str | Readable
    if scheme:
        (protocols, more), opened = NETWORK[scheme], str(source)
    elif isinstance(source, str | Path):
        # FFmpeg may take a bare name for one with a protocol, as concat:a|b and a:b.mp4
        protocols, more, opened = "file", "", str(source) if opening.demuxer else f"file:{source}"
    else:
        protocols, more, opened = "none", "", source
    formats = ",".join(filter(None, (VIDEO, SOUND, more, opening.demuxer)))
    options = {**opening.options, "protocol_whitelist": protocols, "format_whitelist": formats, **LIMITS}
    hardware = HWAccel(opening.hardware, allow_software_fallback=True) if opening.hardware else None
    # some versions of torchvision have FFmpeg's threads call Python with their errors; one that frees a decoder there
    # waits for itself, and all other threads for it
    av.logging.set_level(None)
    open_with = partial(av.open, options=options, timeout=opening.timeout, hwaccel=hardware)
    try:
        return open_with(opened, "r", opening.demuxer, metadata_errors="ignore")
    except av.error.ArgumentError as error:  # FFmpeg's for a format or a protocol that is not on the list
        raise VideoError(
            f"{shown(source)} is not a video: it is another kind of file, or names others to open.",
            "name the video itself.",
        ) from error


def best_video(container: av.container.InputContainer, name: str) -> av.VideoStream:
    """The video stream that FFmpeg thinks best, cover pictures aside, ready to be decoded within LIMITS.

    Raises VideoError when there is none, when no decoder for it is there, or when its pictures are too large.
    """
    stream = container.streams.best("video")
    if not isinstance(stream, av.VideoStream) or (stream.disposition & av.stream.Disposition.attached_pic):
        raise VideoError(f"{name} has no video stream.", "name a file with pictures, not only sound.")
    if stream.codec_context is None:
        raise VideoError(
            f"{name} has a video stream of a codec that the FFmpeg inside PyAV does not know.",
            "convert it with an `ffmpeg` that plays it: `ffmpeg -i FILE -c:v libx264 converted.mp4`.",
        )
    width, height = stream.codec_context.width, stream.codec_context.height
    if width * height > MOST_PIXELS:
        raise VideoError(
            f"{name} declares frames of {width}×{height} pixels.", "scale it down with `ffmpeg -vf scale=1920:-2`."
        )
    stream.codec_context.options = LIMITS
    return stream


FIRST = (b"ftyp", b"wide", b"free", b"skip", b"mdat")  # what an MP4 or QuickTime file may begin with, its index aside
LOOKED = 2**20  # bytes in which the index is expected, unless the pictures come first
BLOCK = 2**20
MOST_KEPT = 8 * 2**30  # bytes of a temporary file
FASTSTART = "put its index first with `ffmpeg -i FILE -c copy -movflags +faststart NEW.mp4`"


class Looked:
    """A pipe of which `head` has been read already; `name` is for messages."""

    def __init__(self, name: str, head: bytes, read: Callable[[int], bytes]):
        self.name, self._head, self._read = name, head, read

    def read(self, size: int) -> bytes:
        """At most `size` bytes; none at the end."""
        if not self._head:
            return self._read(size)
        block, self._head = self._head[:size], self._head[size:]
        return block


def look(read: Callable[[int], bytes]) -> tuple[bytes, bool]:
    """The first bytes of a pipe, and whether they are of an MP4 whose pictures come before its index."""
    head, at = b"", 0
    while at <= LOOKED:
        while len(head) < at + 16:  # of a box: its size, its kind, and for a large one its size again
            block = read(at + 16 - len(head))
            if not block:
                return head, False
            head += block
        size, kind = struct.unpack_from(">I4s", head, at)
        if at == 0 and kind not in FIRST:
            return head, False
        if kind == b"mdat":
            return head, True
        if kind in (b"moov", b"moof"):
            return head, False
        at += max(struct.unpack_from(">Q", head, at + 8)[0], 16) if size == 1 else max(size, 8)
    return head, False


def keep(head: bytes, read: Callable[[int], bytes], name: str) -> BinaryIO:
    """All that comes, in a temporary file that goes away with the object.

    Raises VideoError where it is more than MOST_KEPT, or finds no room.
    """
    file = TemporaryFile(prefix="lstr-")
    block = head
    try:
        while block:
            if file.tell() + len(block) > MOST_KEPT:
                raise VideoError(
                    f"{name} is an MP4 with its index at the end, and too large to keep ({MOST_KEPT / 2**30:g} GiB).",
                    f"name the file instead of piping it, or {FASTSTART}.",
                )
            file.write(block)
            block = read(BLOCK)
        file.seek(0)
    except OSError as error:
        file.close()
        raise VideoError(
            f"{name} is an MP4 with its index at the end, and cannot be kept ({error.strerror or error}).",
            f"set TMPDIR to a folder with room, name the file instead of piping it, or {FASTSTART}.",
        ) from error
    except BaseException:
        file.close()
        raise
    return file

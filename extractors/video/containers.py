"""Open video containers safely, and read MP4 from a pipe.

FFmpeg opens other files and hosts that a file refers to, independent of the file's name: the segments of a playlist,
the parts of a concat script, the host of an SDP description. Therefore a file may open only itself, a pipe nothing, and
a URL only what its network protocol needs, and only video containers are accepted. Frames of more than MOST_PIXELS are
never allocated. If the index of an MP4 from a pipe is at its end, nothing can be decoded before the whole file has
arrived.
"""

import math
import os
import select
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryFile
from time import monotonic
from typing import BinaryIO, TypeAlias

import av

from lstr.errors import VideoError
from lstr.files.names import shown

MOST_PIXELS = 2**26  # 8K has 2**25; a larger declared size is an attempt to exhaust the memory
LIMITS = {"max_pixels": str(MOST_PIXELS)}  # for decoders, because a stream may declare more than its container
# FFmpeg's demuxers that open no other files
VIDEO = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,live_flv,asf,ogg,mxf,nut,wtv,rm,ivf,dv,gxf,"
    "h264,hevc,av1,obu,vvc,m4v,h261,h263,vc1,vc1test,cavsvideo,dirac,mjpeg,gif,apng,yuv4mpegpipe,amv,nuv,nsv,dhav,"
    "vivo,pva,ty,smk,bink,film_cpk,roq,flic"
)
SOUND = "wav,w64,mp3,flac,aac,aiff"  # accepted so that the error says that the file has no video
WEB = "http,https,httpproxy,tcp,tls,crypto"
CAMERA = f"rtp,srtp,udp,{WEB}"
NETWORK = {  # allowed protocols by URL scheme, and additional demuxers
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

Source: TypeAlias = "str | Path | BinaryIO | Pipe"  # a path, a URL (a string with ://), or a binary file object


def open_container(
    source: Source, options: Mapping[str, str] | None = None, demuxer: str | None = None, timeout: float | None = None
) -> av.container.InputContainer:
    """Open a source for reading.

    Args:
        source: A path, a URL or a binary file object.
        options: FFmpeg's options.
        demuxer: FFmpeg's name of the format; None lets FFmpeg find it.
        timeout: Maximum seconds for opening and for each read.

    Raises:
        VideoError: The URL scheme is unknown, or the file is not a video container, for example a playlist. Errors of
            PyAV are passed on.
    """
    scheme = source.partition("://")[0].lower() if isinstance(source, str) and "://" in source else ""
    if scheme and scheme not in NETWORK:
        known = ", ".join(f"{name}://" for name in NETWORK)
        raise VideoError(f"{shown(source)} is not a supported address.", f"name a path, or one with {known}.")
    opened: str | BinaryIO | Pipe
    if scheme:
        (protocols, more), opened = NETWORK[scheme], str(source)
    elif isinstance(source, str | Path):
        # FFmpeg would take the beginning of a name such as concat:a|b or a:b.mp4 for a protocol
        protocols, more, opened = "file", "", str(source) if demuxer else f"file:{source}"
    else:
        protocols, more, opened = "none", "", source
    formats = ",".join(filter(None, (VIDEO, SOUND, more, demuxer)))
    limited = {**(options or {}), "protocol_whitelist": protocols, "format_whitelist": formats, **LIMITS}
    # With torchvision 0.21 to 0.25, FFmpeg's threads call Python to log errors. A thread that frees a decoder in that
    # call deadlocks with itself, and blocks all other threads.
    av.logging.set_level(None)
    try:
        return av.open(opened, "r", demuxer, options=limited, metadata_errors="ignore", timeout=timeout)
    except av.error.ArgumentError as error:  # FFmpeg raises it for formats and protocols that are not allowed
        raise VideoError(
            f"{shown(source)} is not a video: it is another kind of file, or a list of files.", "name the video itself."
        ) from error


def best_video(container: av.container.InputContainer, name: str) -> av.VideoStream:
    """Return the video stream that FFmpeg ranks best, except cover images, with a decoder that respects LIMITS.

    Raises VideoError if the container has no video stream, its decoder is missing, or its frames are too large.
    """
    stream = container.streams.best("video")
    if not isinstance(stream, av.VideoStream) or (stream.disposition & av.stream.Disposition.attached_pic):
        raise VideoError(f"{name} has no video stream.", "name a file with video, not only audio.")
    if stream.codec_context is None:
        raise VideoError(
            f"{name} has a video codec that the FFmpeg inside PyAV does not support.",
            "convert it with an `ffmpeg` that plays it: `ffmpeg -i FILE -c:v libx264 converted.mp4`.",
        )
    width, height = stream.codec_context.width, stream.codec_context.height
    if width * height > MOST_PIXELS:
        raise VideoError(
            f"{name} declares frames of {width}×{height} pixels.", "scale it down with `ffmpeg -vf scale=1920:-2`."
        )
    stream.codec_context.options = LIMITS
    return stream


def decode(decoder: av.VideoCodecContext, packet: av.Packet | None) -> list[av.VideoFrame]:
    """Return the frames of a packet, or for None those that the decoder still buffers; empty for a damaged packet."""
    try:
        return decoder.decode(packet)
    except av.error.InvalidDataError:
        return []


FIRST_BOXES = (b"ftyp", b"wide", b"free", b"skip", b"mdat")  # boxes of MP4 or QuickTime that may precede the index
INDEX_BYTES = 2**20  # the index is expected within these bytes, unless the frames come first
BLOCK = 2**20
MAX_COPY = 8 * 2**30  # bytes of a temporary file
TICK_S = 0.2  # how often a silent pipe checks whether it was stopped
FASTSTART = "put its index first with `ffmpeg -i FILE -c copy -movflags +faststart NEW.mp4`"


class Pipe:
    """An unbuffered pipe; `head` are bytes that have been read already and are returned first.

    A buffered file would block until it has all the bytes that FFmpeg requests. `read` raises `stalled` after
    `patience` seconds without data.
    """

    def __init__(self, file: BinaryIO, stalled: Exception, patience: float | None, stopped: Callable[[], bool]):
        self.name, self.head = shown(file), b""
        self._file, self._stalled, self._patience, self._stopped = file, stalled, patience, stopped

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes; empty at the end, or after a stop."""
        if self.head:
            block, self.head = self.head[:size], self.head[size:]
            return block
        deadline = monotonic() + (math.inf if self._patience is None else self._patience)
        while not select.select([self._file], [], [], TICK_S)[0]:
            if self._stopped():
                return b""
            if monotonic() > deadline:
                raise self._stalled
        return os.read(self._file.fileno(), size)


def look(read: Callable[[int], bytes]) -> tuple[bytes, bool]:
    """Return the first bytes of a pipe, and whether they belong to an MP4 with its index at the end."""
    head, at = b"", 0
    while at <= INDEX_BYTES:
        while len(head) < at + 16:  # header of a box: size, type, and for large boxes a 64-bit size
            block = read(at + 16 - len(head))
            if not block:
                return head, False
            head += block
        size, kind = struct.unpack_from(">I4s", head, at)
        if at == 0 and kind not in FIRST_BOXES:
            return head, False
        if kind == b"mdat":
            return head, True
        if kind in (b"moov", b"moof"):
            return head, False
        at += max(struct.unpack_from(">Q", head, at + 8)[0], 16) if size == 1 else max(size, 8)
    return head, False


def copy_whole(pipe: Pipe) -> BinaryIO:
    """Copy a pipe to a temporary file that is removed with the returned object.

    Raises VideoError for more than MAX_COPY bytes, and if the disk is full.
    """
    file = TemporaryFile(prefix="lstr-")
    try:
        while block := pipe.read(BLOCK):
            if file.tell() + len(block) > MAX_COPY:
                raise VideoError(
                    f"{pipe.name} is an MP4 with its index at the end, and is larger than {MAX_COPY / 2**30:g} GiB.",
                    f"name the file instead of piping it, or {FASTSTART}.",
                )
            file.write(block)
        file.seek(0)
    except BaseException as error:
        file.close()
        if not isinstance(error, OSError):
            raise
        raise VideoError(
            f"{pipe.name} is an MP4 with its index at the end, and cannot be copied ({error.strerror or error}).",
            f"set TMPDIR to a folder with room, name the file instead of piping it, or {FASTSTART}.",
        ) from error
    return file

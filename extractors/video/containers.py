"""Opening a video with FFmpeg so that it reads nothing else: no playlist, script or header leads anywhere.

FFmpeg follows what a file names, whatever the file is called: a playlist its segments, a concat script its parts, an
SDP description its host. So a file may read itself alone, a pipe nothing, and an address only what its network protocol
needs; and what is opened must be a container of video. Pictures of more than MOST_PIXELS are never allocated.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import av

from extractors.addresses import shown
from extractors.errors import VideoError

MOST_PIXELS = 2**26  # 8K is 2**25; a header that declares more is a bomb, not a video
LIMITS = {"max_pixels": str(MOST_PIXELS)}  # of a decoder, whose stream may declare more than its container

# by the names of FFmpeg's demuxers; none of these opens anything but the bytes it is given
VIDEO = (
    "mov,mp4,m4a,3gp,3g2,mj2,matroska,webm,avi,mpegts,mpeg,mpegvideo,flv,live_flv,asf,ogg,mxf,nut,wtv,rm,ivf,dv,gxf,"
    "h264,hevc,av1,obu,vvc,m4v,h261,h263,vc1,vc1test,cavsvideo,dirac,mjpeg,gif,apng,yuv4mpegpipe,amv,nuv,nsv,dhav,"
    "vivo,pva,ty,smk,bink,film_cpk,roq,flic"
)
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


def open_container(
    source: str | Path | BinaryIO, options: Mapping[str, str] | None = None, timeout=None, demuxer: str | None = None
) -> av.container.InputContainer:
    """Open a path, an address (a string with ://) or a binary file object for reading.

    `options`, `timeout` (seconds to open, seconds to read) and `demuxer` go to FFmpeg. Raises VideoError for an address
    of another kind and for what is no container of video, such as a playlist, else what PyAV raises.
    """
    scheme = scheme_of(source)
    if scheme and scheme not in NETWORK:
        known = ", ".join(f"{name}://" for name in NETWORK)
        raise VideoError(f"{shown(source)} is not an address that is read here.", f"give a path, or one with {known}.")
    if scheme:
        (protocols, more), opened = NETWORK[scheme], source
    elif isinstance(source, str | Path):
        # of a bare name FFmpeg may think that it says a protocol, as concat:a|b and a:b.mp4 do
        protocols, more, opened = "file", "", str(source) if demuxer else f"file:{source}"
    else:
        protocols, more, opened = "none", "", source
    formats = ",".join(filter(None, (VIDEO, more, demuxer)))
    held = {"protocol_whitelist": protocols, "format_whitelist": formats, **LIMITS}
    try:
        return av.open(
            opened, format=demuxer, metadata_errors="ignore", options={**(options or {}), **held}, timeout=timeout
        )
    except av.error.ArgumentError as error:  # what FFmpeg says of a format or a protocol that is not on the list
        raise VideoError(
            f"{shown(source)} is not a video: it is another kind of file, or names others to open.",
            "give the video itself.",
        ) from error


def scheme_of(source: object) -> str:
    """What an address begins with, in lower case; empty for everything else."""
    return source.partition("://")[0].lower() if isinstance(source, str) and "://" in source else ""


def best_video(container: av.container.InputContainer, name: str) -> av.VideoStream:
    """The video stream that FFmpeg thinks best, cover pictures aside, ready to be decoded within LIMITS.

    Raises VideoError when there is none, or when its pictures are too large.
    """
    stream = container.streams.best("video")
    if stream is None or (stream.disposition & av.stream.Disposition.attached_pic):
        raise VideoError(f"{name} has no video stream.", "give a file with pictures, not only sound.")
    width, height = stream.codec_context.width, stream.codec_context.height
    if width * height > MOST_PIXELS:
        raise VideoError(
            f"{name} says its frames are {width}×{height} pixels.", "scale it down with `ffmpeg -vf scale=1920:-2`."
        )
    stream.codec_context.options = LIMITS
    return stream

"""The file that a browser plays: the video itself, or a small H.264 copy next to the page; and how it is linked."""

import os
from contextlib import suppress
from fractions import Fraction
from pathlib import Path
from urllib.parse import quote

import av
import numpy as np
from av.video.stream import VideoStream

from lstr.errors import VideoError
from lstr.extractors.video.containers import open_container
from lstr.extractors.video.frames import FPS
from lstr.extractors.video.inputs import PROXY_SUFFIX
from lstr.extractors.video.probe import find_start, probe
from lstr.extractors.video.reader import FrameReader, resample
from lstr.files.atomic import replacing

LONG_SIDE = 640
QUALITY = {"crf": "26", "preset": "veryfast", "g": str(FPS)}  # one key frame per second, so that seeking is quick
FREE = ("vp9", "libvpx-vp9", "av1", "libdav1d", "libaom-av1")  # names of decoders
MP4 = ("h264", *FREE)
PLAYED = {".mp4": MP4, ".m4v": MP4, ".mov": MP4, ".webm": ("vp8", "libvpx", *FREE)}  # by every current browser
EIGHT_BIT = ("yuv420p", "yuvj420p")
MAX_UP = 3  # folders that a relative link climbs; beyond, an absolute one is likelier to survive a move


def is_playable(video: Path) -> bool:
    """Return whether browsers play a file: its container, its codec, and eight bits of 4:2:0.

    Raises OSError or av.error.FFmpegError if it cannot be read.
    """
    with open_container(video) as container:
        stream = container.streams.best("video")
        if not isinstance(stream, VideoStream):
            return False
        context = stream.codec_context
        return context.name in PLAYED.get(video.suffix.lower(), ()) and context.pix_fmt in EIGHT_BIT


def write_proxy(video: Path, folder: Path, name: str) -> Path:
    """Write FOLDER/NAME.lstr-proxy.mp4, unless it already exists for this very file; return its path.

    The copy is what the decisions were made on: frame k at k/24 s, the longer side at most 640 pixels, no sound.
    Raises VideoError if the video cannot be decoded, OutputError if the copy cannot be written.
    """
    path = folder / f"{name}{PROXY_SUFFIX}"
    status = video.stat()
    mark = f"lstr proxy {LONG_SIDE} {QUALITY['crf']}: {video.name}, {status.st_size} bytes, {status.st_mtime_ns}"
    with suppress(VideoError, OSError, ValueError):  # a damaged copy is replaced
        if path.exists():
            with open_container(path) as container:
                if container.metadata.get("comment") == mark:
                    return path
    # a damaged file was processed up to its damage, or not at all
    frames = resample(FrameReader(probe(video), allow_damaged=True).frames(LONG_SIDE))
    with replacing(path) as temporary:
        with av.open(str(temporary), "w", format="mp4", options={"movflags": "faststart"}) as container:
            container.metadata["comment"] = mark
            stream = None
            for shown in frames:
                height, width = (side - side % 2 for side in shown.image.shape[:2])  # 4:2:0 has no odd sides
                if stream is None:
                    stream = container.add_stream("libx264", rate=Fraction(FPS), options=QUALITY)
                    stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
                frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(shown.image[:height, :width]), format="rgb24")
                container.mux(stream.encode(frame))
            if stream is None:
                raise VideoError(f"{video} has no decodable frame.", "record or download the file again.")
            container.mux(stream.encode())
    return path


def find_playable(video: Path, folder: Path, name: str) -> Path | None:
    """Return the file that browsers play: the video, or a copy as of `write_proxy`; None if it cannot be read."""
    with suppress(VideoError, av.error.FFmpegError, OSError, ValueError):  # the page then says that it cannot be played
        return video if is_playable(video) else write_proxy(video, folder, name)
    return None


def find_ahead(video: Path, shown: Path) -> float:
    """Return the seconds by which a player's clock is ahead if the frames start after the sound; 0 for a copy."""
    try:
        return find_start(video) if shown == video else 0.0
    except VideoError:  # the page then says that it cannot be played
        return 0.0


def video_url(video: Path, folder: Path) -> str:
    """Return the address of a video for a page in `folder`: relative if it is near, so that both can move together."""
    video, folder = Path(os.path.abspath(video)), Path(os.path.abspath(folder))
    relative, shared = Path(os.path.relpath(video, folder)), Path(os.path.commonpath([video, folder]))
    climbs = relative.parts.count("..")
    if climbs > MAX_UP or (climbs and shared == Path(shared.anchor)):
        return video.as_uri()
    return quote(os.fsencode(relative.as_posix()))

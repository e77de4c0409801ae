"""What a browser can play: the video itself, or a small H.264 copy of it beside the page."""

from fractions import Fraction
from pathlib import Path

import av
import numpy as np
from av.video.stream import VideoStream

from lstr.errors import VideoError
from lstr.extractors.video.containers import open_container
from lstr.extractors.video.frames import FPS, resample
from lstr.extractors.video.inputs import PROXY_SUFFIX
from lstr.extractors.video.probe import probe
from lstr.extractors.video.reader import FrameReader
from lstr.files.atomic import replacing

LONG_SIDE = 640
QUALITY = {"crf": "26", "preset": "veryfast", "g": str(FPS)}  # one key frame per second, so that seeking is quick
FREE = ("vp9", "libvpx-vp9", "av1", "libdav1d", "libaom-av1")  # by the names of their decoders
MP4 = ("h264", *FREE)
PLAYED = {".mp4": MP4, ".m4v": MP4, ".mov": MP4, ".webm": ("vp8", "libvpx", *FREE)}  # what every current browser takes
EIGHT_BIT = ("yuv420p", "yuvj420p")


def is_playable(video: Path) -> bool:
    """Whether browsers play a file: its container, its codec, and eight bits of 4:2:0.

    Raises OSError or av.error.FFmpegError where it cannot be read.
    """
    with open_container(video) as container:
        stream = container.streams.best("video")
        if not isinstance(stream, VideoStream):
            return False
        context = stream.codec_context
        return context.name in PLAYED.get(video.suffix.lower(), ()) and context.pix_fmt in EIGHT_BIT


def write_proxy(video: Path, folder: Path, name: str) -> Path:
    """Write FOLDER/NAME.lstr-proxy.mp4, unless it already exists for this very file; returns its path.

    The copy is what the decisions were made on: frame k at k/24 s, the longer side at most 640 pixels, no sound.
    Raises VideoError where the video cannot be decoded, OutputError where the copy cannot be written.
    """
    path = folder / f"{name}{PROXY_SUFFIX}"
    status = video.stat()
    mark = f"lstr proxy {LONG_SIDE} {QUALITY['crf']}: {video.name}, {status.st_size} bytes, {status.st_mtime_ns}"
    if path.exists() and _mark_of(path) == mark:
        return path
    # a damaged file was watched up to its damage, or not at all
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
                raise VideoError(f"{video} holds no decodable frame.", "record or download the file again.")
            container.mux(stream.encode())
    return path


def _mark_of(path: Path) -> str | None:
    try:
        with open_container(path) as container:
            return container.metadata.get("comment")
    except (VideoError, OSError, ValueError):
        return None

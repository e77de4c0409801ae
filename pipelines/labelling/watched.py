"""The videos of a labels project as a page sees them: when their frames are, each frame, and a file that plays."""

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import av
import cv2
import numpy as np

from lstr.errors import ExtractorError
from lstr.extractors.video.file_reader import ExactFrames, index_frames
from lstr.extractors.video.probe import Video
from lstr.files.home import home
from lstr.pipelines.pages.proxy import is_playable, write_proxy

# Videos whose decoded frames are kept.
OPEN_AT_ONCE = 3
SHARPNESS = 92  # of a JPEG, in percent
LONGEST_SIDE = 4096


class Watched:
    """Videos by id; everything is made when it is first asked for, from any thread. Use it as a context manager."""

    def __init__(self, videos: Mapping[str, Path], copies: Path | None = None):
        self.videos = dict(videos)
        self._copies = copies or home() / "copies"
        self._lock = threading.Lock()
        self._indices: dict[str, Future[Video]] = {}
        self._frames: OrderedDict[str, ExactFrames] = OrderedDict()
        self._playing: dict[str, Future[Path | None]] = {}
        self._threads = ThreadPoolExecutor(2, "videos")

    def __enter__(self) -> "Watched":
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for frames in self._frames.values():
            frames.close()

    def index(self, video: str) -> Video:
        """When a video's frames are. Raises KeyError where there is no such video, as `index_frames`."""
        with self._lock:
            if video not in self._indices:
                self._indices[video] = self._threads.submit(index_frames, self.videos[video])
            future = self._indices[video]
        return future.result()

    def picture(self, video: str, number: int, long_side: int) -> bytes:
        """A frame as a JPEG. Raises KeyError, IndexError where there is no such frame, VideoError."""
        index = self.index(video)
        with self._lock:
            frames = self._frames.setdefault(video, ExactFrames(index))
            self._frames.move_to_end(video)
            closed = [self._frames.popitem(last=False)[1] for _ in range(len(self._frames) - OPEN_AT_ONCE)]
        for others in closed:
            others.close()
        image = frames.image(number, max(16, min(long_side, LONGEST_SIDE)))
        return np.asarray(cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, SHARPNESS])[1]).tobytes()

    def playing(self, video: str) -> Path | None:
        """The file that a browser plays: the video, or a copy of it; None until that is made, and where none can be.

        Raises KeyError where there is no such video.
        """
        with self._lock:
            path = self.videos[video]
            if video not in self._playing:
                self._playing[video] = self._threads.submit(self._playable, path)
            future = self._playing[video]
        return future.result() if future.done() else None

    def plays(self, video: str) -> str:
        """How a video is played: `video`, a `copy`, `soon`, or `never`. Raises KeyError."""
        path = self.playing(video)
        if path is None:
            return "never" if self._playing[video].done() else "soon"
        return "video" if path == self.videos[video] else "copy"

    def _playable(self, path: Path) -> Path | None:
        with suppress(ExtractorError, av.error.FFmpegError, OSError, ValueError):
            if is_playable(path):
                return path
            name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
            return write_proxy(path, self._copies, name)
        return None

"""The videos of a labels project for the page: the times of their frames, each frame, and a file that plays."""

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
from lstr.extractors.video.exact_frames import ExactFrames, index_frames
from lstr.extractors.video.probe import Video
from lstr.files.home import home
from lstr.pipelines.pages.proxy import is_playable, write_proxy

MAX_OPEN = 3  # videos whose decoded frames are kept
JPEG_QUALITY = 92  # percent
MIN_SIDE, MAX_SIDE = 16, 4096  # pixels


class Videos:
    """Videos by id; everything is computed when it is first asked for, from any thread. Use it as a context manager."""

    def __init__(self, paths: Mapping[str, Path]):
        self.paths = dict(paths)
        self._lock = threading.Lock()
        self._indices: dict[str, Future[Video]] = {}
        self._frames: OrderedDict[str, ExactFrames] = OrderedDict()
        self._playing: dict[str, Future[Path | None]] = {}
        self._threads = ThreadPoolExecutor(2, "videos")

    def __enter__(self) -> "Videos":
        return self

    def __exit__(self, *exception: object) -> None:
        self._threads.shutdown(wait=False, cancel_futures=True)
        for frames in self._frames.values():
            frames.close()

    def index(self, video: str) -> Video:
        """Return the times of a video's frames. Raises as `index_frames`."""
        with self._lock:
            if video not in self._indices:
                self._indices[video] = self._threads.submit(index_frames, self.paths[video])
            future = self._indices[video]
        return future.result()

    def jpeg(self, video: str, number: int, long_side: int) -> bytes:
        """Return a frame as JPEG. Raises IndexError if the frame does not exist, VideoError."""
        index = self.index(video)
        with self._lock:
            frames = self._frames.setdefault(video, ExactFrames(index))
            self._frames.move_to_end(video)
            closed = [self._frames.popitem(last=False)[1] for _ in range(len(self._frames) - MAX_OPEN)]
        for others in closed:
            others.close()
        image = frames.image(number, max(MIN_SIDE, min(long_side, MAX_SIDE)))
        return np.asarray(cv2.imencode(".jpg", image[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, JPEG_QUALITY])[1]).tobytes()

    def playable(self, video: str) -> tuple[str, Path | None]:
        """Return how a browser plays a video and the file: `video` or `copy`, or without a file `soon` or `never`."""
        path = self.paths[video]
        with self._lock:
            if video not in self._playing:
                self._playing[video] = self._threads.submit(_find_playable, path)
            future = self._playing[video]
        if not future.done():
            return "soon", None
        found = future.result()
        return ("never" if found is None else "video" if found == path else "copy"), found


def _find_playable(path: Path) -> Path | None:
    with suppress(ExtractorError, av.error.FFmpegError, OSError, ValueError):
        if is_playable(path):
            return path
        name = hashlib.sha256(str(path.absolute()).encode()).hexdigest()[:16]
        return write_proxy(path, home() / "copies", name)
    return None

"""The videos that labels belong to: which one a name means, how long they are, and how many frames a second has."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path, PurePath
from typing import Any

from lstr.extractors.video.inputs import VIDEO_SUFFIXES, find_videos, is_video_name
from lstr.labels.check import Footage
from lstr.pipelines.failures import left_out

RECIPE = "recipe.json"  # of a feature folder
# Folders in front of a video that can be part of its id.
DEEPEST = 8


def plain_id(name: str, present: Collection[str]) -> str:
    r"""Return the id of the video that a label file calls `name`.

    It is without the ending of a video file, and without folders in front that no id of `present` has. For a path of
    Windows it is the part after the last `\`, unless its folders are in `present`.
    """
    if name in present:
        return name

    def known_end(path: str) -> str:
        """Return the longest end of a path that is in `present`; empty if there is none."""
        parts = path.rsplit("/", DEEPEST)
        ends = ("/".join(parts[first:]) for first in range(len(parts)))
        return next((end for end in ends if end in present), "")

    plain = name.replace("\\", "/")
    suffix = PurePath(plain).suffix
    if suffix.lower() in VIDEO_SUFFIXES:
        if whole := known_end(plain):  # of two files that differ only in their endings
            return whole
        plain = plain.removesuffix(suffix)
    return known_end(plain) or (plain.rpartition("/")[2] if "\\" in name else plain)


def footage_at(video: Path) -> Footage | None:
    """Return what the header of a file states; None if it cannot be read or states no duration."""
    # Here, because reading labels alone needs no video stack.
    import av

    from lstr.extractors.video.containers import open_container

    with left_out(video), open_container(video) as container:
        stream = container.streams.best("video")
        if stream is None:
            return None
        rate = stream.average_rate or stream.guessed_rate
        seconds = float(stream.duration * stream.time_base) if stream.duration and stream.time_base else 0.0
        seconds = seconds or (container.duration or 0) / av.time_base
        return Footage(seconds, float(rate) if rate else None) if seconds > 0 else None
    return None


def videos_among(inputs: Sequence[str | Path]) -> dict[str, Path]:
    """Return the videos by id of files and folders; none if one of them is a feature folder or holds no video.

    Raises MissingPathError for two videos of one id.
    """
    paths = list(map(Path, inputs))
    folders = [path for path in paths if path.is_dir()]
    files = [path for path in paths if path.is_file() and is_video_name(path, VIDEO_SUFFIXES)]
    if len(folders) + len(files) < len(paths) or any((path / RECIPE).exists() for path in folders):
        return {}
    if not all(any(is_video_name(p, VIDEO_SUFFIXES) for p in path.rglob("*")) for path in folders):
        return {}
    return find_videos(paths)


def footage_of_files(videos: Mapping[str, Any]) -> dict[str, Footage]:
    """Return what files state by video id, without those that cannot be read or are on another machine."""
    found = {name: footage_at(path) for name, path in videos.items() if isinstance(path, Path)}
    return {name: footage for name, footage in found.items() if footage}


class Rates:
    """Frames per second of videos, by the name that a label file has for each. Files are read when asked for.

    Args:
        find: Returns the videos by id, with None for one whose file is not available. Such a video, and one that is
            not among them, has the rate of all others if they have the same one.
    """

    def __init__(self, find: Callable[[], Mapping[str, Any]]):
        self._find = find
        self._read: dict[str, Footage | None] = {}

    def __call__(self, name: str) -> float | None:
        """Return the rate of a video; None if it is unknown."""
        video_id = plain_id(name, self._videos)
        if self._videos.get(video_id) is not None:
            return self._rate(video_id)
        return self._common

    def seconds(self, name: str) -> float | None:
        """Return the length of a video; None if it is unknown. The mapping may hold seconds instead of a file."""
        video_id = plain_id(name, self._videos)
        video = self._videos.get(video_id)
        if isinstance(video, float):
            return video
        footage = self._footage(video_id)
        return footage.seconds if footage else None

    @cached_property
    def _videos(self) -> Mapping[str, Any]:
        return self._find()

    @cached_property
    def _common(self) -> float | None:
        rates = {self._rate(video_id) for video_id, video in self._videos.items() if video is not None}
        return rates.pop() if len(rates) == 1 else None

    def _footage(self, video_id: str) -> Footage | None:
        if video_id not in self._read:
            video = self._videos.get(video_id)
            self._read[video_id] = footage_at(video) if isinstance(video, Path) else None
        return self._read[video_id]

    def _rate(self, video_id: str) -> float | None:
        footage = self._footage(video_id)
        return footage.rate if footage else None

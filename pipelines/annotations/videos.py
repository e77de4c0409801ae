"""Videos of labels: find them by the names in label files, and read their durations and frame rates."""

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path, PurePath
from typing import Any
from unicodedata import normalize

from lstr.errors import VideoError
from lstr.extractors.video.inputs import VIDEO_SUFFIXES, find_videos, is_video_name
from lstr.labels.check import LATE_S, Footage
from lstr.pipelines.failures import skip_failure

RECIPE = "recipe.json"  # of a feature folder
# Maximum number of parent folders in an id.
DEEPEST = 8


def plain_id(name: str, present: Collection[str]) -> str:
    r"""Return the video id for a name in a label file.

    The suffix of a video file is removed, and so are leading folders that no id of `present` has. For a Windows path it
    is the part after the last `\`, unless its folders are in `present`.
    """
    if name in present:
        return name
    path = name.replace("\\", "/")
    suffix = PurePath(path).suffix
    plain = path.removesuffix(suffix) if suffix.lower() in VIDEO_SUFFIXES else path
    # macOS decomposes accents in names of files, and people type them composed
    composed = {} if path.isascii() else {normalize("NFC", video_id): video_id for video_id in present}
    # try the name with its suffix first: ids keep the suffixes of files that differ only in them
    for parts in (path.rsplit("/", DEEPEST), plain.rsplit("/", DEEPEST)):
        for first in range(len(parts)):
            if (end := "/".join(parts[first:])) in present:
                return end
            if (end := normalize("NFC", end)) in composed:
                return composed[end]
    return plain.rpartition("/")[2] if "\\" in name else plain


def footage_at(video: Path) -> Footage | None:
    """Return what the header of a file says; None if it cannot be read or has no duration."""
    # Imported here, because reading only labels needs no video stack.
    import av

    from lstr.extractors.video.containers import open_container
    from lstr.extractors.video.probe import container_start

    with skip_failure(video), open_container(video) as container:
        stream = container.streams.best("video")
        if stream is None:
            return None
        rate = stream.average_rate or stream.guessed_rate
        seconds = float(stream.duration * stream.time_base) if stream.duration and stream.time_base else 0.0
        seconds = seconds or (container.duration or 0) / av.time_base
        start = 0.0
        if stream.start_time is not None and stream.time_base:
            start = float(stream.start_time * stream.time_base - container_start(container))
        return (seconds, float(rate) if rate else None, round(start, 3)) if seconds > 0 else None
    return None


def late_frames(video: Path) -> float:
    """Return the seconds from the sound of a file, from which players count, to its frames; 0 if nearly none."""
    from lstr.extractors.video.probe import find_start

    with suppress(VideoError):
        return start if (start := find_start(video)) > LATE_S else 0.0
    return 0.0


def find_labelled_videos(inputs: Sequence[str | Path]) -> dict[str, Path]:
    """Return the videos of files and folders by id; empty if one of them is a feature folder or contains no video.

    Raises MissingPathError for two videos with the same id.
    """
    paths = list(map(Path, inputs))
    for path in paths:
        files = path.rglob("*") if path.is_dir() else [path] if path.is_file() else []
        if (path / RECIPE).exists() or not any(is_video_name(file) for file in files):
            return {}
    return find_videos(paths)


def footage_of_files(videos: Mapping[str, Any]) -> dict[str, Footage]:
    """Return what headers say by video id, without files that cannot be read and remote files."""
    found = {name: footage_at(path) for name, path in videos.items() if isinstance(path, Path)}
    return {name: footage for name, footage in found.items() if footage}


class Rates:
    """Frame rates of videos by their names in a label file. Files are read at the first request.

    Args:
        find: Returns the videos by id: a file, a function that returns the seconds, or None without a file. A video
            without a file, or one that is not in the mapping, has the rate of all others if these are equal.
    """

    def __init__(self, find: Callable[[], Mapping[str, Any]]):
        self._videos, self._footage_at = cache(find), cache(footage_at)

    def frame_rate(self, name: str) -> float | None:
        """Return the frame rate of a video; None if unknown."""
        videos = self._videos()
        video = videos.get(plain_id(name, videos))
        rates = {self._footage(other)[1] for other in (videos.values() if video is None else [video]) if other}
        return rates.pop() if len(rates) == 1 else None

    def seconds(self, name: str) -> float | None:
        """Return the length of a video in seconds; None if unknown."""
        video = self._videos().get(plain_id(name, self._videos()))
        return video() if callable(video) else self._footage(video)[0] or None

    def _footage(self, video: Any) -> Footage:
        return (self._footage_at(video) if isinstance(video, Path) else None) or (0.0, None, 0.0)

"""How long videos are and how many frames a second they have, from their headers alone."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from lstr.extractors.video.inputs import VIDEO_SUFFIXES, find_videos, is_video_name
from lstr.labels.units import Footage
from lstr.pipelines.annotations.ids import plain_id
from lstr.pipelines.failures import left_out

RECIPE = "recipe.json"  # of a feature folder


def footage_at(video: Path) -> Footage | None:
    """What a file states of itself; None where it cannot be read or states no duration."""
    # Here, because annotations alone need no video stack.
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
    """The videos by id that files and folders hold; none where one of them is a feature folder or holds none.

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
    """What the files by video id state of themselves; those that cannot be read, or are elsewhere, are left out."""
    found = {name: footage_at(path) for name, path in videos.items() if isinstance(path, Path)}
    return {name: footage for name, footage in found.items() if footage}


class Rates:
    """Frames a second of videos, by the name that a label file has for each; nothing is looked up before it is asked.

    find: the videos by id, None for one whose file is not at hand. Such a video, and one that is not among them, has
    the rate of all the others, where that is one.
    """

    def __init__(self, find: Callable[[], Mapping[str, Any]]):
        self._find = find
        self._found: dict[str, float | None] = {}

    def __call__(self, name: str) -> float | None:
        """The rate of a video; None where nobody knows it."""
        video_id = plain_id(name, self._videos)
        if self._videos.get(video_id) is not None:
            return self._rate(video_id)
        return self._common

    def seconds(self, name: str) -> float | None:
        """Return the length of a video, or None if it is unknown. The mapping may hold seconds instead of a file."""
        video = self._videos.get(plain_id(name, self._videos))
        if isinstance(video, float):
            return video
        return next((f.seconds for f in footage_of_files({"": video}).values()), None)

    @cached_property
    def _videos(self) -> Mapping[str, Any]:
        return self._find()

    @cached_property
    def _common(self) -> float | None:
        rates = {self._rate(video_id) for video_id, video in self._videos.items() if video is not None}
        return rates.pop() if len(rates) == 1 else None

    def _rate(self, video_id: str) -> float | None:
        if video_id not in self._found:
            self._found[video_id] = next(
                (f.rate for f in footage_of_files({"": self._videos[video_id]}).values()), None
            )
        return self._found[video_id]

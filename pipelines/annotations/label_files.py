"""Several label files as one: those of each day, and later corrections of some videos."""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

from lstr.chunk import CLOCK, Clock
from lstr.errors import few
from lstr.extractors.video.inputs import VIDEO_SUFFIXES, is_video_name
from lstr.labels.label_set import Labels, Note, VideoLabels
from lstr.pipelines.annotations.footage import RECIPE
from lstr.pipelines.annotations.formats import WORKBOOKS, readable_suffixes
from lstr.pipelines.annotations.label_file import is_label_file, read_label_file


def read_label_files(
    paths: Sequence[str | Path],
    roots: Sequence[str | Path] = (),
    dataset: str | None = None,
    lenient: bool = False,
    skip_missing: bool = False,
    present: Collection[str] = (),
    clock: Clock = CLOCK,
) -> Labels:
    """One label file, or several of any forms as one; else as `read_label_file`. Raises LabelsError."""
    read = [(str(path), read_label_file(path, roots, dataset, lenient, skip_missing, present, clock)) for path in paths]
    return read[0][1] if len(read) == 1 else joined(read)


def joined(read: Sequence[tuple[str, Labels]]) -> Labels:
    """Labels of several files, each with its name: of a video that is in several the last counts.

    Subset and duration, where it states none, stay as they were before; without any a video is for training.
    """
    videos: dict[str, VideoLabels] = {}
    origin: dict[str, str] = {}
    twice = []
    notes: dict[Note, None] = {}
    for path, labels in read:
        notes |= dict.fromkeys(Note(note.kind, f"{path}: {note.sentence}") for note in labels.notes)
        for name, video in labels.videos.items():
            if before := videos.get(name):
                twice.append(f"{name!r} in {origin[name]} and {path}")
                subset = video.subset if labels.has_subsets and video.subset else before.subset
                duration = before.duration if video.duration is None else video.duration
                video = replace(video, subset=subset, duration=duration)
            videos[name], origin[name] = video, path
    if twice:
        notes[Note("several files", f"of a video that is in several files the last counts: {few(twice)}")] = None
    return Labels(
        tuple(dict.fromkeys(name for _, labels in read for name in labels.classes)),
        videos,
        any(labels.has_subsets for _, labels in read),
        all(labels.lists_classes for _, labels in read),
        tuple(notes),
    )


def divide_paths(paths: Sequence[str], endings: Collection[str] = VIDEO_SUFFIXES) -> tuple[list[str], list[str]]:
    """The videos and the label files among paths, in their order.

    The last is of labels, where others are not and it is. endings: of videos in folders.
    """
    videos: list[str] = []
    labels: list[str] = []
    for at, path in enumerate(paths):
        is_last = at == len(paths) - 1 and not (labels and holds_videos(path, endings))
        if is_last or is_labels(path, endings):
            labels.append(path)
        else:
            videos.append(path)
    return videos, labels


def more_labels(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """The label files, folders of them included, and the features or videos among paths, in their order."""
    labels: list[str] = []
    others: list[str] = []
    for path in paths:
        if is_labels(path) and not _may_hold_features(Path(path)):
            labels.append(path)
        else:
            others.append(path)
    return labels, others


def _may_hold_features(path: Path) -> bool:
    """Whether a path is a folder with a recipe, or with arrays in its folders, which labels may be beside."""
    return path.is_dir() and ((path / RECIPE).exists() or any(path.glob("*/*.npy")))


def is_labels(path: str, endings: Collection[str] = VIDEO_SUFFIXES) -> bool:
    """Whether a path is of labels and of no video: a file by its name or its beginning, a folder by what it holds."""
    if "://" in path or not path:
        return False
    place = Path(path)
    if place.is_dir():
        return not holds_videos(path, endings) and is_label_file(place)
    return is_label_name(place, endings) or (place.is_file() and not _is_video(place, endings) and is_label_file(place))


def is_label_name(path: Path, endings: Collection[str] = VIDEO_SUFFIXES) -> bool:
    """Whether a file, which need not be there, has a name as label files have it, or as what they are exported from."""
    is_one = path.suffix.lower() in {*readable_suffixes(), *WORKBOOKS}
    return is_one and not _is_video(path, endings)


def holds_videos(path: str, endings: Collection[str] = VIDEO_SUFFIXES) -> bool:
    """Whether a path is a video, or a folder with some."""
    if "://" in path:
        return True
    if not Path(path).is_dir():
        return _is_video(Path(path), endings)
    return any(_is_video(Path(name), endings) for _, _, names in os.walk(path) for name in names)


def _is_video(path: Path, endings: Collection[str]) -> bool:
    return is_video_name(path, {*VIDEO_SUFFIXES, *endings})

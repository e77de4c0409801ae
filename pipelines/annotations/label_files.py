"""The labels of a data set, from files or folders of any format, as every `--labels` takes them."""

import os
import re
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from lstr.chunk import CLOCK, Clock
from lstr.errors import ExtractorError, LabelsError, few
from lstr.extractors.video.inputs import VIDEO_SUFFIXES, is_video_name
from lstr.labels.check import SEVERITIES, check
from lstr.labels.label_set import Labels, Note, VideoLabels, actions_of, labels_of, read_json, read_labels
from lstr.labels.perframe import INFO, is_data_info, read_data_info
from lstr.labels.video_ids import check_ids
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, File
from lstr.pipelines.annotations.formats import (
    WORKBOOKS,
    read_annotations,
    readable,
    readable_suffixes,
    recognise,
    refuse_workbook,
)
from lstr.pipelines.annotations.videos import RECIPE, Rates, plain_id


def read_label_file(
    path: str | Path,
    roots: Sequence[str | Path] = (),
    dataset: str | None = None,
    lenient: bool = False,
    skip_missing: bool = False,
    present: Collection[str] = (),
    clock: Clock = CLOCK,
) -> Labels:
    """Read labels of any format: ActivityNet JSON, a data_info.json, or another that `lstr labels convert` reads.

    Scores are dropped.

    Args:
        path: A file or a folder.
        roots: Where the targets of a data_info.json may be.
        dataset: Which data set of a data_info.json.
        lenient: Keep wrong segments, for `lstr.labels.check.check`.
        skip_missing: Skip videos of a data_info.json without targets.
        present: Ids of the available features or videos, by which an id with a folder or an ending is understood. If it
            maps them to files, their rates turn frame numbers into seconds.
        clock: That of the features, which the targets of a data_info.json must have.

    Raises LabelsError.
    """
    if not isinstance(path, str | Path):
        raise LabelsError(f"{path!r} is not the path of a label file.", "name a label file.")
    path = Path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):  # reading a FIFO would wait for a writer
        raise LabelsError(f"{path} is not a file on a disk, such as a pipe.", "write the labels to a file first.")
    info = path / INFO if (path / INFO).is_file() else path
    content = read_json(info) if info.suffix.lower() == ".json" and info.is_file() else {}
    if is_data_info(content):
        return read_data_info(info, content, [Path(root) for root in roots], dataset, skip_missing, clock=clock)
    if dataset is not None:
        raise LabelsError(f"{path} is not a data_info.json with data sets to choose from.", "omit dataset.")
    labels = with_plain_ids(_read(path, lenient, present), present)
    check_ids(labels.videos, str(path))
    return labels


def _read(path: Path, lenient: bool, present: Collection[str]) -> Labels:
    try:
        form = recognise(path) if path.is_file() else None
        if path.is_file() and form is None:
            refuse_workbook(path)
        if not path.exists() or (path.is_file() and form is None):
            return read_labels(path, lenient)
        if form and form.name == "activitynet" and "database" in File(path).json:
            return read_labels(path, lenient)  # which finds a video that is in it twice
        videos = present if isinstance(present, Mapping) else {}
        rates = Rates(lambda: videos)
        annotated = read_annotations(path, ConvertOptions(lenient=lenient, rate_of=rates, seconds_of=rates.seconds))
    except (LabelsError, ExtractorError) as error:
        hint = error.hint
        if found := re.search(r"--from(?: (\w+))?", hint):  # which only the conversion has
            command = f"lstr labels convert {shlex.quote(str(path))} -o labels.json"
            formats = "" if found[1] else f", where FORMAT is {', '.join(readable())}"
            hint = f"convert it first: `{command} --from {found[1] or 'FORMAT'}`{formats}."
        raise LabelsError(str(error), hint) from error
    # An ELAN file can have any name, such as that of the person who made it, and name its video inside.
    meant: dict[str, str] = {}
    for name, video in annotated.videos.items():
        media = plain_id(video.media, present) if video.media and plain_id(name, present) not in present else name
        if media != name and media in present and media not in annotated.videos and media not in meant.values():
            meant[name] = media
    annotated = replace(
        annotated,
        videos={meant.get(name, name): video for name, video in annotated.videos.items()},
        notes=(*annotated.notes, *_renaming_note(meant, "id of the media", "the video that its file names")),
    )
    return labels_from(annotated, str(path), lenient)


def _renaming_note(renamed: Mapping[str, str], kind: str, reason: str) -> list[Note]:
    """Return a note of videos that are taken under another id; none if there are none."""
    if not renamed:
        return []
    (old, new), *others = renamed.items()
    more = f", and {len(others)} more likewise" if others else ""
    return [Note(kind, f"{old!r} is taken as {new!r}{more}: {reason}")]


def labels_from(annotated: AnnotationSet, where: str, lenient: bool = False) -> Labels:
    """Return annotations as labels; `where` names them in messages. Raises LabelsError."""
    videos = {
        name: VideoLabels(video.subset or "", video.duration, video.segments)
        for name, video in annotated.without_scores().videos.items()
    }
    labels = labels_of(videos, annotated.classes, where, lenient)
    notes = (*labels.notes, *annotated.notes)
    if "scores" in annotated.held():
        notes += (Note("scores", "its segments have scores, as from a detector; they are taken as labels"),)
    return replace(labels, lists_classes=False, notes=notes)


def with_plain_ids(labels: Labels, present: Collection[str]) -> Labels:
    """Return labels with the ids of `plain_id`. An id is kept if it is present, or if two would become one."""
    plain = {name: plain_id(name, present) for name in labels.videos}
    counts = Counter(plain.values())
    renamed = {old: new for old, new in plain.items() if new != old and counts[new] == 1}
    videos = {renamed.get(name, name): video for name, video in labels.videos.items()}
    reason = "an id is the path in the folder without the ending"
    return replace(labels, videos=videos, notes=(*labels.notes, *_renaming_note(renamed, "id with ending", reason)))


def read_label_files(
    paths: Sequence[str | Path],
    roots: Sequence[str | Path] = (),
    dataset: str | None = None,
    lenient: bool = False,
    skip_missing: bool = False,
    present: Collection[str] = (),
    clock: Clock = CLOCK,
) -> Labels:
    """Read one label file, or several of any formats as one; arguments are those of `read_label_file`.

    Of a video in several files the last one counts. Subset and duration, if it states none, are those of earlier files;
    without any a video is for training. Raises LabelsError.
    """
    read = [(str(path), read_label_file(path, roots, dataset, lenient, skip_missing, present, clock)) for path in paths]
    if len(read) == 1:
        return read[0][1]
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


# Which paths of a command are labels


def divide_paths(paths: Sequence[str], endings: Collection[str] = VIDEO_SUFFIXES) -> tuple[list[str], list[str]]:
    """Return the videos and the label files among paths, in their order.

    The last path is labels if the others hold none, whatever its name. `endings` are those of videos in folders.
    """
    videos: list[str] = []
    labels: list[str] = []
    for at, path in enumerate(paths):
        is_last = at == len(paths) - 1 and not (labels and holds_videos(path, endings))
        (labels if is_last or is_labels(path, endings) else videos).append(path)
    return videos, labels


def more_labels(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the label files, folders of them included, and the features or videos among paths, in their order."""
    labels: list[str] = []
    others: list[str] = []
    for path in paths:
        folder = Path(path)
        # a folder with a recipe, or with arrays in its folders, is of features, even if labels are in it too
        has_features = folder.is_dir() and ((folder / RECIPE).exists() or any(folder.glob("*/*.npy")))
        (labels if is_labels(path) and not has_features else others).append(path)
    return labels, others


def is_labels(path: str, endings: Collection[str] = VIDEO_SUFFIXES) -> bool:
    """Return whether a path is labels: a file by its name or its beginning, a folder by its files."""
    if "://" in path or not path:
        return False
    place = Path(path)
    if place.is_dir():
        return not holds_videos(path, endings) and is_label_file(place)
    if is_video_name(place, {*VIDEO_SUFFIXES, *endings}):
        return False
    has_label_name = place.suffix.lower() in {*readable_suffixes(), *WORKBOOKS}
    return has_label_name or (place.is_file() and is_label_file(place))


def is_label_file(path: Path) -> bool:
    """Return whether a file or a folder looks like labels, by its name and beginning."""
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        return (path / INFO).is_file() or any(map(is_label_file, files))
    try:
        if path.suffix.lower() == ".json" and is_data_info(read_json(path)):
            return True
        return recognise(path) is not None
    except (LabelsError, ExtractorError):
        return False


def holds_videos(path: str, endings: Collection[str] = VIDEO_SUFFIXES) -> bool:
    """Return whether a path is an address, a video, or a folder with videos."""
    if "://" in path:
        return True
    suffixes = {*VIDEO_SUFFIXES, *endings}
    if not Path(path).is_dir():
        return is_video_name(Path(path), suffixes)
    return any(is_video_name(Path(name), suffixes) for _, _, names in os.walk(path) for name in names)


# Summaries


def describe_labels(path: Path) -> dict[str, Any]:
    """Return videos by subset, durations, segments and seconds per class, and how much `lstr labels check` finds.

    Wrong segments are counted as the file has them. Raises LabelsError.
    """
    labels = read_label_file(path, lenient=True, skip_missing=True)
    found = Counter(finding.severity for finding in check(labels))
    seconds = [video.duration for video in labels.videos.values() if video.duration is not None]
    durations: dict[str, float] = {"stated": len(seconds)}
    if seconds:
        durations |= {"seconds": sum(seconds), "shortest": min(seconds), "longest": max(seconds)}
    per_class = {}
    for label in dict.fromkeys((*actions_of(labels), *_labels_used(labels))):
        own = [(name, s) for name, video in labels.videos.items() for s in video.segments if s.label == label]
        total = round(sum(max(0.0, s.end - s.start) for _, s in own), 3)
        per_class[label] = {"segments": len(own), "seconds": total, "videos": len({name for name, _ in own})}
    return {
        "kind": "label file",
        **counts_of(labels),
        "subsets": dict(Counter(video.subset or "none" for video in labels.videos.values())),
        "has_subsets": labels.has_subsets,
        "durations": durations,
        "per_class": per_class,
        "findings": {f"{severity}s": found[severity] for severity in SEVERITIES},
    }


def _labels_used(labels: Labels) -> list[str]:
    return [segment.label for video in labels.videos.values() for segment in video.segments]


def counts_of(labels: Labels) -> dict[str, int]:
    """Return the number of videos, of segments, and of classes without background and ambiguous stretches."""
    return {
        "videos": len(labels.videos),
        "segments": len(_labels_used(labels)),
        "classes": len(actions_of(labels)),
    }

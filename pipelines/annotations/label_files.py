"""Read annotations of any format, and the labels of a data set from them, for every `--labels`."""

import os
import shlex
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

from lstr.chunk import CLOCK, Clock
from lstr.errors import ExtractorError, LabelsError, MissingPathError, few
from lstr.extractors.video.inputs import is_video_name
from lstr.labels.check import SEVERITIES, check
from lstr.labels.label_set import (
    BACKGROUND,
    Labels,
    Note,
    VideoLabels,
    actions_of,
    labels_of,
    read_activitynet,
    read_json,
    with_ambiguous,
    without_ambiguous,
)
from lstr.labels.perframe import INFO, is_data_info, read_data_info
from lstr.labels.segment import find_error
from lstr.labels.video_ids import check_ids
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import (
    DEFAULTS,
    ConvertOptions,
    File,
    Format,
    format_named,
    readable,
    readable_suffixes,
    recognise,
)
from lstr.pipelines.annotations.videos import RECIPE, Rates, plain_id
from lstr.pipelines.failures import describe_error

# Suffixes of workbooks of spreadsheet programs, which are rejected.
WORKBOOKS = (".xlsx", ".xlsm", ".xls", ".ods", ".numbers")


def read_annotations(
    path: Path, options: ConvertOptions = DEFAULTS, rates: Rates | None = None, lenient: bool = False
) -> AnnotationSet:
    """Read a file or a folder of annotations, in `options.source_format` or the recognised format.

    Args:
        path: The file or folder.
        options: How to read it.
        rates: The frame rates of the videos, for times in frames.
        lenient: Keep segments that start before 0 or end before their start, so that `lstr.labels.check.check` can
            report all of them.

    Raises:
        MissingPathError: `path` does not exist.
        LabelsError: A file cannot be read, or a segment is not valid.
    """
    chosen = format_named(options.source_format) if options.source_format else None
    files = [path]
    if path.is_dir():
        form = chosen if chosen and chosen.is_folder else recognise(path)
        if form and chosen in (None, form):
            found = {path: form}
        else:
            # hidden files are skipped: macOS writes one next to each file on foreign file systems
            files = sorted(p for p in path.rglob("*") if p.is_file() and not p.name.startswith("."))
            found = {p: known for p in files if (known := recognise(p)) and chosen in (None, known)}
    elif not path.exists():
        raise MissingPathError(f"{path} does not exist.", "check the path; `ls` its folder.")
    elif not path.is_file():  # reading a FIFO would block
        raise MissingPathError(f"{path} is not a regular file.", "write the labels to a file first.")
    else:
        form = chosen or recognise(path)
        found = {path: form} if form else {}
    timelines = format_named("json")
    if timelines in found.values():  # other files are copies: `lstr detect` writes the same actions in other formats
        found = {file: form for file, form in found.items() if form is timelines}
    names = sorted({form.name for form in found.values()})
    if len(names) > 1:
        raise LabelsError(
            f"{path} contains files of several formats: {', '.join(names)}.",
            f"choose one: `{_command(path, names[0])}`.",
        )
    if not found:
        if workbook := next((file for file in files if file.suffix.lower() in WORKBOOKS), None):
            raise LabelsError(
                f"{workbook} is a spreadsheet workbook, which cannot be read.",
                "save the sheet as CSV in UTF-8, with the columns video,start,end,label.",
            )
        raise LabelsError(
            f"{path} {'contains no file' if path.is_dir() else 'is not'} in a known label format.",
            "save the labels as CSV with the columns video,start,end,label, or name the format: "
            f"`{_command(path, 'FORMAT')}`, where FORMAT is {', '.join(readable())}.",
        )
    read = []
    for file, form in found.items():
        stem = next((file.name.removesuffix(s) for s in readable_suffixes() if file.name.endswith(s)), file.stem)
        video_id = stem if file == path else (file.relative_to(path).parent / stem).as_posix()
        read.append(_read_as(form, File(file, rates), video_id, options))
    annotated = reduce(AnnotationSet.merged, read)
    classes = dict.fromkeys(annotated.classes)
    for name, segment in () if lenient else annotated.segments:
        if error := find_error(segment, classes):
            raise LabelsError(f"{path}: Video {name!r}: {error[1]}", error[2])
    return annotated


def _read_as(form: Format, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
    """Read a file or a folder in a format. Raises LabelsError, with the path, for all failures."""
    path = file.path
    try:
        read = form.read(file, video_id, options).plausible()
        if (rate := options.frames) and not form.counts_frames:
            read = read.each_segment(lambda s: replace(s, start=s.start / rate, end=s.end / rate))
        notes = (*file.notes, *read.notes)
        if rate and "durations" in read.extras():
            notes += (Note("durations", "durations of videos are taken as seconds, and times as frame numbers"),)
        return replace(read, notes=notes, for_players=form.for_players)
    except LabelsError as error:
        text = str(error) if str(error).startswith(str(path)) else f"{path}: {error}"
        hint = error.hint.replace("convert FILE", f"convert {shlex.quote(str(path))}")
        raise LabelsError(text, hint) from error
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise LabelsError(
            f"{path} is not a valid file of the format {form.name} ({describe_error(error)}).",
            f"save it again with the tool that made it, or name its format: `{_command(path, 'FORMAT')}`.",
        ) from error


def _command(path: Path, form: str) -> str:
    return f"lstr labels convert {shlex.quote(str(path))} --from {form} -o labels.json"


def read_label_file(
    path: str | Path,
    roots: Sequence[str | Path] = (),
    dataset: str | None = None,
    lenient: bool = False,
    skip_missing: bool = False,
    present: Collection[str] = (),
    clock: Clock = CLOCK,
) -> Labels:
    """Read labels of any format: ActivityNet JSON, a data_info.json, or another format of `lstr labels convert`.

    Scores are dropped.

    Args:
        path: A file or a folder.
        roots: Folders to search for the targets of a data_info.json.
        dataset: Name of the data set in a data_info.json.
        lenient: Keep invalid segments, for `lstr.labels.check.check`.
        skip_missing: Skip videos of a data_info.json without targets.
        present: Ids of the available features or videos, to match ids with a folder or a suffix. A mapping to files
            also gives the frame rates for converting frame numbers to seconds.
        clock: The clock of the features, which the targets of a data_info.json must have.

    Raises:
        LabelsError: The labels cannot be read.
    """
    if not isinstance(path, str | Path):
        raise LabelsError(f"{path!r} is not the path of a label file.", "name a label file.")
    path = Path(path)
    info = path / INFO if (path / INFO).is_file() else path
    is_json = info.suffix.lower() == ".json" and info.is_file()
    content = read_json(info) if is_json or not info.exists() else {}
    if is_data_info(content):
        return read_data_info(info, content, [Path(root) for root in roots], dataset, skip_missing, clock=clock)
    if dataset is not None:
        raise LabelsError(f"{path} is not a data_info.json with data sets to choose from.", "omit dataset.")
    if path.is_file() and isinstance(content, dict) and "database" in content:
        labels = labels_of(*read_activitynet(content, str(path)), str(path), lenient)
    else:
        rates = Rates(lambda: present if isinstance(present, Mapping) else {})
        annotated = read_annotations(path, DEFAULTS, rates, lenient)
        labels = labels_of(annotated.without_scores().videos, annotated.classes, str(path), lenient)
        notes = (*labels.notes, *annotated.notes)
        if "scores" in annotated.extras():
            notes += (Note("scores", "segments have scores, as from a detector; they are taken as labels"),)
        labels = replace(labels, lists_classes=False, notes=notes)
        # An ELAN file can have any name, for example the annotator's, and contains the name of its video.
        renamed: dict[str, str] = {}
        for name, video in annotated.videos.items():
            media = plain_id(video.media, present) if video.media and plain_id(name, present) not in present else name
            if media != name and media in present and media not in annotated.videos and media not in renamed.values():
                renamed[name] = media
        labels = _with_ids(labels, renamed, "id of the media", "the video that its file names")
    labels = with_plain_ids(labels, present)
    check_ids(labels.videos, str(path))
    return labels


def with_plain_ids(labels: Labels, present: Collection[str]) -> Labels:
    """Replace ids by `plain_id`. An id is kept if it is present, or if two ids would become equal."""
    plain = {name: plain_id(name, present) for name in labels.videos}
    counts = Counter(plain.values())
    renamed = {old: new for old, new in plain.items() if new != old and counts[new] == 1}
    return _with_ids(labels, renamed, "id with ending", "an id is the path in the folder without the ending")


def _with_ids(labels: Labels, renamed: Mapping[str, str], kind: str, reason: str) -> Labels:
    """Return labels with new ids for some videos, and a note about them."""
    if not renamed:
        return labels
    (old, new), *others = renamed.items()
    more = f", and {len(others)} more likewise" if others else ""
    note = Note(kind, f"{old!r} is taken as {new!r}{more}: {reason}")
    videos = {renamed.get(name, name): video for name, video in labels.videos.items()}
    return replace(labels, videos=videos, notes=(*labels.notes, note))


def read_label_files(
    paths: Sequence[str | Path],
    roots: Sequence[str | Path] = (),
    dataset: str | None = None,
    lenient: bool = False,
    skip_missing: bool = False,
    present: Collection[str] = (),
    clock: Clock = CLOCK,
) -> Labels:
    """Read one or more label files of any formats as one; arguments are as for `read_label_file`.

    If a video is in several files, the last one counts. If the last one has no subset or duration, these come from
    earlier files; a video without a subset is for training. Raises LabelsError.
    """
    read = [(str(path), read_label_file(path, roots, dataset, lenient, skip_missing, present, clock)) for path in paths]
    if len(read) == 1:
        return read[0][1]
    videos: dict[str, VideoLabels] = {}
    origin: dict[str, str] = {}
    twice: list[str] = []
    notes: dict[Note, None] = {}
    for path, labels in read:
        earlier = ", unless an earlier file has their subset" if videos.keys() & labels.videos.keys() else ""
        for note in labels.notes:
            notes[Note(note.kind, f"{path}: {note.sentence}{earlier if note.kind == 'no subsets' else ''}")] = None
        for name, video in labels.videos.items():
            if before := videos.get(name):
                twice.append(f"{name!r} in {origin[name]} and {path}")
                subset = video.subset if labels.has_subsets and video.subset else before.subset
                duration = before.duration if video.duration is None else video.duration
                video = replace(video, subset=subset, duration=duration)
            videos[name], origin[name] = video, path
    if twice:
        sentence = f"videos that are in several files take the labels of the last file: {few(twice)}"
        notes[Note("several files", sentence)] = None
    unused = {s.label for _, labels in read for video in labels.videos.values() for s in video.segments}
    unused -= {BACKGROUND, *(s.label for video in videos.values() for s in video.segments)}  # only in replaced labels
    classes = dict.fromkeys(n for _, labels in read for n in labels.classes if labels.lists_classes or n not in unused)
    names = with_ambiguous(without_ambiguous(tuple(classes)), classes)
    has_subsets = any(labels.has_subsets for _, labels in read)
    return Labels(names, videos, has_subsets, all(labels.lists_classes for _, labels in read), tuple(notes))


# Separate the label files and the videos among the paths of a command.


def divide_paths(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the videos and the label files among paths, in their order.

    If no other path is a label file, the last path is taken as one.
    """
    videos: list[str] = []
    labels: list[str] = []
    for at, path in enumerate(paths):
        is_last = at == len(paths) - 1 and not (labels and holds_videos(path))
        (labels if is_last or is_labels(path) else videos).append(path)
    return videos, labels


def divide_labels(paths: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the label files (or folders of them), and the features or videos among paths, in their order."""
    labels: list[str] = []
    others: list[str] = []
    for path in paths:
        folder = Path(path)
        # a folder with a recipe, or with arrays in its subfolders, is a feature folder, even if it also contains labels
        has_features = folder.is_dir() and ((folder / RECIPE).exists() or any(folder.glob("*/*.npy")))
        (labels if is_labels(path) and not has_features else others).append(path)
    return labels, others


def is_labels(path: str) -> bool:
    """Return whether a path is a label file, by its name or its beginning, or a folder of label files."""
    if not path or holds_videos(path):
        return False
    place = Path(path)
    suffixes = {*WORKBOOKS, *(Path(f"x{suffix}").suffix for suffix in readable_suffixes())}
    has_label_name = not place.is_dir() and place.suffix.lower() in suffixes
    return has_label_name or (place.exists() and is_label_file(place))


def is_label_file(path: Path) -> bool:
    """Return whether a file or a folder looks like labels, judged by its name and beginning."""
    if path.is_dir():
        files = sorted(p for p in path.iterdir() if p.is_file() and not p.name.startswith("."))
        return (path / INFO).is_file() or any(map(is_label_file, files))
    try:
        if path.suffix.lower() == ".json" and is_data_info(read_json(path)):
            return True
        return recognise(path) is not None
    except (LabelsError, ExtractorError):
        return False


def holds_videos(path: str) -> bool:
    """Return whether a path is a URL, a video, or a folder with videos."""
    names = (name for _, _, names in os.walk(path) for name in names) if Path(path).is_dir() else [path]
    return "://" in path or any(is_video_name(Path(name)) for name in names)


# Summaries


def describe_labels(path: Path) -> dict[str, Any]:
    """Summarise labels: videos by subset, durations, segments and seconds per class, and the number of findings.

    Invalid segments are counted unchanged. Raises LabelsError.
    """
    labels = read_label_file(path, lenient=True, skip_missing=True)
    found = Counter(finding.severity for finding in check(labels))
    seconds = [video.duration for video in labels.videos.values() if video.duration is not None]
    durations: dict[str, float] = {"stated": len(seconds)}
    if seconds:
        durations |= {"seconds": sum(seconds), "shortest": min(seconds), "longest": max(seconds)}
    return {
        "kind": "label file",
        **count_labels(labels),
        "subsets": dict(Counter(video.subset or "none" for video in labels.videos.values())),
        "has_subsets": labels.has_subsets,
        "durations": durations,
        "per_class": count_classes(labels),
        "findings": {f"{severity}s": found[severity] for severity in SEVERITIES},
    }


def count_labels(labels: Labels) -> dict[str, int]:
    """Return the numbers of videos, segments, and classes without "Background" and "Ambiguous"."""
    segments = sum(len(video.segments) for video in labels.videos.values())
    return {"videos": len(labels.videos), "segments": segments, "classes": len(actions_of(labels.classes))}


def count_classes(labels: Labels) -> dict[str, dict[str, float]]:
    """Return the numbers of segments, seconds and videos of each class, with zeros for classes without segments."""
    segments = [(name, segment) for name, video in labels.videos.items() for segment in video.segments]
    counts = {}
    for label in dict.fromkeys((*actions_of(labels.classes), *(segment.label for _, segment in segments))):
        own = [(name, segment) for name, segment in segments if segment.label == label]
        total = round(sum(max(0.0, s.end - s.start) for _, s in own), 3)
        counts[label] = {"segments": len(own), "seconds": total, "videos": len({name for name, _ in own})}
    return counts

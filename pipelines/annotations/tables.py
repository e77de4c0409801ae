"""Tables of segments: CSV, TSV, Audacity label tracks, and the text files of THUMOS."""

import csv
import io
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from urllib.parse import quote, unquote

from lstr.labels import THUMOS_CLASSES
from pipelines.annotations.annotation import AnnotatedVideo, Annotation, AnnotationError, AnnotationSet, plain_line

COLUMNS = {
    "video": ("video", "video_id", "id", "file", "filename", "video-id"),
    "subset": ("subset", "split"),
    "duration": ("duration",),
    "start": ("start", "begin", "t-start", "start_time", "start (s)"),
    "end": ("end", "stop", "t-end", "end_time", "stop (s)"),
    "label": ("label", "class", "action", "behavior", "category"),
    "score": ("score", "confidence", "conf"),
}
"""Names a column may have; in milliseconds where `_ms` follows."""

SUBSETS = {"train": "training", "val": "validation", "test": "testing"}
"""Endings of THUMOS annotation files, and the subset they hold."""

THUMOS_NUMBERS = (7, 9, 12, 21, 22, 23, 24, 26, 31, 33, 36, 40, 45, 51, 68, 79, 85, 92, 93, 97)
"""Numbers of the 20 detection classes among the 101 of THUMOS'14 (its detclasslist.txt), in the order of
`THUMOS_CLASSES`."""
DETECTIONS = "detections.txt"
CLASS_LIST = "detclasslist.txt"
SEPARATORS = r"[%\s]"
"""What a video's name is percent-encoded for: white space stands between the cells of a line."""
FORBIDDEN = r"[%/\\\x00-\x1f]"
"""What a class's name is percent-encoded for in a file name."""


def to_csv(annotated: AnnotationSet) -> str:
    """A row a segment, times in seconds; a video without segments has one row, without a label."""
    return _table(annotated, ",", "", 1)


def to_tsv(annotated: AnnotationSet) -> str:
    """As `to_csv` with tabs and whole milliseconds, which every locale reads alike."""
    return _table(annotated, "\t", "_ms", 1000)


def _table(annotated: AnnotationSet, delimiter: str, suffix: str, scale: int) -> str:
    held = annotated.held()
    optional = [column for column in ("subset", "duration") if f"{column}s" in held]
    names = ["video", *optional, "start", "end", "label", "score"]
    out = io.StringIO()
    table = csv.writer(out, delimiter=delimiter, lineterminator="\n")
    table.writerow([name + suffix if name in ("duration", "start", "end") else name for name in names])
    for video_id, video in annotated.videos.items():
        whole = {"video": video_id, "subset": video.subset, "duration": _number(video.duration, scale)}
        for a in video.annotations:
            row = whole | {"start": _number(a.start, scale), "end": _number(a.end, scale), "label": a.label}
            table.writerow([(row | {"score": _number(a.score)}).get(name) for name in names])
        if not video.annotations:
            table.writerow([whole.get(name) for name in names])
    return out.getvalue()


def from_csv(text: str, name: str) -> AnnotationSet:
    """A table with a header, tabs or commas or semicolons between; `name` is the video's where no column says it.

    Raises AnnotationError.
    """
    first = text.lstrip("\ufeff").split("\n", 1)[0]
    delimiter = max("\t,;", key=first.count)
    rows = csv.reader(io.StringIO(text.lstrip("\ufeff"), newline=""), delimiter=delimiter)
    try:
        header = [cell.strip().lower() for cell in next(rows, [])]
        at, scales = {}, {}
        for column, names in COLUMNS.items():
            for i, cell in enumerate(header):
                if cell.removesuffix("_ms") in names and column not in at:
                    at[column], scales[column] = i, 1000 if cell.endswith("_ms") else 1
        missing = {"start", "end", "label"} - at.keys()
        if missing:
            raise AnnotationError(
                f"The table has no column {', '.join(sorted(missing))} (it has: {', '.join(header) or 'none'}).",
                "give it a first line such as: video,start,end,label",
            )
        found: dict[str, dict] = {}
        for line, cells in enumerate(rows, 2):
            row = {column: cells[i].strip() if i < len(cells) else "" for column, i in at.items()}
            if not any(row.values()):
                continue
            entry = found.setdefault(row.get("video") or name, {"annotations": []})
            if row.get("subset"):
                entry["subset"] = row["subset"]
            if row.get("duration"):
                entry["duration"] = _value(row["duration"], line) / scales["duration"]
            if row["label"]:
                start, end = (_value(row[key], line) / scales[key] for key in ("start", "end"))
                score = _value(row["score"], line) if row.get("score") else None
                entry["annotations"].append(Annotation(start, end, row["label"], score))
    except csv.Error as error:
        raise AnnotationError(f"The table cannot be read ({error}).", "save it again as CSV in UTF-8.") from error
    return AnnotationSet({video: AnnotatedVideo(**entry) for video, entry in found.items()})


def to_audacity(video: AnnotatedVideo) -> str:
    """A label track: start, end and label with tabs between, seconds."""
    return "".join(f"{_number(a.start)}\t{_number(a.end)}\t{plain_line(a.label)}\n" for a in video.annotations)


def from_audacity(text: str) -> AnnotatedVideo:
    r"""A label track; the lines of frequencies, which begin with \, are left out. Raises AnnotationError."""
    annotations = []
    for number, line in enumerate(text.lstrip("\ufeff").splitlines(), 1):
        if not line.strip() or line.startswith("\\"):
            continue
        start, end, label = (*line.split("\t", 2), "", "")[:3]
        annotations.append(Annotation(_value(start, number), _value(end, number), label.strip()))
    return AnnotatedVideo(tuple(annotations))


def thumos_numbers(classes: Iterable[str]) -> dict[str, int]:
    """The number of each class in detection files: THUMOS'14's own where all are of it, else 1, 2, …"""
    classes = tuple(classes)
    official = dict(zip(THUMOS_CLASSES[1:-1], THUMOS_NUMBERS, strict=True)) | {THUMOS_CLASSES[-1]: 102}
    if set(classes) <= official.keys():
        return {name: official[name] for name in classes}
    return {name: i for i, name in enumerate(classes, 1)}


def to_thumos_detections(annotated: AnnotationSet) -> str:
    """A detection file: video, start, end, class number, confidence; `to_thumos_class_list` names the numbers."""
    numbers = thumos_numbers(annotated.classes)
    lines = []
    for video_id, video in annotated.videos.items():
        for a in video.annotations:
            score = _number(1 if a.score is None else a.score)
            lines.append(f"{_times(video_id, a)} {numbers[a.label]} {score}\n")
    return "".join(lines)


def to_thumos_class_list(classes: Iterable[str]) -> str:
    """detclasslist.txt: number and name of each class."""
    return "".join(f"{number} {plain_line(name)}\n" for name, number in thumos_numbers(classes).items())


def to_thumos(annotated: AnnotationSet) -> dict[str, str]:
    """A folder in the form of THUMOS, {file name: text}.

    Annotations are a file a class and subset, `<class>_<train|val|test>.txt`, of video, start and end; where there
    are scores they are one detection file. Every class is in the class list. Raises AnnotationError where a video of
    an annotation file has another subset or none.
    """
    files = {CLASS_LIST: to_thumos_class_list(annotated.classes)}
    if "scores" in annotated.held():
        return files | {DETECTIONS: to_thumos_detections(annotated)}
    endings = {subset: ending for ending, subset in SUBSETS.items()}
    for video_id, video in annotated.videos.items():
        if video.annotations and video.subset not in endings:
            raise AnnotationError(
                f"The video {video_id!r} has the subset {video.subset}, and THUMOS has a file a subset.",
                "say which it is with --subset training, validation or testing.",
            )
        for a in video.annotations:
            name = f"{_escaped(a.label, FORBIDDEN)}_{endings[video.subset]}.txt"
            files[name] = files.get(name, "") + f"{_times(video_id, a)}\n"
    return files


def from_thumos(folder: Path, read: Mapping[Path, str]) -> AnnotationSet:
    """A folder, or one file, in the form of THUMOS, given as {path: text}. Raises AnnotationError."""
    names, found = {}, {}
    for text in (text for path, text in read.items() if path.name == CLASS_LIST):
        names = {int(number): name for number, name in re.findall(r"^(\d+)\s+(\S.*?)\s*$", text, re.MULTILINE)}
    for path, text in read.items():
        ending = re.fullmatch(r"(.+)_(train|val|test)", path.stem)
        if path.name == CLASS_LIST:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            cells = line.rsplit(None, 2 if ending else 4)
            if not cells:
                continue
            if len(cells) != (3 if ending else 5):
                raise AnnotationError(
                    f"{path}, line {number} is no line of THUMOS: {line!r}.",
                    "write `video start end` in CLASS_val.txt, or `video start end class confidence`.",
                )
            start, end = (_value(cell, number) for cell in cells[1:3])
            entry = found.setdefault(unquote(cells[0]), {"annotations": []})
            if ending:
                entry["subset"] = SUBSETS[ending[2]]
                entry["annotations"].append(Annotation(start, end, unquote(ending[1])))
                continue
            label = names.get(int(_value(cells[3], number)))
            if label is None:
                raise AnnotationError(
                    f"{path}, line {number}: no {CLASS_LIST} names the class {cells[3]}.",
                    f"put {CLASS_LIST} beside it.",
                )
            entry["annotations"].append(Annotation(start, end, label, _value(cells[4], number)))
    if not read:
        raise AnnotationError(f"{folder} holds no file of THUMOS.", "give a folder of CLASS_val.txt files.")
    return AnnotationSet({video: AnnotatedVideo(**entry) for video, entry in found.items()}, tuple(names.values()))


def _times(video_id: str, a: Annotation) -> str:
    return f"{_escaped(video_id, SEPARATORS)} {_number(a.start)} {_number(a.end)}"


def _escaped(text: str, characters: str) -> str:
    return re.sub(characters, lambda match: quote(match[0], safe=""), text)


def _number(value: float | None, scale: int = 1) -> str:
    """The shortest text that reads back as the same number; whole milliseconds for a scale of 1000."""
    if value is None:
        return ""
    return str(round(value * scale)) if scale != 1 else repr(float(value)).removesuffix(".0")


def _value(text: str, line: int) -> float:
    try:
        return float(text.strip().replace(",", "."))
    except ValueError as error:
        raise AnnotationError(
            f"Line {line}: {text!r} is no number.", "write times as seconds, such as 12.5."
        ) from error

"""The text files of THUMOS: annotations per class and subset, and detections."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

from lstr.errors import LabelsError, brief
from lstr.files.atomic import write_text
from lstr.labels.label_set import THUMOS_CLASSES
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet, plain_line
from lstr.pipelines.annotations.format import ConvertOptions, Detection, File, TextFormat
from lstr.pipelines.annotations.rows import first_line
from lstr.pipelines.annotations.tables import number_text
from lstr.pipelines.annotations.times import number_of

# Endings of THUMOS annotation files, and the subset they hold.
SUBSETS = {"train": "training", "val": "validation", "test": "testing"}

# Numbers of the 20 detection classes among the 101 of THUMOS'14 (its detclasslist.txt), in the order of
# `THUMOS_CLASSES`.
THUMOS_NUMBERS = (7, 9, 12, 21, 22, 23, 24, 26, 31, 33, 36, 40, 45, 51, 68, 79, 85, 92, 93, 97)
DETECTIONS = "detections.txt"
CLASS_LIST = "detclasslist.txt"
# How a line ends: in the times of an annotation, or in the class and the score of a detection.
LINE = re.compile(r"\S\s+[-+.\deE]+\s+[-+.\deE]+\s*$")
# What a video's name is percent-encoded for: white space stands between the cells of a line.
SEPARATORS = r"[%\s]"
# What a class's name is percent-encoded for in a file name.
FORBIDDEN = r"[%/\\\x00-\x1f]"


class Thumos(TextFormat):
    """A folder of annotations or of detections, or one of its files."""

    name, suffix = "thumos", ".thumos.txt"
    holds = frozenset({"subsets", "classes without segments"})
    holds_with_scores = frozenset({"scores", "classes without segments"})
    is_folder = True

    def recognises(self, file: File) -> bool:
        if file.ending != ".txt" or file.path.name == CLASS_LIST:
            return False
        line = first_line(file.text_and_notes[0])
        is_named = _is_of_a_subset(file.path) or file.path.name == DETECTIONS or file.path.name.endswith(self.suffix)
        return "\t" not in line and (is_named or bool(LINE.search(line)))

    def recognises_folder(self, folder: Path) -> bool:
        return any(map(_is_of_a_subset, _texts(folder)))

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        names = file.path.parent / CLASS_LIST
        return _read(file.path, [path for path in (file.path, names) if path.exists()])

    def read_folder(self, folder: Path, options: ConvertOptions) -> AnnotationSet:
        return _read(folder, _texts(folder))

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        return to_thumos_detections(annotated)

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> list[Path]:
        texts = to_thumos(annotated)
        for name, text in texts.items():
            write_text(output / name, text)
        return [output / name for name in texts]

    def write_detection(self, path: Path, detection: Detection) -> None:
        """The detections, and beside them the list of their classes."""
        super().write_detection(path, detection)
        write_text(path.parent / CLASS_LIST, to_thumos_class_list(detection.annotated.classes))


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
        for a in video.segments:
            score = number_text(1 if a.score is None else a.score)
            lines.append(f"{_times(video_id, a)} {numbers[a.label]} {score}\n")
    return "".join(lines)


def to_thumos_class_list(classes: Iterable[str]) -> str:
    """detclasslist.txt: number and name of each class."""
    return "".join(f"{number} {plain_line(name)}\n" for name, number in thumos_numbers(classes).items())


def to_thumos(annotated: AnnotationSet) -> dict[str, str]:
    """A folder in the form of THUMOS, {file name: text}.

    Annotations are one file per class and subset, `<class>_<train|val|test>.txt`, of video, start and end; where there
    are scores they are one detection file. Every class is in the class list. Raises LabelsError where a video of
    an annotation file has another subset or none.
    """
    files = {CLASS_LIST: to_thumos_class_list(annotated.classes)}
    if "scores" in annotated.held():
        return files | {DETECTIONS: to_thumos_detections(annotated)}
    endings = {subset: ending for ending, subset in SUBSETS.items()}
    for video_id, video in annotated.videos.items():
        ending = endings.get(video.subset or "")
        if video.segments and ending is None:
            raise LabelsError(
                f"The video {video_id!r} has the subset {video.subset}, and THUMOS has files for each subset.",
                "name it with --subset training, validation or testing.",
            )
        for a in video.segments:
            name = f"{_escaped(a.label, FORBIDDEN)}_{ending}.txt"
            files[name] = files.get(name, "") + f"{_times(video_id, a)}\n"
    return files


def from_thumos(folder: Path, read: Mapping[Path, str]) -> AnnotationSet:
    """A folder, or one file, in the form of THUMOS, as {path: text}. Raises LabelsError."""
    names: dict[int, str] = {}
    found: dict[str, dict[str, Any]] = {}
    for text in (text for path, text in read.items() if path.name == CLASS_LIST):
        names = {int(number): name.rstrip() for number, name in re.findall(r"^(\d+)\s+(\S.*)$", text, re.MULTILINE)}
    for path, text in read.items():
        ending = re.fullmatch(r"(.+)_(train|val|test)", path.stem)
        if path.name == CLASS_LIST:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            cells = line.rsplit(None, 2 if ending else 4)
            if not cells:
                continue
            if len(cells) != (3 if ending else 5):
                raise LabelsError(
                    f"{path}, line {number} is no line of THUMOS: {brief(line)}.",
                    "write `video start end` in CLASS_val.txt, or `video start end class confidence`.",
                )
            start, end = (number_of(cell, number) for cell in cells[1:3])
            entry = found.setdefault(unquote(cells[0]), {"segments": []})
            if ending:
                entry["subset"] = SUBSETS[ending[2]]
                entry["segments"].append(Segment(start, end, unquote(ending[1])))
                continue
            label = names.get(int(number_of(cells[3], number)))
            if label is None:
                raise LabelsError(
                    f"{path}, line {number}: no {CLASS_LIST} names the class {brief(cells[3])}.",
                    f"put {CLASS_LIST} beside it.",
                )
            entry["segments"].append(Segment(start, end, label, number_of(cells[4], number)))
    if not read:
        raise LabelsError(f"{folder} holds no file of THUMOS.", "give a folder of CLASS_val.txt files.")
    return AnnotationSet({video: AnnotatedVideo(**entry) for video, entry in found.items()}, tuple(names.values()))


def _read(place: Path, paths: Iterable[Path]) -> AnnotationSet:
    files = {path: File(path).text_and_notes for path in paths}
    read = from_thumos(place, {path: text for path, (text, _) in files.items()})
    return replace(read, notes=tuple(note for _, notes in files.values() for note in notes))


def _is_of_a_subset(path: Path) -> bool:
    return path.stem.endswith(tuple(f"_{ending}" for ending in SUBSETS))


def _texts(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.txt") if p.is_file() and not p.name.startswith("."))


def _times(video_id: str, a: Segment) -> str:
    return f"{_escaped(video_id, SEPARATORS)} {number_text(a.start)} {number_text(a.end)}"


def _escaped(text: str, characters: str) -> str:
    return re.sub(characters, lambda match: quote(match[0], safe=""), text)

"""The text files of THUMOS: annotations per class and subset, and detections."""

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from lstr.errors import LabelsError, brief
from lstr.files.atomic import write_text
from lstr.labels.label_set import THUMOS_CLASSES, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.csv_tables import number_text
from lstr.pipelines.annotations.format import ConvertOptions, Detection, File, Format
from lstr.pipelines.annotations.tables import first_line, number_of

# Suffixes of annotation files, and their subsets.
SUBSETS = {"train": "training", "val": "validation", "test": "testing"}
CLASS_FILE = re.compile(rf"(.+)_({'|'.join(SUBSETS)})")

# Numbers of the 20 detection classes among the 101 of THUMOS'14 (its detclasslist.txt), in the order of
# `THUMOS_CLASSES`.
THUMOS_NUMBERS = (7, 9, 12, 21, 22, 23, 24, 26, 31, 33, 36, 40, 45, 51, 68, 79, 85, 92, 93, 97)
DETECTIONS = "detections.txt"
CLASS_LIST = "detclasslist.txt"
CLASS_LINE = re.compile(r"^(\d+)\s+(\S.*)$", re.MULTILINE)
# End of a line: the times of an annotation, or the class and the score of a detection.
LINE = re.compile(r"\S\s+[-+.\deE]+\s+[-+.\deE]+\s*$")
# Characters to percent-encode in the name of a video, because white space separates the cells of a line.
SEPARATORS = r"[%\s]"
# Characters to percent-encode in a file name; a leading dot would make the file hidden, and hidden files are not read.
FORBIDDEN = r"^\.|[%/\\\x00-\x1f]"


class Thumos(Format):
    """A folder of annotations or detections, or one of its files."""

    name, suffix = "thumos", ".thumos.txt"
    holds = frozenset({"subsets", "classes without segments"})
    holds_with_scores = frozenset({"scores", "classes without segments"})
    is_folder = True

    def recognises(self, file: File) -> bool:
        if file.path.is_dir():
            return any(CLASS_FILE.fullmatch(path.stem) for path in _texts(file.path))
        name = file.path.name
        if file.ending != ".txt" or name == CLASS_LIST:
            return False
        line = first_line(file.text)
        is_named = CLASS_FILE.fullmatch(file.path.stem) or name == DETECTIONS or name.endswith(self.suffix)
        return "\t" not in line and bool(is_named or LINE.search(line))

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        if file.path.is_dir():
            parts = list(map(File, _texts(file.path)))
        else:
            class_list = File(file.path.parent / CLASS_LIST)
            parts = [file, class_list] if class_list.path.exists() else [file]
        read = {part.path: part.text for part in parts}
        file.notes += [note for part in parts if part is not file for note in part.notes]
        found: dict[str, dict[str, Any]] = {}
        names: dict[int, str] = {}
        for text in (text for path, text in read.items() if path.name == CLASS_LIST):
            names = {int(number): name.rstrip() for number, name in CLASS_LINE.findall(text)}
        for path, text in read.items():
            ending = CLASS_FILE.fullmatch(path.stem)
            if path.name == CLASS_LIST:
                continue
            for number, line in enumerate(text.splitlines(), 1):
                cells = line.rsplit(None, 2 if ending else 4)
                if not cells:
                    continue
                if len(cells) != (3 if ending else 5):
                    raise LabelsError(
                        f"{path}, line {number} does not have the THUMOS format: {brief(line)}.",
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
                        f"{path}, line {number}: the class {brief(cells[3])} is not in {CLASS_LIST}.",
                        f"add it, or put the right {CLASS_LIST} into the same folder.",
                    )
                entry["segments"].append(Segment(start, end, label, number_of(cells[4], number)))
        if not read:
            raise LabelsError(f"{file.path} contains no THUMOS file.", "use a folder of CLASS_val.txt files.")
        return AnnotationSet({video: VideoLabels(**entry) for video, entry in found.items()}, tuple(names.values()))

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        """Return the text of a detection file: video, start, end, class number and score."""
        numbers = thumos_numbers(annotated.classes)
        return "".join(
            f"{_times(video_id, s)} {numbers[s.label]} {number_text(1 if s.score is None else s.score)}\n"
            for video_id, video in annotated.videos.items()
            for s in video.segments
        )

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> list[Path]:
        """Write a file per class and subset, or one detection file if there are scores; and the class list.

        A line of `<class>_<train|val|test>.txt` has video, start and end.
        Raises LabelsError if a video has another subset or none, unless there are scores.
        """
        files = {CLASS_LIST: _class_list(annotated.classes)}
        if "scores" in annotated.extras():
            files[DETECTIONS] = self.text(annotated, options)
        endings = {subset: ending for ending, subset in SUBSETS.items()}
        for video_id, video in annotated.videos.items() if DETECTIONS not in files else ():
            ending = endings.get(video.subset)
            if video.segments and ending is None:
                raise LabelsError(
                    f"The video {video_id!r} has the subset {video.subset!r}, for which THUMOS has no file.",
                    "use --subset training, validation or testing.",
                )
            for s in video.segments:
                name = f"{_escaped(s.label, FORBIDDEN)}_{ending}.txt"
                files[name] = files.get(name, "") + f"{_times(video_id, s)}\n"
        for name, text in files.items():
            write_text(output / name, text)
        return [output / name for name in files]

    def write_detection(self, path: Path, detection: Detection) -> None:
        super().write_detection(path, detection)
        write_text(path.parent / CLASS_LIST, _class_list(detection.annotated.classes))


def thumos_numbers(classes: Iterable[str]) -> dict[str, int]:
    """Return the number of each class in detection files: from THUMOS'14 if it has all of them, else 1, 2, …"""
    classes = tuple(classes)
    official = dict(zip(THUMOS_CLASSES[1:-1], THUMOS_NUMBERS, strict=True)) | {THUMOS_CLASSES[-1]: 102}
    if set(classes) <= official.keys():
        return {name: official[name] for name in classes}
    return {name: i for i, name in enumerate(classes, 1)}


def _class_list(classes: Iterable[str]) -> str:
    """Return detclasslist.txt: number and name of each class."""
    return "".join(f"{number} {' '.join(name.split())}\n" for name, number in thumos_numbers(classes).items())


def _texts(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.txt") if p.is_file() and not p.name.startswith("."))


def _times(video_id: str, segment: Segment) -> str:
    return f"{_escaped(video_id, SEPARATORS)} {number_text(segment.start)} {number_text(segment.end)}"


def _escaped(text: str, characters: str) -> str:
    return re.sub(characters, lambda match: "".join(f"%{byte:02X}" for byte in match[0].encode()), text)

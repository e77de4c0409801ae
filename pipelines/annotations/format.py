"""What a format of annotations is: a name, what it holds, and how it is recognised, read and written."""

import json
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_LE
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from lstr.errors import LabelsError
from lstr.files.atomic import write_text
from lstr.files.content import read_bytes, read_text
from lstr.labels.label_set import Note
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.times import RateOf, unknown

# What a format of one file per video holds for that alone.
FILES = frozenset({"videos without segments"})
# What a set of annotations may have beside labels and times, see `AnnotationSet.held`.
EVERYTHING = frozenset({"scores", "subjects", "subsets", "durations", "classes without segments"}) | FILES

# Characters by which a table is recognised.
BEGINNING = 1 << 18


@dataclass(frozen=True)
class ConvertOptions:
    """How annotations are read, changed and written."""

    source_format: str | None = None
    """Name of the sources' format; None recognises each."""
    as_labels: bool = False
    """Drop the scores: what was detected becomes labels to train on."""
    lenient: bool = False
    """Leave wrong segments in, for `lstr.labels.check.check` to name them all."""
    frames: float | None = None
    """The times of the sources are no seconds but numbers of frames, of which a second has so many."""
    rate_of: RateOf = unknown
    """Frames a second of a video by the id that a source has for it, where times count frames."""
    seconds_of: RateOf = unknown
    """Seconds of a video by the same id; None if they are unknown."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The headers of a table's columns, by what they are: `start`: `Beginn`."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """New names of classes; two of one name become one class."""
    subsets: Mapping[str | None, str] = field(default_factory=dict)
    """New names of subsets; the one for None goes to videos that have none."""
    classes: tuple[str, ...] = ()
    """Classes in the order of the score columns; empty keeps the sources' order."""
    video: Path | None = None
    """Pictures: the video, or the folder of videos, to draw on."""


DEFAULTS = ConvertOptions()


@dataclass(frozen=True)
class Detection:
    """A finished detection on one video, or annotations of it, and what is drawn with them."""

    id: str
    timeline: dict[str, Any]
    """The lstr-timeline/1 document."""
    scores: NDArray[np.floating] | None
    """(chunks, C); None of annotations"""
    events: Sequence[dict[str, Any]]
    """The events, as in the JSONL."""
    video: Path | None = None
    """The file, where the source is one."""
    truth: Sequence[Segment] | None = None
    """Labelled segments, to draw beside the detected ones."""
    recipe: dict[str, Any] | None = None
    """The recipe of the features, for the page."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """What its networks began with, and the licence of that, by stream."""
    subset: str | None = None
    """The one that the labels have the video in."""
    index: Path | None = None
    """The page over all videos, where there will be one."""
    embed: int = 0
    """Bytes of a video that may be put into the page."""

    @cached_property
    def annotated(self) -> AnnotationSet:
        """Its segments as a set of one video."""
        media = str(self.video) if self.video else None
        segments = tuple(map(Segment.from_dict, self.timeline["segments"]))
        video = AnnotatedVideo(segments, None, self.timeline["duration"], media)
        return AnnotationSet({self.id: video}, tuple(self.timeline["classes"]))


def encoding_of(content: bytes) -> tuple[str, str] | None:
    """The codec of a text that is not in UTF-8, and what people call it; None of UTF-8, and of what is no text."""
    if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) and not content.startswith(BOM_UTF32_LE):
        return "utf-16", "UTF-16"
    try:
        content.decode()
    except UnicodeDecodeError:
        return None if b"\0" in content else ("cp1252", "Windows-1252")
    return None


@dataclass(frozen=True)
class File:
    """A file that may hold annotations, read once. Text and JSON raise LabelsError where it holds none."""

    path: Path

    @property
    def ending(self) -> str:
        """The last suffix, in small letters."""
        return self.path.suffix.lower()

    @cached_property
    def text(self) -> str:
        """Its text, without a byte order mark."""
        try:
            return read_text(self.path, "utf-8-sig")
        except UnicodeDecodeError as error:
            raise LabelsError(f"{self.path} is not UTF-8.", "save it again in UTF-8.") from error
        except OSError as error:
            raise LabelsError(f"{self.path} cannot be read ({error.strerror}).", "check its permissions.") from error

    @cached_property
    def text_and_notes(self) -> tuple[str, tuple[Note, ...]]:
        """The text of a form that has no encoding of its own, also as programs save it on Windows, and a note of that.

        Raises LabelsError.
        """
        text, notes = "", tuple[Note, ...]()
        with suppress(OSError, UnicodeDecodeError):
            if found := encoding_of(read_bytes(self.path)):
                codec, name = found
                text = read_text(self.path, codec)
                notes = (Note("encoding", f"{self.path.name} is not UTF-8: it is read as {name}"),)
        text = text or self.text
        if "\0" in text:
            raise LabelsError(f"{self.path} has bytes of zero, as no text has.", "save it again as text in UTF-8.")
        return text, notes

    @property
    def beginning(self) -> str:
        """The first whole lines of its text, or all of a short one. Raises LabelsError."""
        text, _ = self.text_and_notes
        return text if len(text) <= BEGINNING else text[: text.rfind("\n", 0, BEGINNING) + 1]

    @cached_property
    def json(self) -> Any:
        """Its JSON content."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise LabelsError(f"{self.path} is not JSON ({error}).", "save it again as JSON.") from error


class Format:
    """A form of annotations. A subclass states these facts and overrides what it can do; `formats.FORMATS` lists it."""

    name: str
    suffix: str = ""
    """How the name of a file of one video ends."""
    holds: frozenset[str] | None = None
    """What it has a place for beside labels and times; None where nothing is called lost, as in a picture."""
    holds_with_scores: frozenset[str] | None = None
    """The same for its own form of results, where it has one for segments with scores."""
    reads: bool = True
    """Whether annotations can be read from it."""
    writes: bool = False
    """Whether annotations can be written in it."""
    detects: bool = False
    """Whether `lstr detect` writes it."""
    counts_frames: bool = False
    """Whether it may count frames, of which `read` makes seconds by `ConvertOptions.frames`."""
    paints_text: bool = False
    """Whether labels are painted with the fonts of this machine."""
    is_folder: bool = False
    """Whether several files make one set, so that a folder is read at once."""

    def recognises(self, file: File) -> bool:
        """Whether a file looks like one of this format, by its name and beginning."""
        return self.reads and bool(self.suffix) and file.ending == self.suffix

    def recognises_folder(self, folder: Path) -> bool:
        """Whether a folder looks like a set of this format."""
        return False

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        """A file's annotations; `video_id` is the video's where the file does not name it. Raises LabelsError."""
        raise LabelsError(f"{self.name} cannot be read back from a file.", "give annotations of another format.")

    def read_folder(self, folder: Path, options: ConvertOptions) -> AnnotationSet:
        """The annotations of a folder, of a format that `is_folder`. Raises LabelsError."""
        raise NotImplementedError

    def render(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        """The annotations as one text. Raises LabelsError where several files are needed."""
        self._needs_files()

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> list[Path]:
        """Write into the folder `output`, or into that file; returns the files. Raises LabelsError, OutputError."""
        raise LabelsError(f"{self.name} cannot be made of annotations.", "choose another format.")

    def is_due(self, detection: Detection) -> bool:
        """Whether a finished detection is written in it."""
        return self.detects

    def write_detection(self, path: Path, detection: Detection) -> None:
        """Write a finished detection to a file whose name ends in `suffix`. Raises OutputError."""
        raise NotImplementedError

    def lost(self, annotated: AnnotationSet) -> set[str]:
        """What the annotations have that this format has no place for."""
        held = annotated.held()
        results = self.holds_with_scores if "scores" in held else None
        place = self.holds if results is None else results
        return set() if place is None else held - place

    def _needs_files(self) -> NoReturn:
        raise LabelsError(f"{self.name} is written to files here.", "add -o DIR.")


class TextFormat(Format):
    """A form of text: one file per video, or one for all."""

    writes = detects = True
    holds_many: bool = False
    """Whether one file holds any number of videos."""

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        """The text of a file: of all videos, or of the only one."""
        raise NotImplementedError

    def render(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        if self.is_folder or (not self.holds_many and len(annotated.videos) != 1):
            self._needs_files()
        return self.text(annotated, options)

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> list[Path]:
        if self.holds_many:
            parts = [(output / f"labels{self.suffix}" if is_folder(output) else output, annotated)]
        else:
            parts = list(each_video(annotated, output, self.suffix))
        for path, part in parts:
            write_text(path, self.text(part, options))
        return [path for path, _ in parts]

    def write_detection(self, path: Path, detection: Detection) -> None:
        write_text(path, self.text(detection.annotated, DEFAULTS))


def each_video(annotated: AnnotationSet, output: Path, suffix: str) -> Iterator[tuple[Path, AnnotationSet]]:
    """One file per video: in the folder `output`, or that file itself for a single video."""
    single = len(annotated.videos) == 1 and not is_folder(output)
    for video_id, video in annotated.videos.items():
        path = output if single else output / f"{video_id}{suffix}"
        yield path, AnnotationSet({video_id: video}, annotated.classes)


def is_folder(output: Path) -> bool:
    """Whether a path to write to means a folder: it is one, or has no suffix."""
    return output.is_dir() or not output.suffix

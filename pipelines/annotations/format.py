"""What a label format is, and the table of all formats.

A new format is a subclass of Format in a file of this folder and a line in OURS; in another package it is an entry
point of the group GROUP.
"""

import json
import warnings
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import LabelsError
from lstr.files.atomic import write_text
from lstr.files.content import read_bytes, read_text
from lstr.files.home import find_added, load_added
from lstr.labels.label_set import Note
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet

# The formats of this package by name, each a module of this folder and a class in it. A format is imported when it is
# used, because a detection that writes one of them needs none of the others. The first that recognises a file reads it.
OURS = {
    "json": "timelines:TimelineJson",
    "jsonl": "timelines:EventLines",
    "boris": "boris:Project",
    "borisevents": "boris_tables:EventTable",
    "binary": "csv_tables:Binary",
    "csv": "csv_tables:Csv",
    "tsv": "csv_tables:Tsv",
    "vtt": "subtitles:Vtt",
    "srt": "subtitles:Srt",
    "eaf": "elan:Elan",
    "labelstudio": "labelstudio:LabelStudio",
    "activitynet": "activitynet:ActivityNetJson",
    "perframe": "activitynet:PerFrame",
    "thumos": "thumos:Thumos",
    "npy": "timelines:Scores",
    "png": "timelines:Png",
    "svg": "timelines:Svg",
    "html": "timelines:Page",
    "mp4": "timelines:Mp4",
}
# Entry points of other packages, each a subclass of Format, which are formats here under their names.
GROUP = "lstr.label_formats"

# What annotations can hold in addition to labels and times, see `AnnotationSet.held`.
FILES = frozenset({"videos without segments"})
EVERYTHING = frozenset({"scores", "subjects", "subsets", "durations", "classes without segments"}) | FILES

# Characters of a text by which a table is recognised.
BEGINNING = 1 << 18

# Frames per second, or the length in seconds, of a video by its id; None if it is unknown.
VideoNumber = Callable[[str], float | None]


def unknown(video_id: str) -> None:
    """Return None, the rate or length of any video when no video file is available."""


@dataclass(frozen=True)
class ConvertOptions:
    """How annotations are read, changed and written."""

    source_format: str | None = None
    """Name of the format of the sources; None recognises each."""
    as_labels: bool = False
    """Drop the scores, so that detections become labels to train on."""
    lenient: bool = False
    """Keep wrong segments, for `lstr.labels.check.check` to name all of them."""
    frames: float | None = None
    """Read times as frame numbers, at this many frames per second."""
    rate_of: VideoNumber = unknown
    """Frames per second of a video by the id in the source, for times that count frames."""
    seconds_of: VideoNumber = unknown
    """Length in seconds of a video by the same id."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Headers of the columns of a table by their meaning: `start`: `Beginn`."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """New names of classes; classes of the same new name become one."""
    subsets: Mapping[str | None, str] = field(default_factory=dict)
    """New names of subsets; the one for None is given to videos that have no subset."""
    video: Path | None = None
    """The video or the folder of videos that the annotations are of, to read frame rates from."""


DEFAULTS = ConvertOptions()


@dataclass(frozen=True)
class Detection:
    """A finished detection on one video, and what is drawn with it."""

    id: str
    timeline: dict[str, Any]
    """The lstr-timeline/1 document."""
    scores: NDArray[np.floating] | None
    """(chunks, C)"""
    events: Sequence[dict[str, Any]]
    """The events, as in the JSONL."""
    video: Path | None = None
    """The file, if the source is one."""
    truth: Sequence[Segment] | None = None
    """Labelled segments, to draw next to the detected ones."""
    recipe: dict[str, Any] | None = None
    """The recipe of the features, for the page."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Initial weights of the networks and their licences by stream."""
    index: Path | None = None
    """The page over all videos, if there will be one."""
    embed: int = 0
    """Maximum size in bytes of a video that is put into the page."""

    @cached_property
    def annotated(self) -> AnnotationSet:
        """Its segments as a set of one video."""
        media = str(self.video) if self.video else None
        segments = tuple(map(Segment.from_dict, self.timeline["segments"]))
        video = AnnotatedVideo(segments, None, self.timeline["duration"], media)
        return AnnotationSet({self.id: video}, tuple(self.timeline["classes"]))


class File:
    """A file or folder that may hold annotations. Its text is read once, and raises LabelsError if it is not text."""

    def __init__(self, path: Path):
        self.path = path
        self.notes: list[Note] = []
        """What was read differently from how it is written; added to the notes of what the format reads."""

    @property
    def ending(self) -> str:
        """The last suffix in lower case; empty for a folder."""
        return "" if self.path.is_dir() else self.path.suffix.lower()

    @cached_property
    def text(self) -> str:
        """The text in UTF-8, without a byte order mark."""
        try:
            return read_text(self.path, "utf-8-sig")
        except UnicodeDecodeError as error:
            raise LabelsError(f"{self.path} is not UTF-8.", "save it again in UTF-8.") from error
        except OSError as error:
            raise LabelsError(f"{self.path} cannot be read ({error.strerror}).", "check its permissions.") from error

    @cached_property
    def decoded(self) -> str:
        """The text of a format that states no encoding, also in those that programs use on Windows, with a note."""
        text = ""
        with suppress(OSError, UnicodeDecodeError):
            content = read_bytes(self.path)
            codec, name = "", ""
            if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) and not content.startswith(BOM_UTF32_LE):
                codec, name = "utf-16", "UTF-16"
            elif not _is_utf8(content) and b"\0" not in content:
                codec, name = "cp1252", "Windows-1252"
            if codec:
                text = read_text(self.path, codec)
                self.notes.append(Note("encoding", f"{self.path.name} is not UTF-8: it is read as {name}"))
        text = text or self.text
        if "\0" in text:
            raise LabelsError(f"{self.path} has bytes of zero, which text never has.", "save it as text in UTF-8.")
        return text

    @property
    def beginning(self) -> str:
        """The first whole lines of the text, by which a table is recognised."""
        text = self.decoded
        return text if len(text) <= BEGINNING else text[: text.rfind("\n", 0, BEGINNING) + 1]

    @cached_property
    def json(self) -> Any:
        """The JSON content. Raises LabelsError."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise LabelsError(f"{self.path} is not JSON ({error}).", "save it again as JSON.") from error


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


class Format:
    """A label format. A subclass states these facts, and overrides `read`, `text`, or both."""

    name: str
    suffix: str = ""
    """How the name of a file of one video ends."""
    holds: frozenset[str] | None = None
    """What it has a place for in addition to labels and times, of EVERYTHING; None if nothing counts as lost."""
    holds_with_scores: frozenset[str] | None = None
    """The same for its own form of results, if it has one for segments with scores."""
    reads: bool = True
    """Whether annotations can be read from it."""
    writes: bool = False
    """Whether annotations can be written in it."""
    detects: bool = False
    """Whether `lstr detect` writes it."""
    holds_many: bool = False
    """Whether one file holds any number of videos."""
    is_folder: bool = False
    """Whether one set is written as several files, so that a folder is read at once."""
    counts_frames: bool = False
    """Whether `read` turns frame numbers into seconds by `ConvertOptions.frames` itself."""

    def recognises(self, file: File) -> bool:
        """Return whether a file looks like this format by its name and beginning; a folder only if it is one set."""
        return self.reads and bool(self.suffix) and file.ending == self.suffix

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        """Return the annotations of a file, or of a folder that this format recognises.

        Args:
            file: The file or folder.
            video_id: The id of the video, if the file does not name it.
            options: How to read it.

        Raises LabelsError.
        """
        raise LabelsError(f"{self.name} cannot be read back from a file.", "give annotations of another format.")

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        """Return the text of a file: of all videos if the format holds many, else of the only one."""
        raise LabelsError(f"{self.name} cannot be made of annotations.", "choose another format.")

    def render(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        """Return the annotations as one text. Raises LabelsError if several files are needed."""
        if not isinstance(self, TextFormat) or self.is_folder or (not self.holds_many and len(annotated.videos) != 1):
            raise LabelsError(f"{self.name} is written to files here.", "add -o DIR.")
        return self.text(annotated, options)

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> list[Path]:
        """Write into the folder `output`, or that file; return the files. Raises LabelsError and OutputError."""
        if self.holds_many:
            path = output / f"labels{self.suffix}" if output.is_dir() or not output.suffix else output
            parts = [(path, annotated)]
        else:
            parts = list(self.each_file(annotated, output))
        for path, part in parts:
            write_text(path, self.text(part, options))
        return [path for path, _ in parts]

    def each_file(self, annotated: AnnotationSet, output: Path) -> Iterator[tuple[Path, AnnotationSet]]:
        """Yield a file per video: in the folder `output`, or that file itself for a single video."""
        is_single = len(annotated.videos) == 1 and bool(output.suffix) and not output.is_dir()
        for video_id, video in annotated.videos.items():
            path = output if is_single else output / f"{video_id}{self.suffix}"
            yield path, AnnotationSet({video_id: video}, annotated.classes)

    def is_due(self, detection: Detection) -> bool:
        """Return whether a finished detection is written in it."""
        return self.detects

    def write_detection(self, path: Path, detection: Detection) -> None:
        """Write a finished detection to a file whose name ends in `suffix`. Raises OutputError."""
        write_text(path, self.text(detection.annotated, DEFAULTS))

    def lost(self, annotated: AnnotationSet) -> set[str]:
        """Return what the annotations hold and this format has no place for."""
        held = annotated.held()
        place = self.holds_with_scores if "scores" in held and self.holds_with_scores is not None else self.holds
        return set() if place is None else held - place


class TextFormat(Format):
    """A format of text that is written as well as read."""

    writes = detects = True


class Formats(Mapping[str, Format]):
    """The formats by name: those of this package, then those of other packages. Each is imported when it is used."""

    def __init__(self) -> None:
        self._loaded: dict[str, Format] = {}

    @cached_property
    def _others(self) -> dict[str, EntryPoint]:
        return find_added(GROUP, OURS)

    def __getitem__(self, name: str) -> Format:
        """Return a format. Raises KeyError for an unknown one, LabelsError if that of another package is broken."""
        if name not in self._loaded:
            if ours := OURS.get(name):
                self._loaded[name] = EntryPoint(name, f"{__package__}.{ours}", GROUP).load()()
            else:
                self._loaded[name] = load_added(
                    self._others[name],
                    "label format",
                    lambda kind: form if isinstance(form := kind(), Format) and form.name == name else None,
                    "a subclass of lstr.pipelines.annotations.format.Format with that name",
                    LabelsError,
                )
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        return iter((*OURS, *self._others))

    def __len__(self) -> int:
        return len(OURS) + len(self._others)

    def usable(self) -> Iterator[Format]:
        """Yield all formats; warn of those of other packages that are broken, for one must not stop all reading."""
        for name in self:
            try:
                yield self[name]
            except LabelsError as error:
                warnings.warn(str(error), stacklevel=2)


FORMATS = Formats()


def format_named(name: str) -> Format:
    """Return the format of a name. Raises LabelsError for an unknown one."""
    if name not in FORMATS:
        raise LabelsError(f"{name!r} is not a format.", f"choose one of {', '.join(FORMATS)}.")
    return FORMATS[name]

"""What a label format is, and the table of all formats.

A new format is a subclass of Format in a file of this folder and a line in OURS; in another package it is an entry
point of the group GROUP.
"""

import json
import warnings
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_LE
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import LabelsError
from lstr.files.atomic import write_text
from lstr.files.content import read_bytes
from lstr.files.home import find_added, load_added
from lstr.labels.label_set import Note, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet

# The formats of this package by name, each a module of this folder and a class in it. A format is imported when it is
# used, because a detection that writes one of them needs none of the others. The first that recognises a file reads it.
OURS = {
    "json": "timelines:TimelineJson",
    "jsonl": "timelines:EventLines",
    "boris": "boris:Project",
    "borisevents": "boris:EventTable",
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

# What annotations can hold in addition to labels and times, see `AnnotationSet.extras`.
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
    subsets: Mapping[str, str] = field(default_factory=dict)
    """New names of subsets; the one for an empty name is given to videos without a subset."""
    video: Path | None = None
    """The video or the folder of videos that the annotations are of, to read frame rates from."""


DEFAULTS = ConvertOptions()


@dataclass(frozen=True)
class Detection:
    """A finished detection on one video, and what is drawn with it."""

    id: str
    # The lstr-timeline/1 document.
    timeline: dict[str, Any]
    # (chunks, C)
    scores: NDArray[np.floating] | None
    # As in the JSONL.
    events: Sequence[dict[str, Any]]
    # The file, if the source is one.
    video: Path | None = None
    # Labelled segments, to draw next to the detected ones.
    truth: Sequence[Segment] | None = None
    # The recipe of the features, for the page.
    recipe: dict[str, Any] | None = None
    # Initial weights of the networks and their licences by stream.
    origins: Mapping[str, str] = field(default_factory=dict)
    # The page over all videos, if there will be one.
    index: Path | None = None
    # Maximum size in bytes of a video that is put into the page.
    embed: int = 0

    @cached_property
    def annotated(self) -> AnnotationSet:
        """Its segments as a set of one video."""
        media = str(self.video) if self.video else None
        segments = tuple(map(Segment.from_dict, self.timeline["segments"]))
        video = VideoLabels("", self.timeline["duration"], segments, media)
        return AnnotationSet({self.id: video}, tuple(self.timeline["classes"]))


class File:
    """A file or folder that may hold annotations. Its text is read once, and raises LabelsError if it is not text."""

    def __init__(self, path: Path):
        self.path = path
        # What was read differently from how it is written; added to the notes of what the format reads.
        self.notes: list[Note] = []

    @property
    def ending(self) -> str:
        """The last suffix in lower case; empty for a folder."""
        return "" if self.path.is_dir() else self.path.suffix.lower()

    @cached_property
    def text(self) -> str:
        """The text in UTF-8, or with a note in an encoding that programs use on Windows, without a byte order mark."""
        try:
            content = read_bytes(self.path)
        except OSError as error:
            raise LabelsError(f"{self.path} cannot be read ({error.strerror}).", "check its permissions.") from error
        codec, name = "utf-8-sig", ""
        # a mark of UTF-32 begins with that of UTF-16
        if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) and not content.startswith(BOM_UTF32_LE):
            codec, name = "utf-16", "UTF-16"
        try:
            text = content.decode(codec)
        except UnicodeDecodeError as error:
            try:
                if name or b"\0" in content:
                    raise
                text, name = content.decode("cp1252"), "Windows-1252"
            except UnicodeDecodeError:
                raise LabelsError(f"{self.path} is not UTF-8.", "save it again in UTF-8.") from error
        if "\0" in text:
            raise LabelsError(f"{self.path} contains zero bytes, so it is not text.", "save it as text in UTF-8.")
        if name:
            self.notes.append(Note("encoding", f"{self.path.name} is not UTF-8; it is read as {name}"))
        return text.replace("\r\n", "\n").replace("\r", "\n")

    @property
    def beginning(self) -> str:
        """The first whole lines of the text, by which a table is recognised."""
        return self.text if len(self.text) <= BEGINNING else self.text[: self.text.rfind("\n", 0, BEGINNING) + 1]

    @cached_property
    def json(self) -> Any:
        """The JSON content. Raises LabelsError."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise LabelsError(f"{self.path} is not JSON ({error}).", "save it again as JSON.") from error


class Format:
    """A label format. A subclass states these facts, and overrides `read`, `text`, or both."""

    name: str
    # How the name of a file of one video ends.
    suffix: str = ""
    # What it has a place for in addition to labels and times, of EVERYTHING.
    holds: frozenset[str] = frozenset()
    # The same for its own form of results, if it has one for segments with scores.
    holds_with_scores: frozenset[str] | None = None
    # Whether one file holds any number of videos.
    holds_many: bool = False
    # Whether one set is written as several files, so that a folder is read at once.
    is_folder: bool = False
    # Whether `read` turns frame numbers into seconds by `ConvertOptions.frames` itself.
    counts_frames: bool = False

    @property
    def reads(self) -> bool:
        """Whether annotations can be read from it."""
        return type(self).read is not Format.read

    @property
    def writes(self) -> bool:
        """Whether annotations can be written in it."""
        return type(self).text is not Format.text

    @property
    def detects(self) -> bool:
        """Whether `lstr detect` writes it."""
        return self.writes or type(self).write_detection is not Format.write_detection

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
        raise LabelsError(f"{self.name} cannot be written from annotations.", "choose another format.")

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> list[Path]:
        """Write into the folder `output`, or that file; return the files. Raises LabelsError and OutputError."""
        is_file = bool(output.suffix) and not output.is_dir()
        parts = [(output if is_file else output / f"labels{self.suffix}", annotated)]
        if not self.holds_many:  # a file per video
            is_file = is_file and len(annotated.videos) == 1
            parts = [
                (
                    output if is_file else output / f"{name}{self.suffix}",
                    AnnotationSet({name: video}, annotated.classes),
                )
                for name, video in annotated.videos.items()
            ]
        for path, part in parts:
            write_text(path, self.text(part, options))
        return [path for path, _ in parts]

    def is_due(self, detection: Detection) -> bool:
        """Return whether a finished detection is written in it."""
        return self.detects

    def write_detection(self, path: Path, detection: Detection) -> None:
        """Write a finished detection to a file whose name ends in `suffix`. Raises OutputError."""
        write_text(path, self.text(detection.annotated, DEFAULTS))

    def lost(self, annotated: AnnotationSet) -> set[str]:
        """Return what the annotations hold and this format has no place for."""
        held = annotated.extras()
        return held - (self.holds if "scores" not in held or self.holds_with_scores is None else self.holds_with_scores)


@cache
def _other_formats() -> dict[str, EntryPoint]:
    return find_added(GROUP, OURS)


@cache
def format_named(name: str) -> Format:
    """Return a format. Raises LabelsError for an unknown one, or if that of another package is broken."""
    if name in OURS:
        return EntryPoint(name, f"{__package__}.{OURS[name]}", GROUP).load()()
    others = _other_formats()
    if name not in others:
        raise LabelsError(f"{name!r} is not a format.", f"choose one of {', '.join((*OURS, *others))}.")
    return load_added(
        others[name],
        "label format",
        lambda kind: form if isinstance(form := kind(), Format) and form.name == name else None,
        "a subclass of lstr.pipelines.annotations.format.Format with that name",
        LabelsError,
    )


def all_formats() -> Iterator[Format]:
    """Yield the formats of this package, then those of others; warn of broken ones, which must not stop all reading."""
    for name in (*OURS, *_other_formats()):
        try:
            yield format_named(name)
        except LabelsError as error:
            warnings.warn(str(error), stacklevel=2)


def readable() -> list[str]:
    """Return the names of the formats that annotations can be read from."""
    return [form.name for form in all_formats() if form.reads]


def writable() -> list[str]:
    """Return the names of the formats that annotations can be written in."""
    return [form.name for form in all_formats() if form.writes]


def readable_suffixes() -> list[str]:
    """Return how the names of files that can be read end, the longest first."""
    return sorted({form.suffix for form in all_formats() if form.reads and form.suffix}, key=len, reverse=True)


def format_for(output: Path | None) -> Format:
    """Return the format of a file to write by its name; `.json` is `activitynet`, which `--labels` takes.

    Raises LabelsError if the name does not tell.
    """
    name = output.name.lower() if output else ""
    forms = [form for form in all_formats() if form.writes and not form.is_folder]
    endings = {form.suffix: form for form in forms} | {f".{form.name}": form for form in forms}
    endings |= {".json": format_named("activitynet")}
    for ending in sorted(endings, key=len, reverse=True):
        if name.endswith(ending):
            return endings[ending]
    what = f"{output} does not determine the format" if output else "Without -o the format is unknown"
    raise LabelsError(f"{what}.", f"name it with --to: {', '.join(writable())}.")


def recognise(path: Path) -> Format | None:
    """Return the format of a file, or of a folder that is one set, by its name and beginning; None if it has none.

    Raises LabelsError if a file cannot be read.
    """
    file = File(path)
    return next((form for form in all_formats() if form.recognises(file)), None)

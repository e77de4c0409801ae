"""The base class of label formats, and the table of all formats.

A new format is a subclass of Format in a file of this folder, with a line in OURS; a plugin declares an entry point of
the group GROUP.
"""

from __future__ import annotations

import json
import os
import warnings
from codecs import BOM_UTF16_BE, BOM_UTF16_LE, BOM_UTF32_LE
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lstr.errors import LabelsError
from lstr.files.atomic import write_text
from lstr.files.content import read_bytes
from lstr.files.home import find_added, load_added
from lstr.labels.label_set import Note, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet

if TYPE_CHECKING:  # a detection needs no module that reads labels
    from lstr.pipelines.annotations.videos import Rates

# The formats of this package by name, as module of this folder and class. A format is imported at its first use,
# because a detection needs only the formats that it writes. The first format that recognises a file reads it.
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
# Group of the entry points of plugins; each is a subclass of Format, and its name is the format's name.
GROUP = "lstr.label_formats"

# Kinds of information in addition to labels and times, see `AnnotationSet.extras`.
FILES = frozenset({"videos without segments"})
EVERYTHING = frozenset({"scores", "subjects", "subsets", "durations", "classes without segments"}) | FILES


@dataclass(frozen=True)
class ConvertOptions:
    """Options for reading, changing and writing annotations."""

    source_format: str | None = None
    """Name of the format of the sources; None recognises the format of each."""
    as_labels: bool = False
    """Drop the scores, so that detections become labels for training."""
    frames: float | None = None
    """Read times as frame numbers, at this many frames per second."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """Headers of a table's columns by their meaning, for example `start`: `Beginn`."""
    rename: Mapping[str, str] = field(default_factory=dict)
    """New names of classes; classes with the same new name are merged."""
    subsets: Mapping[str, str] = field(default_factory=dict)
    """New names of subsets; the new name of the empty name is for videos without a subset."""
    video: Path | None = None
    """The annotated video or the folder of videos, to read frame rates."""


DEFAULTS = ConvertOptions()


@dataclass(frozen=True)
class Detection:
    """A finished detection on one video, with everything that pages and images show."""

    id: str
    timeline: dict[str, Any]  # the lstr-timeline/1 document
    scores: NDArray[np.floating] | None  # (chunks, C)
    events: Sequence[dict[str, Any]]  # the events, as in the JSONL file
    video: Path | None = None  # the video file; None for other sources
    truth: Sequence[Segment] | None = None  # labelled segments, to draw next to the detected ones
    recipe: dict[str, Any] | None = None  # the recipe of the features, shown on the page
    # Initial weights of the networks and their licences by stream.
    origins: Mapping[str, str] = field(default_factory=dict)
    index: Path | None = None  # the index page of all videos, if one will be written
    embed: int = 0  # maximum size in bytes of a video that is embedded in the page
    # The people of each chunk by a model on poses, if there are any: `time` in seconds, and `people` as in its line.
    people: Sequence[dict[str, Any]] = ()

    @cached_property
    def annotated(self) -> AnnotationSet:
        """Return its segments as an annotation set of one video."""
        media = str(self.video) if self.video else None
        segments = tuple(map(Segment.from_dict, self.timeline["segments"]))
        video = VideoLabels("", self.timeline["duration"], segments, media)
        return AnnotationSet({self.id: video}, tuple(self.timeline["classes"]))


class File:
    """A file or folder that may contain annotations. Its text is read once; raises LabelsError if it is not text.

    Args:
        path: The file.
        rates: The frame rates and lengths of its videos, if the videos are available.
    """

    def __init__(self, path: Path, rates: Rates | None = None):
        self.path = path
        self.rates = rates
        # Notes on the interpretation of the file, appended to the notes of the annotations.
        self.notes: list[Note] = []

    @property
    def ending(self) -> str:
        """The suffix in lower case; empty for a folder."""
        return "" if self.path.is_dir() else self.path.suffix.lower()

    @cached_property
    def text(self) -> str:
        """The text, without a byte order mark; UTF-8 or, with a note, an encoding that is common on Windows."""
        try:
            content = read_bytes(self.path)
        except OSError as error:
            raise LabelsError(f"{self.path} cannot be read ({error.strerror}).", "check its permissions.") from error
        codecs = {"utf-8-sig": "", "cp1252": "Windows-1252"}
        # the byte order mark of UTF-32 begins with the one of UTF-16
        if content.startswith((BOM_UTF16_LE, BOM_UTF16_BE)) and not content.startswith(BOM_UTF32_LE):
            codecs = {"utf-16": "UTF-16"}
        elif b"\0" in content:
            codecs = {"utf-8-sig": ""}
        for codec in codecs:
            with suppress(UnicodeDecodeError):
                text = content.decode(codec)
                break
        else:
            raise LabelsError(f"{self.path} is not UTF-8.", "save it again in UTF-8.")
        if "\0" in text:
            raise LabelsError(f"{self.path} contains zero bytes, so it is not text.", "save it as text in UTF-8.")
        if name := codecs[codec]:
            self.notes.append(Note("encoding", f"{self.path.name} is not UTF-8; it is read as {name}"))
        return text.replace("\r\n", "\n").replace("\r", "\n")

    @cached_property
    def json(self) -> Any:
        """The JSON content. Raises LabelsError."""
        try:
            return json.loads(self.text)
        except (ValueError, RecursionError) as error:
            raise LabelsError(f"{self.path} is not JSON ({error}).", "save it again as JSON.") from error

    def frame_rate(self, options: ConvertOptions, video_id: str, what: str) -> float:
        """Return the frame rate of a video. Raises LabelsError if it is unknown; `what` begins its message."""
        rate = options.frames or (self.rates.frame_rate(video_id) if self.rates else None)
        if rate is None:
            raise LabelsError(
                f"{what}, but the frame rate is unknown.",
                "convert them to seconds with the rates of the videos, `lstr labels convert FILE --video VIDEOS -o "
                "labels.json`, or with one rate, `lstr labels convert FILE --frames 30 -o labels.json`.",
            )
        return rate


class Format:
    """Base class of label formats. A subclass sets these attributes, and overrides `read`, `text`, or both."""

    name: str
    suffix: str = ""  # suffix of the name of a file for one video
    # The information that it stores in addition to labels and times, a subset of EVERYTHING.
    holds: frozenset[str] = frozenset()
    # The same for its result format, if it has a separate one for segments with scores.
    holds_with_scores: frozenset[str] | None = None
    holds_many: bool = False  # whether one file can contain any number of videos
    for_players: bool = False  # whether programs show the video with it, and count times from the start of its sound
    needs_video: bool = False  # whether `write_detection` draws on the video file
    is_folder: bool = False  # whether a set consists of several files, so that a folder is read as a whole
    counts_frames: bool = False  # whether `read` itself converts frame numbers to seconds with `ConvertOptions.frames`

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
        """Return whether a file looks like this format, by its name and beginning; or a folder, if it is one set."""
        return self.reads and bool(self.suffix) and file.ending == self.suffix

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        """Read the annotations of a file, or of a folder that this format recognises.

        Args:
            file: The file or folder.
            video_id: The id of the video, if the file does not contain it.
            options: How to read it.

        Raises:
            LabelsError: The content is not valid.
        """
        raise LabelsError(f"The format {self.name} cannot be read.", "use annotations of another format.")

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        """Return the text of a file with all videos, or with the only one if the format has a file per video."""
        raise NotImplementedError

    def write(self, output: Path, annotated: AnnotationSet, options: ConvertOptions) -> list[Path]:
        """Write to the folder or file `output`; return the written files. Raises LabelsError and OutputError."""
        is_file = bool(output.suffix) and not output.is_dir()
        parts = {"labels": annotated}
        if not self.holds_many:  # one file per video
            is_file = is_file and len(annotated.videos) == 1
            parts = {name: AnnotationSet({name: video}, annotated.classes) for name, video in annotated.videos.items()}
        paths = {name: output if is_file else output / f"{name}{self.suffix}" for name in parts}
        for name, part in parts.items():
            write_text(paths[name], self.text(part, options))
        return list(paths.values())

    def write_detection(self, path: Path, detection: Detection) -> None:
        """Write a finished detection to a file with `suffix`. Raises OutputError."""
        write_text(path, self.text(self.shift_for_players(detection.annotated), DEFAULTS))

    def shift_for_players(self, annotated: AnnotationSet) -> AnnotationSet:
        """Return annotations with times from the start of the sound if this format is for players.

        Times of videos that are not available are unchanged.
        """
        if not self.for_players or annotated.for_players:
            return annotated
        from lstr.pipelines.annotations.videos import late_frames

        videos = {}
        for name, video in annotated.videos.items():
            media = video.media or ""
            late = late_frames(Path(media)) if os.path.isfile(media) else 0.0
            moved = tuple(replace(s, start=s.start + late, end=s.end + late) for s in video.segments)
            videos[name] = replace(video, segments=moved)
        return replace(annotated, videos=videos)

    def lost(self, annotated: AnnotationSet) -> set[str]:
        """Return the kinds of information in the annotations that this format cannot store."""
        held = annotated.extras()
        return held - (self.holds if "scores" not in held or self.holds_with_scores is None else self.holds_with_scores)


@cache
def _other_formats() -> dict[str, EntryPoint]:
    return find_added(GROUP, OURS)


@cache
def format_named(name: str) -> Format:
    """Return a format by name. Raises LabelsError for an unknown format, or if a plugin's format is broken."""
    if name in OURS:
        return EntryPoint(name, f"{__package__}.{OURS[name]}", GROUP).load()()
    others = _other_formats()
    if name not in others:
        raise LabelsError(f"Unknown label format: {name!r}.", f"choose one of {', '.join((*OURS, *others))}.")
    return load_added(
        others[name],
        "label format",
        lambda kind: form if isinstance(form := kind(), Format) and form.name == name else None,
        "a subclass of lstr.pipelines.annotations.format.Format with that name",
        LabelsError,
    )


def all_formats() -> Iterator[Format]:
    """Yield the formats of this package, then of plugins; a broken plugin is a warning, so that others still work."""
    for name in (*OURS, *_other_formats()):
        try:
            yield format_named(name)
        except LabelsError as error:
            warnings.warn(str(error), stacklevel=2)


def readable() -> list[str]:
    """Return the names of the formats that can be read."""
    return [form.name for form in all_formats() if form.reads]


def writable() -> list[str]:
    """Return the names of the formats that can be written."""
    return [form.name for form in all_formats() if form.writes]


def readable_suffixes() -> list[str]:
    """Return the suffixes of files that can be read, longest first."""
    return sorted({form.suffix for form in all_formats() if form.reads and form.suffix}, key=len, reverse=True)


def format_for(output: Path | None) -> Format:
    """Return the format for the name of an output file; `.json` is `activitynet`, the main format of `--labels`.

    Raises LabelsError if the name has no known suffix.
    """
    name = output.name.lower() if output else ""
    forms = [form for form in all_formats() if form.writes and not form.is_folder]
    endings = {form.suffix: form for form in forms} | {f".{form.name}": form for form in forms}
    endings |= {".json": format_named("activitynet")}
    for ending in sorted(endings, key=len, reverse=True):
        if name.endswith(ending):
            return endings[ending]
    what = f"The name of {output} has no suffix of a label format" if output else "The output format is missing"
    raise LabelsError(f"{what}.", f"name the format with --to: {', '.join(writable())}.")


def recognise(path: Path) -> Format | None:
    """Return the format of a file, or of a folder that is one set, by its name and beginning; None if unknown.

    Raises LabelsError if a file cannot be read.
    """
    file = File(path)
    return next((form for form in all_formats() if form.recognises(file)), None)

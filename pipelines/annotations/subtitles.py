"""Subtitles, WebVTT and SubRip: one cue per action, several at once where they overlap."""

import html
import re
from collections.abc import Iterator
from itertools import chain

from lstr.errors import LabelsError, brief
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet, plain_line
from lstr.pipelines.annotations.format import FILES, ConvertOptions, File, Format, TextFormat

TIME = re.compile(r"(?:(\d{1,9}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})")
ARROW = re.compile(rf"\s*({TIME.pattern})\s*-->\s*({TIME.pattern})")
# How a line begins that is likely of a cue's times.
TIMED = re.compile(rf"\s*{TIME.pattern}")
# How a block of WebVTT begins that is likely no cue.
NO_CUE = re.compile(r"(NOTE|STYLE|REGION)(\s|$)")
SCORE = re.compile(r"score=([0-9.eE+-]+)")
# How a tag begins that players of SubRip know.
SRT_TAG = re.compile(r"</?(?:b|i|u|s|font)(?=[\s>])")


class Vtt(TextFormat):
    """WebVTT."""

    name, suffix = "vtt", ".vtt"
    holds = FILES | {"scores"}

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        return AnnotationSet({video_id: from_vtt(file.text)})

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        return to_vtt(annotated.first[1])


class Srt(Format):
    """SubRip, which states no encoding."""

    name, suffix = "srt", ".srt"

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        text, notes = file.text_and_notes
        return AnnotationSet({video_id: from_srt(text)}, (), notes)


def to_vtt(video: AnnotatedVideo) -> str:
    """WebVTT, times in milliseconds; a cue's identifier carries its number and score, which players do not show."""
    cues = ["WEBVTT\n"]
    for i, a in enumerate(video.segments, 1):
        score = "" if a.score is None else f" score={a.score:g}"
        cues.append(f"{i}{score}\n{_arrow(a)}\n{html.escape(plain_line(a.label), quote=False)}\n")
    return "\n".join(cues)


def from_vtt(text: str) -> AnnotatedVideo:
    """A WebVTT file; notes, styles and tags are left out. Raises LabelsError."""
    if not text.startswith("WEBVTT"):
        raise LabelsError("The file does not begin with WEBVTT.", "give a WebVTT file, or name its format with --from.")
    segments = []
    for before, start, end, lines in _cues(text):
        label = html.unescape(_without("<", ">", " ".join(lines)))
        if label.strip():
            segments.append(Segment(start, end, label.strip(), _score(before)))
    return AnnotatedVideo(tuple(segments))


def from_srt(text: str) -> AnnotatedVideo:
    """A SubRip file; tags of the kinds players know are left out. Raises LabelsError."""
    segments = []
    for _, start, end, lines in _cues(text):
        label = _without(r"\{\\", "}", _without(SRT_TAG, ">", " ".join(lines))).strip()
        if label:
            segments.append(Segment(start, end, label))
    if not segments and text.strip():
        raise LabelsError("The file holds no cue.", "give a SubRip file, or name its format with --from.")
    return AnnotatedVideo(tuple(segments))


def _cues(text: str) -> Iterator[tuple[str, float, float, list[str]]]:
    """(line before the times, start, end, lines after them) of each cue; blocks without times are no cues.

    Raises LabelsError, with the line, for times that are none of a cue, and for a cue that no blank line is before.
    """
    for number, lines in _blocks(text.replace("\r\n", "\n").replace("\r", "\n")):
        is_cue = not NO_CUE.match(lines[0])
        at = next((i for i, line in enumerate(lines[:2]) if "-->" in line or (is_cue and TIMED.match(line))), None)
        if at is None or re.match(r"NOTE(\s|$)", lines[0]):
            continue
        match = ARROW.match(lines[at])
        if not match:
            raise LabelsError(
                f"Line {number + at}: {brief(lines[at])} is no cue's times.",
                "write them as 00:00:01.000 --> 00:00:02.500.",
            )
        if inner := next((i for i, line in enumerate(lines[at + 1 :], at + 1) if ARROW.match(line)), None):
            raise LabelsError(f"Line {number + inner}: no blank line is before this cue.", "put one before it.")
        yield lines[0] if at else "", _seconds(match[1]), _seconds(match[6]), lines[at + 1 :]


def _blocks(text: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the first line, and the lines, of what stands between blank lines."""
    lines: list[str] = []
    for number, line in enumerate(chain(text.split("\n"), [""])):
        if line.strip(" \t"):
            lines.append(line)
        elif lines:
            yield number - len(lines) + 1, lines
            lines = []


def _without(opening: str | re.Pattern[str], closing: str, text: str) -> str:
    """A text without what stands between an opening and the next closing, in one pass.

    An expression such as `<[^>]*>` would look for the end from each of many openings that have none.
    """
    kept, at = [], 0
    for found in re.finditer(opening, text):
        if found.start() < at:
            continue
        end = text.find(closing, found.end())
        if end < 0:
            break
        kept.append(text[at : found.start()])
        at = end + len(closing)
    return "".join(kept) + text[at:]


def _arrow(a: Segment) -> str:
    # a cue must end after it starts
    return " --> ".join(map(_clock, (a.start, max(a.end, a.start + 0.001))))


def _clock(seconds: float) -> str:
    """hh:mm:ss.mmm."""
    whole, part = divmod(round(seconds * 1000), 1000)
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{part:03}"


def _seconds(text: str) -> float:
    match = TIME.fullmatch(text.strip())
    if not match:
        raise LabelsError(f"{brief(text.strip())} is no time.", "write it as 0:00:01.25.")
    hours, minutes, seconds, part = match.groups()
    unit = 10 ** len(part)
    # one division, so that the same digits give the same number from any format
    return (((int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)) * unit + int(part)) / unit


def _score(text: str) -> float | None:
    found = SCORE.search(text)
    return float(found[1]) if found else None

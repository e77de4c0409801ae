"""Subtitles (WebVTT and SubRip) with one cue per action; cues overlap if actions do."""

import html
import re
from collections.abc import Iterator
from itertools import chain

from lstr.errors import LabelsError, brief
from lstr.labels.label_set import VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import FILES, ConvertOptions, File, Format

TIME = re.compile(r"(?:(\d{1,9}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})")
ARROW = re.compile(rf"\s*({TIME.pattern})\s*-->\s*({TIME.pattern})")
# Beginning of a line that probably has the times of a cue.
TIMED = re.compile(rf"\s*{TIME.pattern}")
# Beginning of a block of WebVTT that is probably not a cue.
NO_CUE = re.compile(r"(NOTE|STYLE|REGION)(\s|$)")
SCORE = re.compile(r"score=([0-9.eE+-]+)")
# Beginning of the tags that players of SubRip support.
SRT_TAG = r"</?(?:b|i|u|s|font)(?=[\s>])"


class Vtt(Format):
    """WebVTT; the identifier of a cue contains its number and score, which players do not show."""

    name, suffix, for_players = "vtt", ".vtt", True
    holds = FILES | {"scores"}

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        if not file.text.startswith("WEBVTT"):
            raise LabelsError("The file does not begin with WEBVTT.", "use a WebVTT file.")
        segments = []
        for before, start, end, lines in _cues(file.text):
            score = SCORE.search(before)
            if label := html.unescape(_without("<", ">", " ".join(lines))).strip():
                segments.append(Segment(start, end, label, float(score[1]) if score else None))
        return AnnotationSet({video_id: VideoLabels(segments=tuple(segments))})

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        def clock(seconds: float) -> str:
            whole, part = divmod(round(seconds * 1000), 1000)
            return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}.{part:03}"

        cues = ["WEBVTT\n"]
        for i, s in enumerate(annotated.first[1].segments, 1):
            score = "" if s.score is None else f" score={s.score:g}"
            end = max(s.end, s.start + 0.001)  # a cue must end after it starts
            label = html.escape(" ".join(s.label.split()), quote=False)
            cues.append(f"{i}{score}\n{clock(s.start)} --> {clock(end)}\n{label}\n")
        return "\n".join(cues)


class Srt(Format):
    """SubRip, which does not define an encoding."""

    name, suffix = "srt", ".srt"

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        segments = []
        for _, start, end, lines in _cues(file.text):
            if label := _without(r"\{\\", "}", _without(SRT_TAG, ">", " ".join(lines))).strip():
                segments.append(Segment(start, end, label))
        if not segments and file.text.strip():
            raise LabelsError("The file contains no cue.", "use a SubRip file.")
        return AnnotationSet({video_id: VideoLabels(segments=tuple(segments))})


def _cues(text: str) -> Iterator[tuple[str, float, float, list[str]]]:
    """Yield (line before the times, start, end, lines after them) for each cue; blocks without times are not cues.

    Raises LabelsError, with the line number, for malformed times, and for a cue without a blank line before it.
    """
    lines: list[str] = []
    for number, line in enumerate(chain(text.split("\n"), [""])):
        if line.strip(" \t"):
            lines.append(line)
            continue
        block, first, lines = lines, number - len(lines) + 1, []
        if not block or re.match(r"NOTE(\s|$)", block[0]):
            continue
        is_cue = not NO_CUE.match(block[0])
        at = next((i for i, line in enumerate(block[:2]) if "-->" in line or (is_cue and TIMED.match(line))), None)
        if at is None:
            continue
        match = ARROW.match(block[at])
        if not match:
            raise LabelsError(
                f"Line {first + at}: {brief(block[at])} is not a cue's times.",
                "write them as 00:00:01.000 --> 00:00:02.500.",
            )
        if inner := next((i for i, line in enumerate(block[at + 1 :], at + 1) if ARROW.match(line)), None):
            raise LabelsError(f"Line {first + inner}: no blank line precedes this cue.", "add one.")
        yield block[0] if at else "", _seconds(match[1]), _seconds(match[6]), block[at + 1 :]


def _seconds(text: str) -> float:
    """Convert a text that TIME matches to seconds."""
    hours, minutes, seconds, part = TIME.fullmatch(text).groups()  # type: ignore[union-attr]
    unit = 10 ** len(part)
    # a single division, so that the same digits give the same number in all formats
    return (((int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)) * unit + int(part)) / unit


def _without(opening: str, closing: str, text: str) -> str:
    """Remove everything from an opening, a regular expression, to the next closing, a character, from a text."""
    # not from the text after the last closing: there, each of many openings would search until the end
    head, last, tail = text.rpartition(closing)
    return re.sub(f"{opening}[^{closing}]*{closing}", "", head + last) + tail

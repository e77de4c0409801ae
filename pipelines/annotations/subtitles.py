"""Subtitles: WebVTT, SubRip and Advanced SubStation Alpha; one cue per action, several at once where they overlap."""

import html
import re
from collections.abc import Iterator, Sequence
from itertools import chain
from urllib.parse import quote, unquote

from lstr.errors import brief
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, plain_line
from lstr.pipelines.annotations.format import FILES, VideoText
from lstr.pipelines.reports.palette import colours_of

TIME = re.compile(r"(?:(\d{1,9}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})")
ARROW = re.compile(rf"\s*({TIME.pattern})\s*-->\s*({TIME.pattern})")
TIMED = re.compile(rf"\s*{TIME.pattern}")
"""How a line begins that is likely of a cue's times."""
NO_CUE = re.compile(r"(NOTE|STYLE|REGION)(\s|$)")
"""How a block of WebVTT begins that is likely no cue."""
SCORE = re.compile(r"score=([0-9.eE+-]+)")
SRT_TAG = re.compile(r"</?(?:b|i|u|s|font)(?=[\s>])")
"""How a tag begins that players of SubRip know."""

ASS_HEADER = """\
[Script Info]
; Times in 1/100 s; the score of an action is in the Name field
ScriptType: v4.00+
PlayResX: 1280
PlayResY: 720
WrapStyle: 2
ScaledBorderAndShadow: yes

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, Bold, Italic, \
Underline, StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, Alignment, MarginL, MarginR, \
MarginV, Encoding
"""


def to_vtt(video: AnnotatedVideo, classes: Sequence[str] = ()) -> str:
    """WebVTT, times in milliseconds; a cue's identifier carries its number and score, which players do not show."""
    cues = ["WEBVTT\n"]
    for i, a in enumerate(video.segments, 1):
        score = "" if a.score is None else f" score={a.score:g}"
        cues.append(f"{i}{score}\n{_arrow(a, '.')}\n{html.escape(plain_line(a.label), quote=False)}\n")
    return "\n".join(cues)


def from_vtt(text: str) -> tuple[AnnotatedVideo, tuple[str, ...]]:
    """A WebVTT file; notes, styles and tags are left out. Raises AnnotationError."""
    if not text.startswith("WEBVTT"):
        raise AnnotationError(
            "The file does not begin with WEBVTT.", "give a WebVTT file, or name its format with --from."
        )
    segments = []
    for before, start, end, lines in _cues(text):
        label = html.unescape(_without("<", ">", " ".join(lines)))
        if label.strip():
            segments.append(Segment(start, end, label.strip(), _score(before)))
    return AnnotatedVideo(tuple(segments)), ()


def to_srt(video: AnnotatedVideo, classes: Sequence[str] = ()) -> str:
    """SubRip, times in milliseconds; it has no place for a score."""
    cues = (f"{i}\n{_arrow(a, ',')}\n{plain_line(a.label)}\n" for i, a in enumerate(video.segments, 1))
    return "\n".join(cues)


def from_srt(text: str) -> tuple[AnnotatedVideo, tuple[str, ...]]:
    """A SubRip file; tags of the kinds players know are left out. Raises AnnotationError."""
    segments = []
    for _, start, end, lines in _cues(text):
        label = _without(r"\{\\", "}", _without(SRT_TAG, ">", " ".join(lines))).strip()
        if label:
            segments.append(Segment(start, end, label))
    if not segments and text.strip():
        raise AnnotationError("The file holds no cue.", "give a SubRip file, or name its format with --from.")
    return AnnotatedVideo(tuple(segments)), ()


def to_ass(video: AnnotatedVideo, classes: Sequence[str]) -> str:
    """Advanced SubStation Alpha, times in 1/100 s: one style per class, so that each keeps its colour."""
    styles, events = [], []
    for label, colour in colours_of(classes).items():
        red, green, blue = (colour[k : k + 2].upper() for k in (1, 3, 5))
        look = f"&H00{blue}{green}{red},&H00FFFFFF,&H00000000,&H80000000,-1,0,0,0,100,100,0,0,1,3,1,2,20,20,24,1"
        styles.append(f"Style: {_field(label)},Sans,44,{look}")
    for a in video.segments:
        text = a.label.replace("{", "(").replace("}", ")").replace("\\", "/")
        facts = [] if a.score is None else [f"score={a.score:g}"]
        facts += [f"label={_field(a.label)}"] if plain_line(text) != a.label else []
        start, end = _clock(a.start, 100), _clock(max(a.end, a.start + 0.01), 100)
        events.append(f"Dialogue: 0,{start},{end},{_field(a.label)},{';'.join(facts)},0,0,0,,{plain_line(text)}")
    return (
        ASS_HEADER
        + "".join(f"{line}\n" for line in styles)
        + "\n[Events]\nFormat: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
        + "".join(f"{line}\n" for line in events)
    )


def from_ass(text: str) -> tuple[AnnotatedVideo, tuple[str, ...]]:
    """An ASS or SSA file, and the classes that its styles name where it is one of ours. Raises AnnotationError."""
    fields: list[str] = []
    segments, styles, section = [], [], ""
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if line.startswith("["):
            section = line.strip().lower()
        elif section == "[events]" and key == "Format":
            fields = [name.strip().lower() for name in value.split(",")]
        elif section.endswith("styles]") and key == "Style":
            styles.append(unquote(value.split(",")[0].strip()))
        elif section == "[events]" and key == "Dialogue":
            row = dict(zip(fields, value.split(",", len(fields) - 1), strict=False))
            if not {"start", "end", "text"} <= row.keys():
                raise AnnotationError("A dialogue line lacks fields of its format.", "write the file again.")
            facts = dict(part.partition("=")[::2] for part in row.get("name", row.get("actor", "")).split(";"))
            shown = _without(r"\{", "}", row["text"]).replace("\\N", " ").replace("\\n", " ").replace("\\h", " ")
            label = unquote(facts["label"]) if facts.get("label") else shown.strip()
            score = _score(row.get("name", ""))
            segments.append(Segment(_seconds(row["start"]), _seconds(row["end"]), label, score))
    if "[events]" not in text.lower():
        raise AnnotationError("The file has no [Events].", "give an ASS file, or name its format with --from.")
    ours = {a.label for a in segments} <= set(styles)
    return AnnotatedVideo(tuple(segments)), tuple(styles) if ours else ()


def _cues(text: str) -> Iterator[tuple[str, float, float, list[str]]]:
    """(line before the times, start, end, lines after them) of each cue; blocks without times are no cues.

    Raises AnnotationError, with the line, for times that are none of a cue, and for a cue that no blank line is before.
    """
    for number, lines in _blocks(text.replace("\r\n", "\n").replace("\r", "\n")):
        is_cue = not NO_CUE.match(lines[0])
        at = next((i for i, line in enumerate(lines[:2]) if "-->" in line or (is_cue and TIMED.match(line))), None)
        if at is None or re.match(r"NOTE(\s|$)", lines[0]):
            continue
        match = ARROW.match(lines[at])
        if not match:
            raise AnnotationError(
                f"Line {number + at}: {brief(lines[at])} is no cue's times.",
                "write them as 00:00:01.000 --> 00:00:02.500.",
            )
        if inner := next((i for i, line in enumerate(lines[at + 1 :], at + 1) if ARROW.match(line)), None):
            raise AnnotationError(f"Line {number + inner}: no blank line is before this cue.", "put one before it.")
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


def _arrow(a: Segment, point: str) -> str:
    # a cue must end after it starts
    return " --> ".join(_clock(t, 1000).replace(".", point) for t in (a.start, max(a.end, a.start + 0.001)))


def _clock(seconds: float, unit: int) -> str:
    """h:mm:ss.cc for hundredths, hh:mm:ss.mmm for thousandths of a second."""
    whole, part = divmod(round(seconds * unit), unit)
    hours, minutes, rest = whole // 3600, whole // 60 % 60, whole % 60
    if unit == 100:
        return f"{hours}:{minutes:02}:{rest:02}.{part:02}"
    return f"{hours:02}:{minutes:02}:{rest:02}.{part:03}"


def _seconds(text: str) -> float:
    match = TIME.fullmatch(text.strip())
    if not match:
        raise AnnotationError(f"{brief(text.strip())} is no time.", "write it as 0:00:01.25.")
    hours, minutes, seconds, part = match.groups()
    unit = 10 ** len(part)
    # one division, so that the same digits give the same number from any format
    return (((int(hours or 0) * 60 + int(minutes)) * 60 + int(seconds)) * unit + int(part)) / unit


def _field(text: str) -> str:
    """Text for a field between commas: what would end it is percent-encoded."""
    return re.sub(r"[%,;]|[^\S ]", lambda match: quote(match[0], safe=""), text)


def _score(text: str) -> float | None:
    found = SCORE.search(text)
    return float(found[1]) if found else None


VTT = VideoText("vtt", ".vtt", FILES | {"scores"}, from_vtt, to_vtt)
SRT = VideoText("srt", ".srt", FILES, from_srt, to_srt, encoded=False)
ASS = VideoText(
    "ass",
    ".ass",
    FILES | {"scores", "classes without segments"},
    from_ass,
    to_ass,
    lambda file: file.ending in (".ass", ".ssa"),
    encoded=False,
)

"""Tables of segments: CSV, TSV, and Audacity label tracks."""

import csv
import io
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from lstr.errors import brief
from lstr.labels.segment import Segment, clock_seconds
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet, plain_line
from lstr.pipelines.annotations.format import AGGREGATED, EVERYTHING, FILES, ConvertOptions, File, TextFormat, VideoText

COLUMNS = {
    "video": ("video", "video_id", "video_name", "id", "file", "filename", "video-id", "media file name"),
    "subset": ("subset", "split", "set"),
    "duration": ("duration",),
    "start": ("start", "begin", "from", "onset", "t-start"),
    "end": ("end", "stop", "to", "offset", "t-end"),
    "label": ("label", "class", "action", "activity", "behavior", "behaviour", "category", "event"),
    "score": ("score", "confidence", "conf"),
}
"""Names that a column may have."""
TIMED = ("duration", "start", "end")
"""Columns whose name a unit may follow; they are in milliseconds where that is `_ms`."""
UNIT = re.compile(r"([_ ](ms|sec|seconds|time|timestamp|\(s\))){0,4}$")
FRAME_COLUMNS = {
    "start": ("start_frame", "begin_frame", "frame_start", "first_frame"),
    "end": ("end_frame", "stop_frame", "frame_end", "last_frame"),
}
"""Names of columns that count frames, which are read where it is known how many a second has."""

TOTALS = ("total", "totals", "grand total", "subtotal", "sum", "average", "mean", "summe", "gesamt", "somme", "suma")
"""What spreadsheets write before a row that sums up the others."""
BORIS = ("behavior type", "status")
"""Columns of BORIS's tabular export, which say START or STOP."""

TIMES = re.compile(r"[-+\d.,eE ]+\t[-+\d.,eE ]+(\t|$)")
"""How a line of a label track begins."""


class Csv(TextFormat):
    """A table with commas, times in seconds or as h:mm:ss; a video without segments has one row, without a label."""

    name, suffix = "csv", ".csv"
    holds = EVERYTHING - {"classes without segments"}
    holds_many = True
    delimiter, unit, scale = ",", "", 1

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        text, notes = file.table
        return replace(from_csv(text, video_id, in_frames=options.frames is not None), notes=notes)

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        held = annotated.held()
        optional = [column for column in ("subset", "duration") if f"{column}s" in held]
        names = ["video", *optional, "start", "end", "label", "score"]
        out = io.StringIO()
        table = csv.writer(out, delimiter=self.delimiter, lineterminator="\n")
        table.writerow([name + self.unit if name in TIMED else name for name in names])
        for video_id, video in annotated.videos.items():
            whole = {"video": video_id, "subset": video.subset, "duration": number_text(video.duration, self.scale)}
            for a in video.segments:
                times = {"start": number_text(a.start, self.scale), "end": number_text(a.end, self.scale)}
                row = whole | times | {"label": a.label, "score": number_text(a.score)}
                table.writerow([row.get(name) for name in names])
            if not video.segments:
                table.writerow([whole.get(name) for name in names])
        return out.getvalue()


class Tsv(Csv):
    """A table with tabs and times in whole milliseconds, which every locale reads alike."""

    name, suffix = "tsv", ".tsv"
    delimiter, unit, scale = "\t", "_ms", 1000


def from_csv(text: str, name: str, in_frames: bool = False) -> AnnotationSet:
    """A table with a header, tabs or commas or semicolons between; `name` is the video's where no column names it.

    Without an end, a segment lasts for its duration.
    With in_frames, columns that say that they count frames go before others. Raises AnnotationError.
    """
    first = text.split("\n", 1)[0]
    delimiter = max("\t,;", key=first.count)
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        header = [cell.strip().lower() for cell in next(rows, [])]
        at = _columns(header, in_frames)
        scales = {column: 1000 if header[i].endswith("_ms") else 1 for column, i in at.items()}
        ends = ("end",) if "end" in at else ("duration",)
        found: dict[str, dict[str, Any]] = {}
        for line, cells in enumerate(rows, 2):
            row = {column: cells[i].strip() if i < len(cells) else "" for column, i in at.items()}
            if not any(row.values()):
                continue
            _refuse_totals(header, cells, line, all(row.get(column, "0") for column in (*ends, "start", "label")))
            entry = found.setdefault(row.get("video") or name, {"segments": []})
            if row.get("subset"):
                entry["subset"] = row["subset"]
            if row.get("duration") and "end" in at:
                entry["duration"] = seconds_of(row["duration"], line, scales["duration"])
            if row["label"]:
                start, end = (seconds_of(row[key], line, scales[key]) for key in ("start", *ends))
                end += 0 if "end" in at else start
                score = number_of(row["score"], line) if row.get("score") else None
                entry["segments"].append(Segment(start, end, row["label"], score))
    except csv.Error as error:
        raise AnnotationError(f"The table cannot be read ({error}).", "save it again as CSV in UTF-8.") from error
    return AnnotationSet({video: AnnotatedVideo(**entry) for video, entry in found.items()})


def _columns(header: list[str], in_frames: bool) -> dict[str, int]:
    """Which column is what, by their names. Raises AnnotationError where one that must be is missing."""
    at: dict[str, int] = {}
    for known in (FRAME_COLUMNS, COLUMNS) if in_frames else (COLUMNS,):
        for column, names in known.items():
            for i, cell in enumerate(header):
                if (UNIT.sub("", cell) if column in TIMED else cell) in names:
                    at.setdefault(column, i)
    missing = {"start", "end", "label"} - at.keys()
    if {"start", "duration"} <= at.keys() and not any(cell in FRAME_COLUMNS["end"] for cell in header):
        missing -= {"end"}  # a duration beside a start alone is the segment's
    if missing and "behavior" in header and any(cell in header for cell in BORIS):
        raise AnnotationError("The table is BORIS's tabular export, with a row for each start and stop.", AGGREGATED)
    counting = [cell for cell in header if any(cell in FRAME_COLUMNS.get(column, ()) for column in missing)]
    if counting:
        raise AnnotationError(
            f"The table counts frames ({', '.join(counting)}), and does not say how many a second has.",
            "make seconds of them, 30 being the videos' rate: `lstr labels convert FILE --frames 30 -o labels.json`.",
        )
    if missing:
        raise AnnotationError(
            f"The table has no column {', '.join(sorted(missing))} (it has: {', '.join(header) or 'none'}).",
            "give it a first line such as: video,start,end,label",
        )
    return at


def _refuse_totals(header: list[str], cells: list[str], line: int, is_segment: bool) -> None:
    """Raise AnnotationError, with line and cell, for a row of totals that would be read as a video or a segment."""
    for column, cell in zip(header, cells, strict=False):
        if not is_segment and cell.strip(" :\t").lower() in TOTALS:
            raise AnnotationError(
                f"Line {line}: {brief(cell)} in the column {column!r} makes it a row of totals, which is no segment.",
                "delete this line of the table.",
            )


def to_audacity(video: AnnotatedVideo, classes: Sequence[str] = ()) -> str:
    """A label track: start, end and label with tabs between, seconds."""
    return "".join(f"{number_text(a.start)}\t{number_text(a.end)}\t{plain_line(a.label)}\n" for a in video.segments)


def from_audacity(text: str) -> tuple[AnnotatedVideo, tuple[str, ...]]:
    r"""A label track; the lines of frequencies, which begin with \, are left out. Raises AnnotationError."""
    segments = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("\\"):
            continue
        start, end, label = (*line.split("\t", 2), "", "")[:3]
        segments.append(Segment(number_of(start, number), number_of(end, number), label.strip()))
    return AnnotatedVideo(tuple(segments)), ()


def first_line(text: str) -> str:
    """The first line that is not blank; empty without any."""
    return next((line for line in text.splitlines() if line.strip()), "")


def number_text(value: float | None, scale: int = 1) -> str:
    """The shortest text that reads back as the same number; whole milliseconds for a scale of 1000."""
    if value is None:
        return ""
    return str(round(value * scale)) if scale != 1 else repr(float(value)).removesuffix(".0")


def number_of(text: str, line: int) -> float:
    """The finite number that a cell of a line holds, also with a decimal comma. Raises AnnotationError."""
    try:
        number = float(text.strip().replace(",", "."))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise AnnotationError(
            f"Line {line}: {brief(text)} is no number.", "write times as seconds, such as 12.5, or as 0:00:12.5."
        )
    return number


def seconds_of(text: str, line: int, scale: float = 1) -> float:
    """The seconds of a cell: h:mm:ss, or a number of which a second has `scale`. Raises AnnotationError."""
    seconds = clock_seconds(text)
    return number_of(text, line) / scale if seconds is None else seconds


AUDACITY = VideoText(
    "audacity",
    ".audacity.txt",
    FILES,
    from_audacity,
    to_audacity,
    lambda file: file.ending == ".txt" and bool(TIMES.match(first_line(file.text))),
)

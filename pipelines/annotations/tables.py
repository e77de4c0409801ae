"""Tables of segments: CSV, TSV, and Audacity label tracks."""

import csv
import io
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lstr.errors import brief, few
from lstr.labels.label_set import Note
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet, plain_line
from lstr.pipelines.annotations.columns import TIMED, Column, Layout, Piece, layout_of
from lstr.pipelines.annotations.format import DEFAULTS, EVERYTHING, FILES, ConvertOptions, File, TextFormat, VideoText
from lstr.pipelines.annotations.rows import Rows, Table, delimiter_of, first_line, is_text, refuse_swallowed, surplus_of
from lstr.pipelines.annotations.times import Clock, number_of
from lstr.pipelines.reports.table import RUN, cell_of

TOTALS = ("total", "totals", "grand total", "subtotal", "sum", "average", "mean", "summe", "gesamt", "somme", "suma")
"""What spreadsheets write before a row that sums up the others."""

OWN = re.compile(r"video(,subset)?(,duration(_ms)?)?,start(_ms)?,end(_ms)?,label(,subject)?,score")
"""The header of a table as it is written here."""

ROUNDED = 0.1
"""By how much the duration that a row states may differ from its end less its start: times are rounded."""

DEEPEST_HEADER = 20
"""Lines of a table in which its header is looked for, where its first is none."""

TIMES = re.compile(r"[-+\d.,eE ]+\t[-+\d.,eE ]+(\t|$)")
"""How a line of a label track begins."""


class Csv(TextFormat):
    """A table with commas, times in seconds or as h:mm:ss; a video without segments has one row, without a label."""

    name, suffix = "csv", ".csv"
    holds = EVERYTHING - {"classes without segments"}
    holds_many = True
    delimiter, unit, scale = ",", "", 1

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        text, notes = file.text_and_notes
        return from_csv(text, video_id, options).noted(notes)

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        held = annotated.held()
        optional = [column for column in ("subset", "duration") if f"{column}s" in held]
        names = ["video", *optional, "start", "end", "label", *(["subject"] if "subjects" in held else []), "score"]
        out = io.StringIO()
        table = csv.writer(out, delimiter=self.delimiter, lineterminator="\n")
        table.writerow([name + self.unit if name in TIMED else name for name in names])
        for video_id, video in annotated.videos.items():
            whole = {
                "video": cell_of(video_id),
                "subset": cell_of(video.subset),
                "duration": number_text(video.duration, self.scale),
            }
            for a in video.segments:
                times = {"start": number_text(a.start, self.scale), "end": number_text(a.end, self.scale)}
                row = whole | times | {"label": cell_of(a.label), "score": number_text(a.score)}
                row |= {"subject": cell_of(a.subject)}
                table.writerow([row.get(name) for name in names])
            if not video.segments:
                table.writerow([whole.get(name) for name in names])
        return out.getvalue()


class Tsv(Csv):
    """A table with tabs and times in whole milliseconds, which every locale reads alike; or Excel's text."""

    name, suffix = "tsv", ".tsv"
    delimiter, unit, scale = "\t", "_ms", 1000

    def recognises(self, file: File) -> bool:
        if file.ending != ".txt":
            return super().recognises(file)
        return _is_header_line(first_line(file.text_and_notes[0]), DEFAULTS)


def from_csv(text: str, name: str, options: ConvertOptions = DEFAULTS) -> AnnotationSet:
    """A table with a header, tabs or commas or semicolons between; `name` is the video's where no column names it.

    Without an end, a segment lasts for its duration; a wide table has several in a row. Frames are counted at the rate
    of the video, or all are left as numbers of frames where the options have one rate. Raises AnnotationError.
    """
    return from_table(Rows(text), name, options)


def from_table(table: Table, name: str, options: ConvertOptions = DEFAULTS) -> AnnotationSet:
    """A table with a header whose rows are segments, as `from_csv` reads a text. Raises AnnotationError."""
    rows = iter(table)
    try:
        _, header = next(rows, (1, []))
        layout = _layout(header, table, options)
        surplus = surplus_of(table, layout)
        surplus.refuse()
        clock = Clock(options.frames, options.rate_of)
        found: dict[str, dict[str, Any]] = {}
        # what may be the video, with its first name and whether it has others
        names = {column: ("", False) for column in layout.unread} if "video" not in layout.whole else {}
        for line, cells in rows:
            refuse_swallowed(cells, line, layout, table.delimiter)
            if any(_cell(cells, column) for column in layout.columns()):
                _read_row(Row(cells, line, layout, clock), header, name, found)
                names = {
                    column: (first or cell, several or first not in ("", cell))
                    for column, (first, several) in names.items()
                    if is_text(cell := _cell(cells, column))
                }
    except csv.Error as error:
        raise AnnotationError(f"The table cannot be read ({error}).", "save it again as CSV in UTF-8.") from error
    notes = (*layout.notes, *surplus.notes(), *_settle_durations(found))
    if names and any(entry["segments"] for entry in found.values()):
        others, likely = ", ".join(repr(column.name) for column in names), next(iter(names)).name
        if options.columns:
            raise AnnotationError(
                f"No column is named as that of the video, and it may be one of these: {others}.",
                f"name it with --columns video={likely}; where the file is of one video, delete what is not read.",
            )
        if any(several for _, several in names.values()):
            known = f"no column says of which video a row is, so that all are of {name!r}; not read: {others}"
            notes = (*notes, Note("one video", known))
    videos = {video: AnnotatedVideo(**entry) for video, entry in found.items()}
    return AnnotationSet(videos, (), notes)


def _layout(header: Sequence[str], table: Table, options: ConvertOptions) -> Layout:
    """What the columns are. Raises AnnotationError, which names the line of the header where lines are above it."""
    try:
        return layout_of(header, options.columns, options.frames is not None)
    except AnnotationError as error:
        lines = table.first_lines(DEEPEST_HEADER)
        if at := next((at for at, line in enumerate(lines) if _is_header_line(line, options)), 0):
            raise AnnotationError(
                f"The table does not begin with its header, which is in line {at + 1}.",
                f"delete all lines above {brief(lines[at])}.",
            ) from error
        raise


def _is_header_line(line: str, options: ConvertOptions) -> bool:
    """Whether a line names the columns of a table."""
    try:
        return is_header(next(csv.reader([line], delimiter=delimiter_of(line)), []), options)
    except csv.Error:
        return False


def is_header(cells: Sequence[str], options: ConvertOptions = DEFAULTS) -> bool:
    """Whether cells name the columns of a table of segments."""
    try:
        layout_of(cells, options.columns, False)
    except AnnotationError:
        return False
    return True


@dataclass(frozen=True)
class Row:
    """A line of a table, and what its columns are."""

    cells: Sequence[str]
    line: int
    layout: Layout
    clock: Clock

    def cell(self, column: Column | None) -> str:
        """What stands in a column; empty without one."""
        return _cell(self.cells, column)

    def whole(self, name: str) -> str:
        """What stands in a column of the video."""
        return text_of(self.cell(self.layout.whole.get(name)))

    def label_of(self, piece: Piece) -> str:
        """The class of a segment, empty where the row has none."""
        if isinstance(piece.label, str):
            return piece.label if self.cell(piece.start) or self.cell(piece.end) else ""
        is_one = len(self.layout.pieces) == 1 or self.cell(piece.start) or self.cell(piece.end)
        return text_of(self.cell(piece.label)) if is_one else ""

    def segment(self, piece: Piece, label: str, video_id: str) -> Segment:
        """A segment of the row. Raises AnnotationError."""
        start, end = (
            self.clock.time_of(self.cell(column), column, self.line, video_id) for column in (piece.start, piece.end)
        )
        score = number_of(self.cell(piece.score), self.line) if self.cell(piece.score) else None
        subject = text_of(self.cell(piece.subject))
        return Segment(start, start + end if piece.lasts else end, label, score, subject)

    def duration(self, video_id: str, segments: Sequence[Segment]) -> "Duration | None":
        """What the row, which has these segments, states as the video's duration. Raises AnnotationError."""
        cell = self.whole("duration")
        if not cell:
            return None
        frames = self.clock.frames or 1  # a duration is in seconds also where segments count frames
        seconds = self.clock.time_of(cell, self.layout.whole["duration"], self.line, video_id)
        seconds /= frames if ":" in cell else 1
        counts = any(piece.start.counts_frames for piece in self.layout.pieces)
        rate = self.clock.frames or (self.clock.rate_of(video_id) if counts else None) or 1
        lasting = [(s.end - s.start) / frames for s in segments]
        is_own = any(abs(seconds - one * unit) <= ROUNDED for one in lasting for unit in (1, rate))
        return Duration(seconds, is_own, max((s.start / frames for s in segments), default=0.0))

    def is_timed(self, piece: Piece) -> bool:
        """Whether a segment begins or ends; how long something lasts may be said of the video."""
        return bool(self.cell(piece.start) or (self.cell(piece.end) and not piece.lasts))

    @property
    def is_of_a_video(self) -> bool:
        """Whether no cell has anything but what is said of the whole video."""
        of_it = {column.at for column in self.layout.whole.values()}
        return not any(cell.strip() for at, cell in enumerate(self.cells) if at not in of_it)

    def is_full(self, piece: Piece) -> bool:
        """Whether all that a segment needs is there."""
        return all((self.cell(piece.start), self.cell(piece.end), self.label_of(piece)))


@dataclass(frozen=True)
class Duration:
    """What a row states as its video's duration."""

    seconds: float
    is_own: bool
    """Whether a segment of the row lasts as long"""
    start: float
    """When the last segment of the row starts (s)"""


def _settle_durations(found: Mapping[str, dict[str, Any]]) -> tuple[Note, ...]:
    """Give videos the durations that their rows state; a note where rows state those of their segments, or differ."""
    stated = {video: one for video, entry in found.items() if (one := entry.pop("durations"))}
    passed = [video for video, one in stated.items() if len({row.seconds for row in one}) > 1 or _is_of_segments(one)]
    if passed and _is_of_segments([row for one in stated.values() for row in one]):
        passed = list(stated)
    for video in stated.keys() - set(passed):
        found[video]["duration"] = stated[video][0].seconds
    if not passed:
        return ()
    sentence = (
        f"the column 'duration' is not the length of {few(passed)}: it differs from row to row, or is how long a "
        "segment lasts"
    )
    return (Note("duration", sentence),)


def _is_of_segments(durations: Sequence[Duration]) -> bool:
    """Whether durations are those of their segments, which a whole video that begins at 0 may have too."""
    return all(row.is_own for row in durations) and any(row.start > ROUNDED for row in durations)


def _cell(cells: Sequence[str], column: Column | None) -> str:
    return cells[column.at].strip() if column and column.at < len(cells) else ""


def _read_row(row: Row, header: Sequence[str], name: str, found: dict[str, dict[str, Any]]) -> None:
    """Put a row into the video that it is of. Raises AnnotationError."""
    _refuse_totals(header, row)
    if "video" in row.layout.whole and not row.whole("video"):
        raise AnnotationError(
            f"Line {row.line}: the name of the video is missing.",
            "write it into each row, for a spreadsheet leaves it out below merged cells; delete rows of totals.",
        )
    video_id = row.whole("video") or name
    entry = found.setdefault(video_id, {"segments": [], "durations": []})
    if subset := row.whole("subset"):
        entry["subset"] = subset
    segments = []
    for piece in row.layout.pieces:
        label = row.label_of(piece)
        if not label and row.is_timed(piece) and isinstance(piece.label, Column):
            raise AnnotationError(
                f"Line {row.line}: the label is missing.",
                f"write one under {header[piece.label.at].strip()!r}, or delete the times beside it.",
            )
        if label:
            segments.append(row.segment(piece, label, video_id))
    entry["segments"] += segments
    if duration := row.duration(video_id, segments):
        entry["durations"].append(duration)


def _refuse_totals(header: Sequence[str], row: Row) -> None:
    """Raise AnnotationError, with line and cell, for a row of totals that would be read as a video or a segment."""
    if any(map(row.is_full, row.layout.pieces)) or (OWN.fullmatch(",".join(header)) and row.is_of_a_video):
        return
    for column, cell in zip(map(str.strip, header), row.cells, strict=False):
        if cell.strip(" :\t").lower() in TOTALS:
            raise AnnotationError(
                f"Line {row.line}: {brief(cell)} in the column {column!r} makes it a row of totals, which is no "
                "segment.",
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


def text_of(cell: str) -> str:
    """The text that `cell_of` has made a cell of."""
    return cell[1:] if cell.startswith("'") and RUN.match(cell) else cell


def number_text(value: float | None, scale: int = 1) -> str:
    """The shortest text that reads back as the same number; whole milliseconds for a scale of 1000."""
    if value is None:
        return ""
    return str(round(value * scale)) if scale != 1 else repr(float(value)).removesuffix(".0")


AUDACITY = VideoText(
    "audacity",
    ".audacity.txt",
    FILES,
    from_audacity,
    to_audacity,
    lambda file: file.ending == ".txt" and bool(TIMES.match(first_line(file.text_and_notes[0]))),
    encoded=False,
)

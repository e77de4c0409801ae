"""Tables of segments: CSV, and tables with tabs."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from lstr.errors import LabelsError, brief, few
from lstr.labels.label_set import Note
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.columns import SAMPLE, Column, Layout, layout_of, unknown_columns
from lstr.pipelines.annotations.format import DEFAULTS, EVERYTHING, ConvertOptions, File, Format, TextFormat
from lstr.pipelines.annotations.rows import TIME, Rows, delimiter_of, first_line, is_text, unclosed
from lstr.pipelines.annotations.times import Clock, number_of
from lstr.pipelines.pages.table import RUN, cell_of

# By how much the duration that a row states may differ from its end less its start: times are rounded.
ROUNDED = 0.1


class Csv(TextFormat):
    """A table with commas, times in seconds or as h:mm:ss; a video without segments has one row, without a label."""

    name, suffix = "csv", ".csv"
    holds = EVERYTHING - {"classes without segments"}
    holds_many = True
    counts_frames = True

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        text, notes = file.text_and_notes
        return from_csv(text, video_id, options).noted(notes)

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        held = annotated.held()
        optional = [column for column in ("subset", "duration") if f"{column}s" in held]
        names = ["video", *optional, "start", "end", "label", *(["subject"] if "subjects" in held else []), "score"]
        out = io.StringIO()
        table = csv.writer(out, lineterminator="\n")
        table.writerow(names)
        for video_id, video in annotated.videos.items():
            whole = {
                "video": cell_of(video_id),
                "subset": cell_of(video.subset),
                "duration": number_text(video.duration),
            }
            for a in video.segments:
                row = whole | {"start": number_text(a.start), "end": number_text(a.end), "score": number_text(a.score)}
                row |= {"label": cell_of(a.label), "subject": cell_of(a.subject)}
                table.writerow([row.get(name) for name in names])
            if not video.segments:
                table.writerow([whole.get(name) for name in names])
        return out.getvalue()


class Tsv(Format):
    """A table with tabs; `.txt` is Excel's text."""

    name, suffix = "tsv", ".tsv"
    counts_frames = True

    def recognises(self, file: File) -> bool:
        if file.ending != ".txt":
            return super().recognises(file)
        return _is_header_line(first_line(file.text_and_notes[0]))

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        text, notes = file.text_and_notes
        return from_csv(text, video_id, options).noted(notes)


def from_csv(text: str, name: str, options: ConvertOptions = DEFAULTS) -> AnnotationSet:
    """A table with a header, tabs or commas or semicolons between; `name` is the video's where no column names it.

    Without an end, a segment lasts for its duration. Frames are counted at the rate of the video, or at the one that
    the options have. Raises LabelsError.
    """
    table = Rows(text)
    rows = iter(table)
    try:
        _, header = next(rows, (1, []))
        layout = layout_of(header, options.columns, options.frames is not None)
        if layout is None:
            raise unknown_columns(header, (cells for _, cells in islice(table, 1, SAMPLE)))
        clock = Clock(options.frames, options.rate_of)
        found: dict[str, dict[str, Any]] = {}
        unread: dict[Column, set[str]] = {column: set() for column in layout.unread}
        for line, cells in rows:
            _refuse_swallowed(cells, line, layout, table.delimiter)
            _refuse_surplus(cells[len(header) :], line)
            row = Row(cells, line, layout, clock)
            if any(map(row.cell, layout.columns())):
                _read_row(row, name, found)
                for column, texts in unread.items():
                    if len(texts) < 2 and is_text(row.cell(column)):  # two texts show that it may name the video
                        texts.add(row.cell(column))
    except csv.Error as error:
        raise LabelsError(f"The table cannot be read ({error}).", "save it again as CSV in UTF-8.") from error
    notes = _settle_durations(found)
    if unread:
        sentence = f"columns that are not read: {', '.join(repr(column.name) for column in unread)}"
        if "video" not in layout.others and any(len(texts) > 1 for texts in unread.values()):
            sentence = f"no column says of which video a row is, so that all are of {name!r}; {sentence}"
        notes = (*notes, Note("columns", sentence))
    return AnnotationSet({video: AnnotatedVideo(**entry) for video, entry in found.items()}, (), notes)


def _is_header_line(line: str) -> bool:
    """Whether a line names the columns of a table."""
    try:
        cells = next(csv.reader([line], delimiter=delimiter_of(line)), [])
        return layout_of(cells, {}) is not None
    except (csv.Error, LabelsError):
        return False


def _refuse_swallowed(cells: Sequence[str], line: int, layout: Layout, delimiter: str) -> None:
    """Raise LabelsError where a cell holds several lines that are rows of their own, and no remark.

    line: where the row begins. A cell that is read never has several lines.
    """
    if not any("\n" in cell or "\r" in cell for cell in cells):
        return
    read = {column.at for column in layout.columns()}
    times = (layout.start.at, layout.end.at)
    for at, cell in enumerate(cells):
        later = [inner.split(delimiter) for inner in cell.strip().splitlines()[1:]]
        is_row = any(all(t < len(inner) and TIME.fullmatch(inner[t]) for t in times) for inner in later)
        if later and (at in read or is_row):
            raise unclosed(line)
        line += cell.count("\n")


def _refuse_surplus(surplus: Sequence[str], line: int) -> None:
    """Raise LabelsError for cells without a header: a decimal comma may have shifted all that follows it."""
    if any(map(str.strip, surplus)):
        raise LabelsError(
            f"Line {line} has more cells than the header has names, the first of which is {brief(surplus[0])}.",
            "name each column in the first line; if numbers have decimal commas, save the table with semicolons "
            "between its cells.",
        )


@dataclass(frozen=True)
class Duration:
    """What a row states as its video's duration."""

    seconds: float
    is_own: bool
    """Whether the segment of the row lasts as long"""
    start: float
    """When the segment of the row starts (s)"""


@dataclass(frozen=True)
class Row:
    """A line of a table, and what its columns are."""

    cells: Sequence[str]
    line: int
    layout: Layout
    clock: Clock

    def cell(self, column: Column | None) -> str:
        """What stands in a column; empty without one."""
        return self.cells[column.at].strip() if column and column.at < len(self.cells) else ""

    def other(self, name: str) -> str:
        """The text of one of the columns `Layout.others`."""
        return text_of(self.cell(self.layout.others.get(name)))

    def segment(self, video_id: str) -> Segment | None:
        """The segment of the row, None where it has none. Raises LabelsError."""
        layout = self.layout
        label = text_of(self.cell(layout.label))
        if not label:
            if self.cell(layout.start) or (self.cell(layout.end) and not layout.lasts):
                raise LabelsError(
                    f"Line {self.line}: the label is missing.",
                    f"write one under {layout.label.name!r}, or delete the times beside it.",
                )
            return None
        start, end = (
            self.clock.time_of(
                self.cell(column),
                self.line,
                video_id,
                column.scale,
                column.counts_frames or self.clock.frames is not None,
            )
            for column in (layout.start, layout.end)
        )
        score = self.cell(layout.others.get("score"))
        return Segment(
            start,
            start + end if layout.lasts else end,
            label,
            number_of(score, self.line) if score else None,
            self.other("subject"),
        )

    def duration(self, video_id: str, segment: Segment | None) -> Duration | None:
        """What the row, which has this segment, states as the video's duration. Raises LabelsError."""
        column = self.layout.duration
        if not column or not self.cell(column):
            return None
        seconds = self.clock.time_of(self.cell(column), self.line, video_id, column.scale)
        if segment is None:
            return Duration(seconds, False, 0.0)
        # a duration of the segment may count frames as its start does
        counts = self.layout.start.counts_frames or self.clock.frames is not None
        units = (1.0, (self.clock.rate("The table counts frames", video_id) if counts else 1.0))
        is_own = any(abs(seconds - (segment.end - segment.start) * unit) <= ROUNDED for unit in units)
        return Duration(seconds, is_own, segment.start)


def _read_row(row: Row, name: str, found: dict[str, dict[str, Any]]) -> None:
    """Put a row into the video that it is of. Raises LabelsError."""
    if "video" in row.layout.others and not row.other("video"):
        raise LabelsError(
            f"Line {row.line}: the name of the video is missing.",
            "write it into each row, for a spreadsheet leaves it out below merged cells; delete rows of totals.",
        )
    video_id = row.other("video") or name
    entry = found.setdefault(video_id, {"segments": [], "durations": []})
    if subset := row.other("subset"):
        entry["subset"] = subset
    segment = row.segment(video_id)
    if segment:
        entry["segments"].append(segment)
    if duration := row.duration(video_id, segment):
        entry["durations"].append(duration)


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


def text_of(cell: str) -> str:
    """The text that `cell_of` has made a cell of."""
    return cell[1:] if cell.startswith("'") and RUN.match(cell) else cell


def number_text(value: float | None) -> str:
    """The shortest text that reads back as the same number; empty for None."""
    return "" if value is None else repr(float(value)).removesuffix(".0")

"""Tables of segments as CSV or TSV, and tables of 0 and 1 with a row per frame and a column per action."""

import csv
import io
from collections.abc import Callable
from functools import partial
from itertools import islice

import numpy as np

from lstr.errors import LabelsError, brief, few
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Note, VideoLabels, runs, subset_named
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import EVERYTHING, ConvertOptions, File, Format
from lstr.pipelines.annotations.tables import (
    IN_FRAMES,
    NAMES,
    TIME,
    Column,
    Columns,
    Faults,
    Rows,
    first_line,
    layout_of,
    number_of,
    parse_time,
    unclosed,
    unknown_columns,
)
from lstr.pipelines.pages.table import FORMULA, cell_of

# Tolerance in seconds for the duration in a row, compared with end minus start, because times are rounded.
ROUNDED_S = 0.1
# Names of the column with the time or the frame number of a row, in a table of 0 and 1
MOMENTS = ("time", "frame")
VALUES = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
TAIL_S = 0.25  # one chunk; a shorter part of the video after the last row is a rounding error
# Number of rows for recognising a table of 0 and 1
BINARY_SAMPLE = 50
# Columns of text; a cell may be escaped
OTHERS = ("video", "subset", "score", "subject")
# Values of the column `duration` by video: its seconds, and the segment of the row
Durations = dict[str, list[tuple[float, Segment | None]]]


class Tsv(Format):
    """A table with tabs; Excel exports it as `.txt`."""

    name, suffix = "tsv", ".tsv"
    counts_frames = True

    def recognises(self, file: File) -> bool:
        if file.ending != ".txt":
            return super().recognises(file)
        line = first_line(file.text)
        try:
            return layout_of(next(iter(Rows(line)), (1, []))[1], {}) is not None
        except LabelsError:  # a text that begins with a quotation mark
            return False

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        segments: dict[str, list[Segment]] = {}
        subsets: dict[str, str] = {}
        durations: Durations = {}
        table = Rows(file.text)
        rows = iter(table)
        _, header = next(rows, (1, []))
        columns = layout_of(header, options.columns, options.frames is not None)
        if columns is None:
            raise unknown_columns(header, options.columns)
        lasts = columns["end"].lasts
        read = {column.at for column in columns.values()}
        unread: dict[Column, set[str]] = {
            Column(at, name): set()
            for at, name in enumerate(header)
            if name.strip() and at not in read and (name.strip().casefold() not in NAMES or name in header[:at])
        }
        rate_of = partial(file.frame_rate, options)
        faults = Faults()
        for line, cells in rows:
            with faults.collect():
                _check_cells(cells, line, columns, len(header), table.delimiter)
            row = {at: _cell(cells, at) for at in read}
            if not any(row.values()):
                continue
            others = {name: text_of(row[columns[name].at]) for name in OTHERS if name in columns}
            with faults.collect():
                if "video" in others and not others["video"]:
                    raise LabelsError(
                        f"Line {line}: the name of the video is missing.",
                        "write it into each row: a spreadsheet drops it below merged cells; delete rows of totals.",
                    )
            video = others.get("video") or video_id
            if subset := others.get("subset"):
                with faults.collect("subset"):
                    if subset_named(subset) != subset_named(before := subsets.setdefault(video, subset)):
                        raise LabelsError(
                            f"Line {line}: {video!r} is in the subset {subset!r} here, and in {before!r} above.",
                            "write one subset in all rows of a video: it is trained on or held out as a whole.",
                        )
            label = text_of(row[columns["label"].at])
            first, second = row[columns["start"].at], row[columns["end"].at]
            with faults.collect():
                if not label and (first or (second and not lasts)):
                    raise LabelsError(
                        f"Line {line}: the label is missing.",
                        f"write one under {columns['label'].name!r}, or delete the times next to it.",
                    )
            segment = None
            if label:
                times = []
                for column, cell in ((columns["start"], first), (columns["end"], second)):
                    with faults.collect(column.name):
                        times.append(parse_time(cell, line, column, partial(rate_of, video)))
                score = None
                with faults.collect("score"):
                    score = number_of(others["score"], line) if others.get("score") else None
                start, end = times if len(times) == 2 else (0.0, 0.0)  # a fault stops the reading below
                end = start + end if lasts else end
                segment = Segment(start, end, label, score, others.get("subject", ""))
            segments.setdefault(video, []).extend([segment] if segment else [])
            if (duration := columns.get("duration")) and (cell := row[duration.at]):
                with faults.collect(duration.name):
                    seconds = parse_time(cell, line, duration, partial(rate_of, video))
                    durations.setdefault(video, []).append((seconds, segment))
            for column, texts in unread.items():
                if len(texts) < 2 and (cell := _cell(cells, column.at)) and not TIME.fullmatch(cell):
                    texts.add(cell)  # with two different texts the column may be the video
        faults.stop()
        lengths, notes = _lengths(durations, columns, rate_of)
        if unread:
            sentence = f"ignored columns: {', '.join(repr(column.name) for column in unread)}"
            if "video" not in columns and any(len(texts) > 1 for texts in unread.values()):
                sentence = f"no column names the video, so all rows belong to {video_id!r}; {sentence}"
            notes.append(Note("columns", sentence))
        videos = {i: VideoLabels(subsets.get(i, ""), lengths.get(i), tuple(found)) for i, found in segments.items()}
        return AnnotationSet(videos, (), tuple(notes))


class Csv(Tsv):
    """A table with commas and times in seconds or as h:mm:ss; a video without segments has one row without a label."""

    name, suffix = "csv", ".csv"
    holds = EVERYTHING - {"classes without segments"}
    holds_many = True

    def recognises(self, file: File) -> bool:
        return file.ending == self.suffix

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        held = annotated.extras()
        optional = [column for column in ("subset", "duration") if f"{column}s" in held]
        names = ["video", *optional, "start", "end", "label", *(["subject"] if "subjects" in held else []), "score"]
        out = io.StringIO()
        table = csv.DictWriter(out, names, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        for video_id, video in annotated.videos.items():
            facts = {"video": video_id, "subset": video.subset, "duration": number_text(video.duration)}
            rows = [
                {"start": number_text(s.start), "end": number_text(s.end), "score": number_text(s.score)}
                | {"label": cell_of(" ".join(s.label.splitlines())), "subject": cell_of(s.subject)}
                for s in video.segments
            ]
            for row in rows or [{}]:
                table.writerow({name: cell_of(value) for name, value in facts.items()} | row)
        return out.getvalue()


def _check_cells(cells: list[str], line: int, columns: Columns, width: int, delimiter: str) -> None:
    """Raise LabelsError for a cell that contains rows because of an unclosed quotation mark, and for surplus cells."""
    # A cell may be a text of several lines, but not contain rows with times.
    times, number = [columns[role].at for role in ("start", "end")], line
    for cell in cells:
        later = [inner.split(delimiter) for inner in cell.strip().splitlines()[1:]]
        if any(all(t < len(inner) and TIME.fullmatch(inner[t]) for t in times) for inner in later):
            raise unclosed(number)
        number += cell.count("\n")
    surplus = cells[width:]
    if any(map(str.strip, surplus)):  # an unquoted decimal comma may have shifted all later cells
        raise LabelsError(
            f"Line {line} has more cells than the header; the first extra cell is {brief(surplus[0])}.",
            "name each column in the first line; if numbers have decimal commas, save the table with semicolons "
            "between its cells.",
        )


def _lengths(
    durations: Durations, columns: Columns, rate_of: Callable[[str, str], float]
) -> tuple[dict[str, float], list[Note]]:
    """Return the lengths of videos from the column `duration`, and a note of the videos for which it is something else.

    In a table of bouts it is often the length of each bout, not of the video.
    """
    # the duration of a segment may be in frames, like its start
    in_frames = columns["start"].counts_frames
    is_bout, is_late = [], False
    for video_id, rows in durations.items():
        for seconds, segment in rows:
            length = segment.end - segment.start if segment else -1.0
            rate = rate_of(video_id, IN_FRAMES) if in_frames and segment else 1.0
            is_bout.append(segment is not None and any(abs(seconds - length * u) <= ROUNDED_S for u in (1.0, rate)))
            # One segment that starts at 0 may be the whole video, so at least one later start is needed.
            is_late |= segment is not None and segment.start > ROUNDED_S
    has_bouts = is_late and all(is_bout)
    unused = [i for i, rows in durations.items() if has_bouts or len({seconds for seconds, _ in rows}) > 1]
    lengths = {i: rows[0][0] for i, rows in durations.items() if i not in unused}
    sentence = (
        f"the column 'duration' is not the length of {few(unused)}: it differs from row to row, or is how long a "
        "segment lasts"
    )
    return lengths, [Note("duration", sentence)] if unused else []


def text_of(cell: str) -> str:
    """Return the original text of a cell that `cell_of` wrote."""
    return cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell


def number_text(value: float | None) -> str:
    """Return the shortest text that is parsed to the same number; empty for None."""
    return "" if value is None else repr(float(value)).removesuffix(".0")


def _cell(cells: list[str], at: int) -> str:
    return " ".join(cells[at].split("\n")).strip() if at < len(cells) else ""


class Binary(Format):
    """A table of 0 and 1 of one video: a row per frame, or per time of a column `time`, and a column per action."""

    name = "binary"
    counts_frames = True

    def recognises(self, file: File) -> bool:
        if file.ending not in (".csv", ".tsv", ".txt"):
            return False
        try:
            (_, header), *rows = islice(Rows(file.text), BINARY_SAMPLE + 1)
            if not rows or layout_of(header, {}) or any(map(TIME.fullmatch, header)):
                return False
            actions, _ = _binary_columns(header)
            return bool(actions) and all(_cell(cells, at) in VALUES for _, cells in rows for at in actions)
        except (LabelsError, ValueError):
            return False

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        """Read a table; frame numbers need the frame rate of the video or of the options.

        If the video is longer than the table, the remaining part is ambiguous.
        """
        if options.columns:  # the user has declared that its rows are segments
            return Csv().read(file, video_id, options)
        moments: list[float] = []
        rows = iter(Rows(file.text))
        _, header = next(rows, (1, []))
        actions, moment = _binary_columns(header)
        counts_frames = moment is None or header[moment].strip().casefold() == "frame"
        time_column = Column(moment or 0, "", counts_frames=counts_frames)
        values: dict[int, list[int]] = {at: [] for at in actions}
        faults = Faults()
        for line, cells in rows:
            if not any(map(str.strip, cells)):
                continue
            for at in actions:
                written = _cell(cells, at)
                with faults.collect(header[at].strip()):
                    if written not in VALUES:
                        raise LabelsError(
                            f"Line {line}: {brief(written) if written else 'nothing'} is neither 0 nor 1.",
                            "write 1 where the action is active, else 0.",
                        )
                values[at].append(VALUES.get(written, 0))
            cell = str(len(moments)) if moment is None else _cell(cells, moment)
            moments.append(parse_time(cell, line, time_column, partial(file.frame_rate, options, video_id)))
            if len(moments) > 1 and moments[-1] <= moments[-2]:
                raise LabelsError(
                    f"Line {line}: {brief(cell)} is not after the row above.",
                    "sort the rows by time, and give each video its own file.",
                )
        faults.stop()
        if not moments or not values:
            raise LabelsError(
                "The table has no named column of 0 and 1.", "name its columns in the first line, one per action."
            )
        step = float(np.median(np.diff(moments))) if len(moments) > 1 else 0.0
        edges = [*moments, moments[-1] + step]
        segments = [
            Segment(edges[first], edges[stop], actions[at])
            for at, column in values.items()
            for first, stop in runs(np.array(column) == 1)
        ]
        notes, duration, whole = [], edges[-1], file.rates.seconds(video_id) if file.rates else None
        if whole is not None and whole - duration > TAIL_S - 1e-6:
            segments.append(Segment(duration, whole, AMBIGUOUS))
            sentence = (
                f"{video_id!r} lasts {whole:g} s, but the table ends at {duration:g} s; the rest counts as {AMBIGUOUS}"
            )
            notes.append(Note("not labelled", sentence))
            duration = whole
        video = VideoLabels("", duration, tuple(segments))
        return AnnotationSet({video_id: video}, tuple(actions.values()), tuple(notes))


def _binary_columns(header: list[str]) -> tuple[dict[int, str], int | None]:
    """Return the actions by column index, and the column index of the times. Raises LabelsError."""
    names = [cell.strip() for cell in header]
    moment = next((at for at, name in enumerate(names) if name.casefold() in MOMENTS), None)
    skipped = ("", BACKGROUND.casefold())  # a background column is redundant
    actions = {at: text_of(name) for at, name in enumerate(names) if at != moment and name.casefold() not in skipped}
    if len(set(actions.values())) < len(actions):
        raise LabelsError("Two columns of the table have the same name.", "rename one of them.")
    return actions, moment

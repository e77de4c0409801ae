"""Binary tables: a row a frame or a moment, a column an action, 0 or 1 in each; of A-SOiD, DeepEthogram and SimBA."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import FEATURES_PER_SECOND
from lstr.errors import brief, few
from lstr.labels.label_set import AMBIGUOUS, Note, runs
from lstr.labels.segment import Segment, clock_seconds
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet, plain_line
from lstr.pipelines.annotations.columns import UNIT, scale_of
from lstr.pipelines.annotations.footage import footage_at
from lstr.pipelines.annotations.format import EVERYTHING, ConvertOptions, File, TextFormat
from lstr.pipelines.annotations.rows import TIME, Rows, Table
from lstr.pipelines.annotations.tables import from_csv, is_header, text_of
from lstr.pipelines.annotations.times import Clock, number_of
from lstr.pipelines.reports.table import cell_of

TIME_NAMES = ("time", "t", "timestamp", "seconds", "second")
FRAME_NAMES = ("", "frame", "frames", "index", "unnamed: 0", "frame number", "frame index", "frame id", "frame no")
BACKGROUND_NAMES = ("background", "none")
"""Columns of DeepEthogram that are 1 where no other is."""
MEASURED = re.compile(r"_[xyp](_|$)|^(low_prob|sum_prob)", re.IGNORECASE)
"""Columns of SimBA that stand before those of actions: where parts of a body are, and what is computed of it."""
PREDICTED = re.compile(r"^probability_", re.IGNORECASE)
"""Columns of SimBA beside those of actions that it found itself."""
PARTS = ("_x", "_y", "_p")
LABELS = "_labels"
"""What DeepEthogram writes after the name of a video."""
VALUES = {"0": 0, "1": 1, "-1": 2, "0.0": 0, "1.0": 1, "-1.0": 2, "false": 0, "true": 1}
OFF, ON, UNKNOWN = 0, 1, 2
SAMPLE = 50
"""Rows by which a table is recognised."""
GAP = 1.5
"""Steps after which the next row is missing, where that is more than a second too."""
TAIL = 1 / FEATURES_PER_SECOND
"""Seconds of a video after the last row from which on they are not labelled: less is what rounding leaves."""
MOST_CELLS = 2**27
"""The most that a table is written with: what can be read again."""


class Binary(TextFormat):
    """A table of 0 and 1, one file a video; -1 is a frame that nobody labelled."""

    name, suffix = "binary", ".binary.csv"
    holds = EVERYTHING - {"scores", "subjects", "subsets"}
    detects = False

    def recognises(self, file: File) -> bool:
        return file.ending in (".csv", ".tsv", ".txt") and is_binary(Rows(file.beginning))

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        text, notes = file.text_and_notes
        if options.columns:  # a person says that its rows are segments
            return from_csv(text, video_id, options).noted(notes)
        return from_binary(Rows(text), video_id, options).noted(notes)

    def text(self, annotated: AnnotationSet, options: ConvertOptions) -> str:
        return to_binary(annotated, options)


@dataclass(frozen=True)
class Columns:
    """What the columns of a binary table are, by their numbers."""

    actions: dict[int, str]
    time: int | None = None
    scale: int = 1
    """How many units of the times are a second"""
    frame: int | None = None
    has_background: bool = False
    is_measured: bool = False
    """Whether columns of measurements stand before those of actions, so that only the last ones count"""


def is_binary(table: Table) -> bool:
    """Whether a table begins with a header and rows of 0, 1 and -1 below names that are no times of segments."""
    try:
        rows = list(islice(table, SAMPLE + 1))
        columns = _columns(rows[0][1], ()) if len(rows) > 1 else Columns({})
        if columns.is_measured:
            at = max(columns.actions, default=-1)
            return at >= 0 and all(_value(cells, at) is not None for _, cells in rows[1:])
        for line, cells in rows[1:]:
            _moment(cells, columns, line)
            if any(_value(cells, at) is None for at in columns.actions):
                return False
        numbers = [cell for cell in rows[0][1] if TIME.fullmatch(cell)] if rows else []
        return bool(columns.actions) and not numbers and not is_header(rows[0][1])
    except (AnnotationError, csv.Error):
        return False


def _columns(header: Sequence[str], wanted: Sequence[str]) -> Columns:
    """What the columns are; `wanted` are those of actions, where a person names them. Raises AnnotationError."""
    cells = [cell.strip() for cell in header]
    lower = [cell.casefold() for cell in cells]
    time = next((at for at, cell in enumerate(lower) if UNIT.sub("", cell) in TIME_NAMES or cell in TIME_NAMES), None)
    frame = next((at for at, cell in enumerate(lower) if re.sub("[_#]+", " ", cell).strip() in FRAME_NAMES), None)
    names = {at: text_of(cell) for at, cell in enumerate(cells) if cell and at not in (time, frame)}
    background = {at for at in names if lower[at] in BACKGROUND_NAMES}
    is_measured = any(cell.endswith(PARTS) for cell in lower)
    if wanted:
        if missing := [name for name in wanted if name not in names.values()]:
            raise AnnotationError(
                f"The table has no column {brief(missing[0])}.", f"its last columns are: {few(cells[:-4:-1])}."
            )
        actions = {at: name for at, name in names.items() if name in wanted}
    else:
        after = max((at for at, name in names.items() if is_measured and MEASURED.search(name)), default=-1)
        others = {at: name for at, name in names.items() if at > after and at not in background}
        actions = {at: name for at, name in others.items() if not (is_measured and PREDICTED.match(name))}
    if len(set(actions.values())) < len(actions):
        raise AnnotationError("Two columns of the table have one name.", "rename one of them.")
    scale = scale_of(lower[time]) if time is not None else 1
    return Columns(actions, time, scale, frame, bool(background), is_measured and not wanted)


def _value(cells: Sequence[str], at: int) -> int | None:
    """What a cell says; None where it is neither 0, 1 nor -1."""
    return VALUES.get(cells[at].strip().lower()) if at < len(cells) else None


def _moment(cells: Sequence[str], columns: Columns, line: int) -> float:
    """The time of a row in seconds, or its frame; NaN where no column says it. Raises AnnotationError."""
    if columns.time is not None:
        cell = cells[columns.time] if columns.time < len(cells) else ""
        seconds = clock_seconds(cell)
        return number_of(cell, line) / columns.scale if seconds is None else seconds
    if columns.frame is not None:
        return number_of(cells[columns.frame] if columns.frame < len(cells) else "", line)
    return float("nan")


def from_binary(table: Table, name: str, options: ConvertOptions) -> AnnotationSet:
    """The video of a binary table, called `name`; what is -1 counts as ambiguous, and a note says so.

    Rows are at the times of their column, else at frames, whose rate the options have or find by the video; frames are
    left as such where the options have one rate. Raises AnnotationError.
    """
    try:
        rows = iter(table)
        _, header = next(rows, (1, []))
        columns = _columns(header, options.classes)
        values, moments, lines = _read(rows, header, columns)
    except csv.Error as error:
        raise AnnotationError(f"The table cannot be read ({error}).", "save it again as CSV in UTF-8.") from error
    if not values or not len(moments):
        raise AnnotationError(
            "The table has no column of 0 and 1 with a name.", "name its columns in the first line, one an action."
        )
    video_id = name.removesuffix(LABELS) if columns.has_background else name
    edges = _edges(moments, columns, lines)
    if columns.time is None:
        a_second = options.frames or Clock(None, options.rate_of).rate("The table has a row for each frame", video_id)
    else:
        a_second = 1.0
    left = a_second / (options.frames or 1.0)  # what one rate of all divides by later
    times = (edges / left).tolist()
    names = {at: columns.actions[at] for at in values}
    unknown = _unknown(values, names)
    on = {names[at]: np.asarray(column) == ON for at, column in values.items()}
    segments = [
        Segment(times[first], times[stop], label)
        for label, column in [*on.items(), (AMBIGUOUS, unknown)]
        for first, stop in runs(column)
    ]
    notes = []
    if edges[0] / a_second > max(1.0, GAP * (edges[1] - edges[0]) / a_second):
        segments.append(Segment(0.0, times[0], AMBIGUOUS))
        notes.append(Note("not labelled", f"{video_id!r} has no rows before {edges[0] / a_second:g} s: {_SO}"))
    duration = float(edges[-1] / a_second)
    whole = options.seconds_of(video_id)
    if whole is not None and whole - duration > TAIL - 1e-6:
        segments.append(Segment(times[-1], whole * (options.frames or 1.0), AMBIGUOUS))
        notes.append(
            Note("not labelled", f"{video_id!r} has no rows after {duration:g} s, and lasts {whole:g} s: {_SO}")
        )
        duration = whole
    if unknown.any():
        seconds = float(np.diff(edges)[unknown].sum()) / a_second
        notes.append(Note("not labelled", f"{seconds:g} s of {video_id!r} are not labelled (-1): {_SO}"))
    if columns.is_measured:
        labels = few([brief(label) for label in names.values()])
        sentence = f"of {len(header)} columns the last that hold only 0 and 1 are actions: {labels}"
        notes.append(Note("columns of actions", sentence))
    classes = (*on, *{s.label for s in segments} - on.keys())
    video = AnnotatedVideo(tuple(segments), duration=duration)
    return AnnotationSet({video_id: video}, classes, tuple(notes))


_SO = f"that time counts as {AMBIGUOUS}, and neither trains nor is scored"


def _read(
    rows: Iterator[tuple[int, list[str]]], header: Sequence[str], columns: Columns
) -> tuple[dict[int, NDArray[np.uint8]], NDArray[np.float64], list[int]]:
    """Values (rows,) of each column of an action, the rows' moments, and their lines. Raises AnnotationError."""
    values = {at: bytearray() for at in columns.actions}
    moments: list[float] = []
    lines = []
    for line, cells in rows:
        if not any(map(str.strip, cells)):
            continue
        lines.append(line)
        moments.append(_moment(cells, columns, line))
        for at in reversed(list(values)):
            value = _value(cells, at)
            if value is not None:
                values[at].append(value)
            elif columns.is_measured:  # what stands before it is no action either
                values = {later: found for later, found in values.items() if later > at}
                break
            else:
                found = cells[at].strip() if at < len(cells) else ""
                raise AnnotationError(
                    f"Line {line}: {brief(found) if found else 'nothing'} in the column {header[at].strip()!r} is "
                    "neither 0 nor 1.",
                    "write 1 where the action is, 0 where it is not, and -1 where nobody looked.",
                )
    return {at: np.frombuffer(found, np.uint8) for at, found in values.items()}, np.array(moments), lines


def _edges(moments: NDArray[np.float64], columns: Columns, lines: Sequence[int]) -> NDArray[np.float64]:
    """When each row begins, and when the last ends (rows + 1,). Raises AnnotationError where rows are missing."""
    if columns.time is None and columns.frame is None:
        return np.arange(len(moments) + 1, dtype=float)
    if columns.time is None and moments[0] == 1:  # frames are counted from 1
        moments = moments - 1
    steps = np.diff(moments)
    step = float(np.median(steps)) if len(steps) else 1.0
    if (steps <= 0).any():
        at = int(np.argmax(steps <= 0))
        raise AnnotationError(
            f"Line {lines[at + 1]}: {moments[at + 1]:g} does not come after {moments[at]:g}.",
            "sort the rows by time, and give each video a file of its own.",
        )
    apart = steps > GAP * step
    if columns.time is not None:
        apart &= steps > 1.0
    if apart.any():
        at = int(np.argmax(apart))
        raise AnnotationError(
            f"Line {lines[at + 1]}: rows are missing between {moments[at]:g} and {moments[at + 1]:g}.",
            "add them, with -1 where nobody looked.",
        )
    return np.append(moments, moments[-1] + step)


def _unknown(values: dict[int, NDArray[np.uint8]], names: dict[int, str]) -> NDArray[np.bool_]:
    """Rows that a column says nothing of (rows,). Raises AnnotationError where only some say nothing at all."""
    whole = {at: bool((column == UNKNOWN).all()) for at, column in values.items()}
    if any(whole.values()) and not all(whole.values()):
        at = next(at for at, is_empty in whole.items() if is_empty)
        raise AnnotationError(
            f"The column {names[at]!r} is -1 in each row: the action was added later, and is not labelled here.",
            "label it in this video, or delete the column.",
        )
    return np.logical_or.reduce([column == UNKNOWN for column in values.values()])


def to_binary(annotated: AnnotationSet, options: ConvertOptions) -> str:
    """The table of one video: seconds, background, and a column an action, -1 where labels are ambiguous.

    Raises AnnotationError where nobody knows the rate or the duration.
    """
    video_id, video = annotated.first
    path = Path(video.media) if video.media else None
    footage = footage_at(path) if path and path.is_file() else None
    rate = options.fps or video.fps or (footage.rate if footage else None)
    if not rate:
        raise AnnotationError(
            f"How many rows a second of {video_id!r} has is not known.",
            "add their number, such as --set fps=25, or the videos with --video DIR.",
        )
    end = video.duration if video.duration is not None else footage.seconds if footage else video.end
    labels = [label for label in annotated.classes if label != AMBIGUOUS]
    count = round(end * rate)
    if not 0 < count * (len(labels) + 2) <= MOST_CELLS:
        raise AnnotationError(
            f"A table of {end:g} s of {video_id!r} with {rate:g} rows a second would have {count} rows.",
            "state its duration, or name the videos with --video DIR; check whether the times are seconds.",
        )
    table = np.zeros((count, 1 + len(labels)), np.int8)
    column = {label: 1 + at for at, label in enumerate(labels)}
    unknown = np.zeros(count, bool)
    for a in video.segments:
        first = round(a.start * rate)
        rows = slice(first, max(first + 1, round(a.end * rate)))
        if a.label == AMBIGUOUS:
            unknown[rows] = True
        else:
            table[rows, column[a.label]] = 1
    table[:, 0] = ~table.any(axis=1)
    table[unknown] = -1
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["time", "background", *(cell_of(plain_line(label)) for label in labels)])
    writer.writerows([f"{row / rate:.6f}", *cells] for row, cells in enumerate(table.tolist()))
    return out.getvalue()

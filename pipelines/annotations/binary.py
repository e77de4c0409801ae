"""Tables of 0 and 1: a row for each frame, or for each moment of a column `time`, and a column for each action."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from lstr.errors import LabelsError, brief
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Note, runs
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.columns import layout_of
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.rows import TIME, Rows
from lstr.pipelines.annotations.tables import from_csv, text_of
from lstr.pipelines.annotations.times import Clock

# Names of the column that says of which moment, or of which frame, a row is
MOMENTS = ("time", "frame")
VALUES = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
TAIL_S = 0.25  # one chunk; a shorter rest after the last row is rounding
# Rows by which a table is recognised
SAMPLE = 50


class Binary(Format):
    """A table of 0 and 1 of one video."""

    name = "binary"
    counts_frames = True

    def recognises(self, file: File) -> bool:
        return file.ending in (".csv", ".tsv", ".txt") and is_binary(Rows(file.beginning))

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        text, notes = file.text_and_notes
        if options.columns:  # a person says that its rows are segments
            return from_csv(text, video_id, options).noted(notes)
        return from_binary(Rows(text), video_id, options).noted(notes)


@dataclass(frozen=True)
class Columns:
    """What the columns of a binary table are, by their numbers."""

    actions: dict[int, str]
    moment: int | None
    counts_frames: bool
    """Whether rows are of frames"""


def is_binary(table: Rows) -> bool:
    """Whether a table begins with a header and rows of 0 and 1 below names that are not those of segments."""
    try:
        rows = list(islice(table, SAMPLE + 1))
        if len(rows) < 2 or layout_of(rows[0][1], {}) or any(map(TIME.fullmatch, rows[0][1])):
            return False
        actions = _columns(rows[0][1]).actions
        return bool(actions) and all(_value(cells, at) is not None for _, cells in rows[1:] for at in actions)
    except (LabelsError, csv.Error):
        return False


def _columns(header: Sequence[str]) -> Columns:
    """What the columns are. Raises LabelsError."""
    names = [cell.strip() for cell in header]
    moment = next((at for at, name in enumerate(names) if name.casefold() in MOMENTS), None)
    # a background column repeats what the others say
    skipped = ("", BACKGROUND.casefold())
    actions = {at: text_of(name) for at, name in enumerate(names) if at != moment and name.casefold() not in skipped}
    if len(set(actions.values())) < len(actions):
        raise LabelsError("Two columns of the table have one name.", "rename one of them.")
    return Columns(actions, moment, moment is None or names[moment].casefold() == "frame")


def _value(cells: Sequence[str], at: int) -> int | None:
    """What a cell says; None where it is neither 0 nor 1."""
    return VALUES.get(cells[at].strip()) if at < len(cells) else None


def from_binary(table: Rows, name: str, options: ConvertOptions) -> AnnotationSet:
    """The video of a binary table, called `name`.

    Frames are counted at the rate of the video, or at the one that the options have. Raises LabelsError.
    """
    try:
        rows = iter(table)
        _, header = next(rows, (1, []))
        columns = _columns(header)
        values, edges = _read(rows, header, columns, Clock(options.frames, options.rate_of), name)
    except csv.Error as error:
        raise LabelsError(f"The table cannot be read ({error}).", "save it again as CSV in UTF-8.") from error
    times = edges.tolist()
    segments = [
        Segment(times[first], times[stop], label)
        for label, column in zip(columns.actions.values(), values, strict=True)
        for first, stop in runs(column == 1)
    ]
    duration, whole, notes = times[-1], options.seconds_of(name), []
    if whole is not None and whole - duration > TAIL_S - 1e-6:
        segments.append(Segment(duration, whole, AMBIGUOUS))
        sentence = f"{name!r} lasts {whole:g} s, but the table ends at {duration:g} s; the rest counts as {AMBIGUOUS}"
        notes.append(Note("not labelled", sentence))
        duration = whole
    classes = (*columns.actions.values(), *[AMBIGUOUS] * bool(notes))
    return AnnotationSet({name: AnnotatedVideo(tuple(segments), duration=duration)}, classes, tuple(notes))


def _read(
    rows: Iterator[tuple[int, list[str]]], header: Sequence[str], columns: Columns, clock: Clock, name: str
) -> tuple[list[NDArray[np.uint8]], NDArray[np.float64]]:
    """Values (rows,) of each action, and when each row begins and the last ends (rows + 1,) in seconds.

    Raises LabelsError.
    """
    values = {at: bytearray() for at in columns.actions}
    moments: list[float] = []
    for line, cells in rows:
        if not any(map(str.strip, cells)):
            continue
        for at, found in values.items():
            value = _value(cells, at)
            if value is None:
                written = cells[at].strip() if at < len(cells) else ""
                raise LabelsError(
                    f"Line {line}: {brief(written) if written else 'nothing'} in the column {header[at].strip()!r} is "
                    "neither 0 nor 1.",
                    "write 1 where the action is, and 0 where it is not.",
                )
            found.append(value)
        if columns.moment is None:
            moments.append(clock.time_of(str(len(moments)), line, name, counts_frames=True))
            continue
        cell = cells[columns.moment] if columns.moment < len(cells) else ""
        moments.append(clock.time_of(cell, line, name, counts_frames=columns.counts_frames))
        if len(moments) > 1 and moments[-1] <= moments[-2]:
            raise LabelsError(
                f"Line {line}: {brief(cell)} is not after the row above.",
                "sort the rows by time, and give each video a file of its own.",
            )
    if not moments or not values:
        raise LabelsError(
            "The table has no column of 0 and 1 with a name.", "name its columns in the first line, one an action."
        )
    step = float(np.median(np.diff(moments))) if len(moments) > 1 else 0.0
    arrays = [np.frombuffer(column, np.uint8) for column in values.values()]
    return arrays, np.array([*moments, moments[-1] + step])

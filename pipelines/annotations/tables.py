"""Text tables: their rows, the times in their cells, and the meaning of their columns."""

import csv
import io
import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from lstr.errors import LabelsError, brief
from lstr.labels.segment import clock_seconds

DELIMITERS = "\t,;"
# A first line that tells Excel the separator of cells.
SEPARATOR = re.compile(r'"?sep=(.)"?[ \t]*(?:\r\n|\r|\n|$)', re.IGNORECASE)
# Text that is probably a time.
TIME = re.compile(r"\s*-?\d[-+\d.,:;eE]*\s*")
# A number with a decimal comma and points between thousands, as a spreadsheet in German or Spanish writes it.
THOUSANDS = re.compile(r"\s*-?\d{1,3}(?:\.\d{3})+,\d+\s*")
# h:mm:ss:ff; ff is the frame within the second. A semicolon marks drop-frame time codes, as in video with 29.97 FPS.
TIMECODE = re.compile(r"(\d{1,9}):([0-5]?\d):([0-5]?\d)([:;])(\d{1,3})")
# Drop-frame time codes skip one number per this many frames of a second, in each minute except every tenth.
DROPPED = 15
IN_FRAMES = "The table has times in frames"  # beginning of the error if the frame rate is unknown
# Maximum number of faulty cells in an error.
MAX_SHOWN = 20

# Names of columns of times: in seconds, in milliseconds, and in frames
TIMES = {
    "start": ("start", "start_ms", "start_frame"),
    "end": ("end", "end_ms", "end_frame"),
    "duration": ("duration", "duration_ms", "duration_frames"),
}
# Names of all columns that are read
NAMES = ("video", "subset", "label", "score", "subject", *(name for names in TIMES.values() for name in names))


def first_line(text: str) -> str:
    """Return the first line that is not blank; empty without one."""
    # line by line, so that a large file is recognised by its beginning
    return next(filter(str.strip, io.StringIO(text)), "").rstrip("\n")


def number_of(text: str, line: int) -> float:
    """Parse the finite number in a cell, also with a decimal comma. Raises LabelsError."""
    text_of_number = text.replace(".", "") if THOUSANDS.fullmatch(text) else text
    try:
        number = float(text_of_number.strip().replace(",", "."))
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise LabelsError(
            f"Line {line}: {brief(text)} is not a number.", "write times as seconds, such as 12.5, or as 0:00:12.5."
        )
    return number


class Rows:
    """The rows of a table, each with the number of its first line, from the first row that is not blank.

    They can be iterated several times. Raises LabelsError if the table cannot be read, or for an unclosed quotation
    mark.
    """

    def __init__(self, text: str):
        mark = SEPARATOR.match(text)
        self._first = 2 if mark else 1  # number of the first line of the table
        self._text = text[mark.end() :] if mark else text
        self.delimiter = mark[1] if mark else max(DELIMITERS, key=first_line(self._text).count)

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        last_line = ""

        def lines() -> Iterator[str]:
            nonlocal last_line
            for line in io.StringIO(self._text, newline=""):
                last_line = line
                yield line

        reader = csv.reader(lines(), delimiter=self.delimiter, strict=True)
        is_above = True
        while True:
            number = reader.line_num + self._first
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if reader.line_num + self._first > number + 1 or str(error).startswith("unexpected end"):
                    raise unclosed(number) from error
                # text next to quotation marks: parse the line again in non-strict mode
                try:
                    cells = next(csv.reader([last_line], delimiter=self.delimiter))
                except csv.Error as other:
                    raise LabelsError(
                        f"The table cannot be read ({other}).", "save it again as CSV in UTF-8."
                    ) from other
                if any("\n" in cell or "\r" in cell for cell in cells):
                    raise unclosed(number) from error
            is_above = is_above and not any(map(str.strip, cells))
            if not is_above:
                yield number, cells


def unclosed(line: int) -> LabelsError:
    """Return the error for an unclosed quotation mark, which turns everything after it into one cell."""
    return LabelsError(
        f"Line {line}: a quotation mark is not closed.",
        "delete it, or write one at the end of its cell too; double each quotation mark inside a quoted cell.",
    )


@dataclass(frozen=True)
class Column:
    """A column: its index, its header, and its units per second."""

    at: int
    name: str
    scale: int = 1
    counts_frames: bool = False
    lasts: bool = False  # whether the column of ends has durations of segments


Columns = dict[str, Column]


def parse_time(cell: str, line: int, column: Column, rate_of: Callable[[str], float]) -> float:
    """Parse the time in a cell, a number, h:mm:ss or h:mm:ss:ff, to seconds.

    Args:
        cell: The text.
        line: The line number, for errors.
        column: The unit of a number.
        rate_of: Returns the frame rate of the video; its argument begins the message if the rate is unknown.

    Raises:
        LabelsError: The cell is not a time, or the frame rate is unknown.
    """
    if found := TIMECODE.fullmatch(cell.strip()):
        rate = rate_of(f"Line {line}: {brief(cell)} contains a frame number")
        hours, minutes, seconds, mark, frame = found.groups()
        per_second, minute = round(rate), int(hours) * 60 + int(minutes)
        if int(frame) >= per_second:
            raise LabelsError(
                f"Line {line}: {brief(cell)} is frame {frame} of a second with {per_second} frames.",
                "state the rate of the times: `lstr labels convert FILE --frames 30 -o labels.json`.",
            )
        dropped = round(rate / DROPPED) * (minute - minute // 10) if mark == ";" else 0
        return ((minute * 60 + int(seconds)) * per_second + int(frame) - dropped) / rate
    clock = clock_seconds(cell)
    if clock is not None:
        return clock
    number = number_of(cell, line)
    return number / (rate_of(IN_FRAMES) if column.counts_frames else column.scale)


class Faults:
    """The faulty cells of a table, collected so that one error names all of them."""

    def __init__(self) -> None:
        self._errors: list[LabelsError] = []

    @contextmanager
    def collect(self, column: str = "") -> Iterator[None]:
        """Collect a LabelsError about a line, and add the column to it; other errors are about the whole table."""
        try:
            yield
        except LabelsError as error:
            if not str(error).startswith("Line "):
                raise
            text = str(error).removesuffix(".")
            self._errors.append(LabelsError(f"{text} (column {column!r})." if column else f"{text}.", error.hint))

    def stop(self) -> None:
        """Raise LabelsError if a cell is faulty."""
        if len(self._errors) > 1:
            shown = [str(error) for error in self._errors[:MAX_SHOWN]]
            more = [f"and {len(self._errors) - MAX_SHOWN} more."] if len(self._errors) > MAX_SHOWN else []
            text = "\n  ".join([f"{len(self._errors)} cells are faulty:", *shown, *more])
            raise LabelsError(text, self._errors[0].hint)
        if self._errors:
            raise self._errors[0]


def layout_of(header: Sequence[str], named: Mapping[str, str], in_frames: bool = False) -> Columns | None:
    """Return the columns of a header by meaning; None if a required column is missing.

    The meanings are `start`, `end` and `label`, and others of NAMES that exist. `duration` is the length of the video.

    Args:
        header: The cells of the first row.
        named: Headers by the names of NAMES; they take precedence over columns with these names.
        in_frames: Whether columns in frames take precedence over columns in seconds.

    Raises:
        LabelsError: `named` has a header that does not exist.
    """
    found = find_columns(header, named)
    columns: Columns = {name: found[name] for name in ("video", "subset", "label", "score", "subject") if name in found}
    for role, names in TIMES.items():
        if known := [found[name] for name in names if name in found]:
            columns[role] = known[-1 if in_frames else 0]
    duration, lasts = columns.pop("duration", None), "end" not in columns
    if duration and lasts and (duration.counts_frames or ("start" in columns and not columns["start"].counts_frames)):
        columns["end"] = replace(duration, lasts=True)
    elif duration and not lasts and not duration.counts_frames:
        columns["duration"] = duration
    if in_frames:
        columns |= {role: replace(columns[role], counts_frames=True) for role in ("start", "end") if role in columns}
    return columns if {"start", "end", "label"} <= columns.keys() else None


def find_columns(header: Sequence[str], named: Mapping[str, str]) -> dict[str, Column]:
    """Return the columns by the names of NAMES. Raises LabelsError if `named` has a header that does not exist."""
    cells = [cell.strip().casefold() for cell in header]
    places: dict[str, int] = {}
    for name, title in named.items():
        if name not in NAMES:
            raise LabelsError(f"Unknown column: {brief(name)}.", f"choose from {', '.join(NAMES)}.")
        if title.strip().casefold() not in cells:
            raise LabelsError(
                f"The table has no column {brief(title)} (it has: {', '.join(header) or 'none'}).",
                "use the column names of its first line.",
            )
        places[name] = cells.index(title.strip().casefold())
    for at, cell in enumerate(cells):
        if cell in NAMES and at not in places.values():
            places.setdefault(cell, at)
    return {
        name: Column(at, header[at].strip(), 1000 if name.endswith("_ms") else 1, name.endswith(("_frame", "_frames")))
        for name, at in places.items()
    }


def unknown_columns(header: Sequence[str], named: Mapping[str, str]) -> LabelsError:
    """Return the error for a header without the required columns; its hint is a command that names them."""
    known = find_columns(header, named).keys()
    missing = [role for role in ("start", "end", "label") if not known & {*TIMES.get(role, (role,))}]
    if "end" in missing and known & ({"duration_frames"} if "start_frame" in known else {*TIMES["duration"]}):
        missing.remove("end")
    if 0 < len(header) < len(missing):  # no cells that could be named, as in lines of comments
        raise LabelsError(
            f"The first line of the table is not a header: {brief(first_line(','.join(header)))}.",
            "save it as CSV with the columns video,start,end,label.",
        )
    command = shlex.quote(",".join(map("=".join, {**named, **dict.fromkeys(missing, "…")}.items())))
    return LabelsError(
        f"The table has no column {', '.join(sorted(missing))} (it has: {', '.join(header) or 'none'}).",
        f"name them, and `video` if there is one: `lstr labels convert FILE -o labels.json --columns {command}`.",
    )

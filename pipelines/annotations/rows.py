"""Rows of a table of text: what is between their cells, and what makes more or fewer cells of a row than are meant."""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Protocol

from lstr.errors import brief
from lstr.labels.label_set import Note
from lstr.pipelines.annotations.annotation import AnnotationError
from lstr.pipelines.annotations.columns import Layout

DELIMITERS = "\t,;"
SEPARATOR = re.compile(r'"?sep=(.)"?[ \t]*(?:\r\n|\r|\n|$)', re.IGNORECASE)
"""The first line by which Excel knows what is between cells."""
TIME = re.compile(r"\s*-?\d[-+\d.,:;eE]*\s*")
"""What is likely a time."""
WHOLE = re.compile(r"-?\d+(:\d{1,2}){0,2}")
"""What stands before a decimal comma, and alone in a cell where the comma is between cells too."""
WIDEST = 200
"""Columns of a table in which decimal commas are looked for."""


def first_line(text: str) -> str:
    """The first line that is not blank; empty without any."""
    return next((line for line in text.splitlines() if line.strip()), "")


def delimiter_of(line: str) -> str:
    """What is between the cells of a line: tabs, commas or semicolons."""
    return max(DELIMITERS, key=line.count)


class Table(Protocol):
    """Rows of cells with their lines, which may be gone through again."""

    delimiter: str
    """What is between cells where a cell holds lines"""

    def first_lines(self, count: int) -> list[str]:
        """The first lines as text."""

    def __iter__(self) -> Iterator[tuple[int, list[str]]]: ...


def is_text(cell: str) -> bool:
    """Whether a cell holds something that is no number and no time."""
    return bool(cell.strip()) and not TIME.fullmatch(cell)


class Rows:
    """The rows of a table, each with the line that it begins in, without those above the first that is not blank.

    To iterate raises AnnotationError for a quotation mark that is not closed, and csv.Error.
    """

    def __init__(self, text: str):
        mark = SEPARATOR.match(text)
        self._above = 1 if mark else 0
        rest = text[mark.end() :] if mark else text
        self.delimiter = mark[1] if mark else delimiter_of(first_line(rest))
        self._text, self._rest = text, rest
        self._line = ""

    def first_lines(self, count: int) -> list[str]:
        """The first lines as they are written, blank ones too."""
        return list(islice((line.rstrip("\r\n") for line in io.StringIO(self._text)), count))

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        reader = csv.reader(self._remembered(), delimiter=self.delimiter, strict=True)
        is_above = True
        while True:
            begins = reader.line_num + 1
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                if reader.line_num > begins or str(error).startswith("unexpected end"):
                    raise unclosed(begins + self._above) from error
                cells = next(csv.reader([self._line], delimiter=self.delimiter))  # of text beside quotation marks
                if any("\n" in cell or "\r" in cell for cell in cells):
                    raise unclosed(begins + self._above) from error
            is_above = is_above and not any(map(str.strip, cells))
            if not is_above:
                yield begins + self._above, cells

    def _remembered(self) -> Iterator[str]:
        for line in io.StringIO(self._rest, newline=""):
            self._line = line
            yield line


def unclosed(line: int) -> AnnotationError:
    """The error of a quotation mark that makes one cell of all that follows it."""
    return AnnotationError(
        f"Line {line}: a quotation mark is not closed.",
        "delete it, or write one at the end of its cell too; a quotation mark inside a quoted cell is written twice.",
    )


def refuse_swallowed(cells: Sequence[str], line: int, layout: Layout, delimiter: str) -> None:
    """Raise AnnotationError where a cell holds several lines that are rows of their own, and no remark.

    line: where the row begins. A cell that is read never has several lines.
    """
    for at, cell in enumerate(cells):
        later = cell.strip().splitlines()[1:]
        if later and (_is_read(at, layout) or any(_is_row(inner.split(delimiter), layout) for inner in later)):
            raise unclosed(line)
        line += cell.count("\n")


def _is_read(at: int, layout: Layout) -> bool:
    return any(column.at == at for column in layout.columns())


def _is_row(cells: Sequence[str], layout: Layout) -> bool:
    """Whether cells have a segment's times where a table has them."""
    times = ((piece.start, piece.end) for piece in layout.pieces)
    return any(all(column.at < len(cells) and TIME.fullmatch(cells[column.at]) for column in pair) for pair in times)


@dataclass(frozen=True)
class Surplus:
    """Rows with more cells than the header has, by their lines: what is not read, and the first decimal comma."""

    first: tuple[int, str] | None = None
    """The first such row, and what follows what is read of it"""
    comma: tuple[int, str] | None = None
    """The first row of which a number has become two cells, and that number"""

    def refuse(self) -> None:
        """Raise AnnotationError, with line and number, where decimal commas have shifted what follows them."""
        if self.comma:
            line, number = self.comma
            raise AnnotationError(
                f"Line {line} has more cells than the header has names, as where {number} is one number with a decimal "
                "comma.",
                "save the table with semicolons between its cells, or put such numbers in quotation marks; without "
                "such numbers, write a name above each column.",
            )

    def notes(self) -> tuple[Note, ...]:
        """What is said of cells that no column has."""
        if not self.first:
            return ()
        line, text = self.first
        return (Note("more cells", f"line {line} has more cells than the header has names: {brief(text)} is not read"),)


def surplus_of(table: Table, layout: Layout) -> Surplus:
    """The rows of a table that have more cells than its header, as far as they can be read.

    A number with a decimal comma is two cells where commas stand between cells. Two cells are taken for one where the
    label would be a number, and is text then, unless other rows show that labels are numbers; else where each row that
    has too many cells fits so, without a decimal point.
    """
    first, likely, fitting = None, None, None
    all_fit, has_numbers = True, False
    named = next((piece.label.at for piece in layout.pieces if not isinstance(piece.label, str)), None)
    rows = iter(table)
    width = len(next(rows, (1, []))[1])
    with suppress(AnnotationError, csv.Error):  # which reading the table finds too
        for line, cells in rows:
            from_label = cells[named:] if named is not None else []
            has_number = bool(from_label and TIME.fullmatch(from_label[0]))
            if not any(map(str.strip, cells[width:])):
                has_numbers |= has_number and not any(map(is_text, from_label))
                continue
            first = first or (line, table.delimiter.join(cells[width:]).strip())
            if table.delimiter != "," or width > WIDEST:
                continue
            if has_number and (number := _split_number(cells, width, layout, "text")):
                likely = likely or (line, number)
            number = _split_number(cells, width, layout, "number" if has_number else "any")
            all_fit &= number is not None
            if number:
                fitting = fitting or (line, number)
    return Surplus(first, (likely if not has_numbers else None) or (fitting if all_fit else None))


def _split_number(cells: Sequence[str], width: int, layout: Layout, label: str) -> str | None:
    """The first number of a row that is two cells, if its cells then fit below the header; None where they do not.

    label: what each then is, a `text`, a `number` or `any`. After a text there may be more cells.
    """
    cells = [cell.strip() for cell in cells]
    is_sure = label == "text"
    full = max(at for at, cell in enumerate(cells) if cell) + 1
    timed = {one.at for piece in layout.pieces for one in (piece.start, piece.end, piece.score) if one}
    timed |= {column.at for name, column in layout.whole.items() if name == "duration"}
    labels = {piece.label.at for piece in layout.pieces if not isinstance(piece.label, str)}
    read = {column.at for column in layout.columns()}
    may_split = timed | {at for at in range(max(read)) if at not in read}

    def is_fit(at: int, cell: str) -> bool:
        if at in timed:
            return not is_text(cell) and (is_sure or "." not in cell)
        return at not in labels or label == "any" or not cell or is_text(cell) == is_sure

    found = {0: ""}  # the first split number, by how many cells were split
    for at in range(width):
        after: dict[int, str] = {}
        for n, number in found.items():
            cell, *rest = cells[at + n : at + n + 2] or [""]
            if is_fit(at, cell):
                after.setdefault(n, number)
            if at in may_split and rest and WHOLE.fullmatch(cell) and rest[0].isdecimal():
                after.setdefault(n + 1, number or f"{cell},{rest[0]}")
        found = after
    return next((number for n, number in found.items() if n and (is_sure or width + n >= full)), None)

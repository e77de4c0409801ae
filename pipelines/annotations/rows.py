"""Rows of a table of text."""

import csv
import io
import re
from collections.abc import Iterator

from lstr.errors import LabelsError

DELIMITERS = "\t,;"
# The first line by which Excel knows what is between cells.
SEPARATOR = re.compile(r'"?sep=(.)"?[ \t]*(?:\r\n|\r|\n|$)', re.IGNORECASE)
# What is likely a time.
TIME = re.compile(r"\s*-?\d[-+\d.,:;eE]*\s*")


def first_line(text: str) -> str:
    """The first line that is not blank; empty without any."""
    return next((line for line in text.splitlines() if line.strip()), "")


def delimiter_of(line: str) -> str:
    """What is between the cells of a line: tabs, commas or semicolons."""
    return max(DELIMITERS, key=line.count)


def is_text(cell: str) -> bool:
    """Whether a cell holds something that is no number and no time."""
    return bool(cell.strip()) and not TIME.fullmatch(cell)


class Rows:
    """The rows of a table, each with the line that it begins in, without those above the first that is not blank.

    They can be iterated several times. Raises LabelsError for a quotation mark that is not closed, and csv.Error.
    """

    def __init__(self, text: str):
        mark = SEPARATOR.match(text)
        self._above = 1 if mark else 0
        rest = text[mark.end() :] if mark else text
        self.delimiter = mark[1] if mark else delimiter_of(first_line(rest))
        self._rest = rest
        self._line = ""

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


def unclosed(line: int) -> LabelsError:
    """The error of a quotation mark that makes one cell of all that follows it."""
    return LabelsError(
        f"Line {line}: a quotation mark is not closed.",
        "delete it, or write one at the end of its cell too; a quotation mark inside a quoted cell is written twice.",
    )

"""A table of texts and numbers, for a spreadsheet, a paper, a text file or a terminal."""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

SPECIAL = re.compile(r"[&%$#_{}]")
# How a text begins that a spreadsheet takes for a formula, and runs, unless an apostrophe is before it.
RUN = re.compile(r"'*[=+\-@＝＋－＠]")
Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A column: its name, and how many digits after the point its numbers have for people."""

    name: str
    digits: int | None = None
    """None: a column of texts, or of whole numbers"""
    is_text: bool = False


@dataclass(frozen=True)
class Table:
    """Rows of cells, as many as there are columns; None and NaN are what is not known."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def names(self) -> list[str]:
        """What the columns are called."""
        return [column.name for column in self.columns]

    @property
    def numbers(self) -> list[int]:
        """The places of the columns of numbers."""
        return [at for at, column in enumerate(self.columns) if not column.is_text]

    def texts(self) -> list[list[str]]:
        """The rows for people."""
        pairs = [[(cell, column) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows]
        return [[_text(cell, column.digits) for cell, column in row] for row in pairs]


def cell_of(value: Any) -> Any:
    """A value as a cell of a table: text that a spreadsheet would run gets an apostrophe before it."""
    return f"'{value}" if isinstance(value, str) and RUN.match(value) else value


def to_csv(table: Table) -> str:
    """Numbers with all their digits; what is not known is empty, and no cell is a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(cell_of, table.names))
    writer.writerows([None if _is_unknown(cell) else cell_of(cell) for cell in row] for row in table.rows)
    return out.getvalue()


def to_markdown(table: Table) -> str:
    """Numbers are to the right; the title is bold above."""
    rule = ["---" if column.is_text else "---:" for column in table.columns]
    escaped = [[cell.replace("|", r"\|") for cell in line] for line in (table.names, rule, *table.texts())]
    title = f"**{table.title}**\n\n" if table.title else ""
    return title + "".join(f"| {' | '.join(line)} |\n" for line in escaped)


def to_latex(table: Table) -> str:
    """A tabular, which needs no package; the title is a comment above."""
    body = [" & ".join(map(_in_latex, line)) + r" \\" for line in (table.names, *table.texts())]
    columns = "".join("l" if column.is_text else "r" for column in table.columns)
    title = [f"% {table.title}"] if table.title else []
    parts = [
        *title,
        rf"\begin{{tabular}}{{{columns}}}",
        r"\hline",
        body[0],
        r"\hline",
        *body[1:],
        r"\hline",
        r"\end{tabular}",
    ]
    return "\n".join(parts) + "\n"


# By what `--to` calls them.
WRITERS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "latex": to_latex, "md": to_markdown}


def _is_unknown(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))


def _text(cell: Cell, digits: int | None) -> str:
    if _is_unknown(cell):
        return "–"
    return str(cell) if digits is None or isinstance(cell, str) else f"{cell:.{digits}f}"


def _in_latex(text: str) -> str:
    text = text.replace("\\", r"\textbackslash ").replace("~", r"\textasciitilde ").replace("^", r"\textasciicircum ")
    return SPECIAL.sub(r"\\\g<0>", text).replace("±", r"$\pm$").replace("–", "--")

"""A table of texts and numbers, as CSV, Markdown or LaTeX, or for a terminal."""

import csv
import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

LATEX = str.maketrans(
    {"\\": r"\textbackslash ", "~": r"\textasciitilde ", "^": r"\textasciicircum ", "±": r"$\pm$", "–": "--"}
    | {sign: f"\\{sign}" for sign in "&%$#_{}"}
)
# The beginning of a text that a spreadsheet runs as a formula, unless it follows an apostrophe
FORMULA = re.compile(r"'*[=+\-@＝＋－＠]")
Cell = str | int | float | None


@dataclass(frozen=True)
class Column:
    """A column: its name, and the digits after the point of its numbers; None for texts and whole numbers."""

    name: str
    digits: int | None = None
    is_text: bool = False

    def text(self, cell: Cell) -> str:
        """Return a cell of it for people."""
        if _is_unknown(cell):
            return "–"
        return str(cell) if self.digits is None or isinstance(cell, str) else f"{cell:.{self.digits}f}"


@dataclass(frozen=True)
class Table:
    """Rows with a cell for each column; None and NaN are unknown."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.columns]

    def texts(self) -> list[list[str]]:
        """Return the rows for people."""
        return [[column.text(cell) for cell, column in zip(row, self.columns, strict=True)] for row in self.rows]


def cell_of(value: Any) -> Any:
    """Return a value as a cell of a CSV file: an apostrophe precedes text that a spreadsheet would run."""
    return f"'{value}" if isinstance(value, str) and FORMULA.match(value) else value


def to_csv(table: Table) -> str:
    """Return CSV with all digits; unknown cells are empty, and no cell is a formula."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(map(cell_of, table.names))
    writer.writerows([None if _is_unknown(cell) else cell_of(cell) for cell in row] for row in table.rows)
    return out.getvalue()


def to_markdown(table: Table) -> str:
    """Return Markdown with numbers aligned to the right and the title in bold above."""
    rule = ["---" if column.is_text else "---:" for column in table.columns]
    lines = [[cell.replace("|", r"\|") for cell in line] for line in (table.names, rule, *table.texts())]
    title = f"**{table.title}**\n\n" if table.title else ""
    return title + "".join(f"| {' | '.join(line)} |\n" for line in lines)


def to_latex(table: Table) -> str:
    """Return a tabular, which needs no package, with the title in a comment above."""
    head, *body = [
        " & ".join(cell.translate(LATEX) for cell in line) + r" \\" for line in (table.names, *table.texts())
    ]
    columns = "".join("l" if column.is_text else "r" for column in table.columns)
    title = [f"% {table.title}"] if table.title else []
    begin, end = rf"\begin{{tabular}}{{{columns}}}", r"\end{tabular}"
    return "\n".join([*title, begin, r"\hline", head, r"\hline", *body, r"\hline", end]) + "\n"


# By the names of `--to`
WRITERS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "latex": to_latex, "md": to_markdown}


def _is_unknown(cell: Cell) -> bool:
    return cell is None or (isinstance(cell, float) and not math.isfinite(cell))

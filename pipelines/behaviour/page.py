"""The page and the files of a report on labels: a sentence, tables, ethograms; in light and dark."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from lstr.pipelines.files.atomic import write_text
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.reports.markup import Drawing, card, draw_table, folded, note, show_figures
from lstr.pipelines.reports.page import build_page
from lstr.pipelines.reports.table import Table, to_csv


@dataclass(frozen=True)
class Report:
    """What a page shows."""

    title: str
    sentence: str
    shown: Sequence[Table]
    folded: Sequence[Table]
    drawings: Sequence[Drawing]
    notes: Mapping[str, str]
    """What a table means, by its title"""


def write_report(
    folder: Path, name: str, report: Report, document: Mapping[str, Any], raw: Mapping[str, Table]
) -> Path:
    """Write NAME.json, a CSV of each raw table, and at last report.html, whose path is returned. Raises OutputError."""
    write_json(folder / f"{name}.json", document)
    for file, table in raw.items():
        write_text(folder / f"{file}.csv", to_csv(table))
    path = folder / "report.html"
    write_text(path, draw_page(report))
    return path


def draw_page(report: Report) -> str:
    """The page as HTML that needs no other file. Every name is escaped."""
    parts = [f"<header><h1>{escape(report.title)}</h1></header>"]
    parts += [f'<div class="opening"><p class="sentence">{escape(report.sentence)}.</p></div>']
    parts += [card(f"<h3>{escape(_title(table))}</h3>{_content(report, table)}") for table in report.shown]
    parts.append(show_figures(report.drawings))
    parts += [folded(_title(table), _content(report, table)) for table in report.folded]
    return build_page(report.title, "".join(f"{part}\n" for part in parts if part), ("evaluation.css",))


def _title(table: Table) -> str:
    return f"{table.title[:1].upper()}{table.title[1:]}"


def _content(report: Report, table: Table) -> str:
    about = note(report.notes[table.title]) if table.title in report.notes else ""
    return about + draw_table(table.names, table.texts(), table.total)

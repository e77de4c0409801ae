"""Workbooks of Excel: the first sheet whose columns are those of a table, with times as the sheet shows them."""

import re
import warnings
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from itertools import islice
from pathlib import Path
from typing import Any
from xml.etree.ElementTree import ParseError

from lstr.files.text import MOST
from lstr.labels.label_set import Note
from lstr.pipelines.annotations.annotation import AnnotationError, AnnotationSet
from lstr.pipelines.annotations.binary import from_binary, is_binary
from lstr.pipelines.annotations.boris_tables import from_export, is_export
from lstr.pipelines.annotations.format import ConvertOptions, File, Format
from lstr.pipelines.annotations.rows import Table
from lstr.pipelines.annotations.tables import from_table, is_header, number_text

MOST_CELLS = 5_000_000
"""The most in all sheets, with the empty ones before the last of a row."""
EPOCH = datetime(1899, 12, 30)
"""Day 0 of Excel, as which it keeps a time of more than a day."""
LINE = re.compile(r"^Line (\d+)")


class Workbook(Format):
    """A workbook, read by openpyxl where that is installed."""

    name, suffix = "xlsx", ".xlsx"
    writes = False
    detects = False

    def recognises(self, file: File) -> bool:
        return file.ending in (".xlsx", ".xlsm")

    def read(self, file: File, video_id: str, options: ConvertOptions) -> AnnotationSet:
        sheets = read_sheets(file.path)
        chosen, read = next(
            ((sheet, how) for sheet in sheets if (how := _reader(sheet, options))),
            (next((sheet for sheet in sheets if sheet.rows), Sheet("", [])), from_table),
        )
        try:
            found = read(chosen, video_id, options)
        except AnnotationError as error:
            where = f"Sheet {chosen.name!r}"
            text = str(error)
            text = LINE.sub(rf"{where}, row \1", text) if LINE.match(text) else f"{where}: {text}"
            raise AnnotationError(text, error.hint.replace("FILE", str(file.path))) from error
        notes = [Note("short times", _short(chosen))] if chosen.short else []
        others = ", ".join(repr(sheet.name) for sheet in sheets if sheet is not chosen and sheet.rows)
        if others:
            notes.append(Note("sheet", f"the sheet {chosen.name!r} is read, and not {others}"))
        return found.noted(notes)


@dataclass
class Sheet:
    """A sheet's rows as texts, with their numbers."""

    name: str
    rows: list[tuple[int, list[str]]]
    short: str = ""
    """The first cell whose time shows hours and minutes alone"""
    delimiter: str = "\t"

    def first_lines(self, count: int) -> list[str]:
        """The first rows as lines, blank ones too."""
        found = dict(islice(self.rows, count))
        return ["\t".join(found.get(number, ())) for number in range(1, count + 1)]

    def __iter__(self) -> Iterator[tuple[int, list[str]]]:
        return iter(self.rows)


def _reader(sheet: Sheet, options: ConvertOptions) -> Callable[[Table, str, ConvertOptions], AnnotationSet] | None:
    """What reads a sheet: an export of BORIS, a table of segments, or one of 0 and 1; None where it is none of them."""
    table: Table = sheet
    if not sheet.rows:
        return None
    if not options.columns and is_export(table):
        return lambda table, name, options: from_export(table, name)
    if is_header(sheet.rows[0][1], options):
        return from_table
    return from_binary if not options.columns and is_binary(table) else None


def _short(sheet: Sheet) -> str:
    return (
        f"times such as that in {sheet.short} are shown as hours and minutes: they are read as they look, so as "
        "minutes and seconds"
    )


def read_sheets(path: Path) -> list[Sheet]:
    """The sheets of a workbook in its order. Raises AnnotationError, also where openpyxl is not installed."""
    try:
        from openpyxl import load_workbook
        from openpyxl.utils.exceptions import InvalidFileException
    except ImportError as error:
        raise AnnotationError(
            f"{path} is a workbook, and openpyxl is not installed ({error}).",
            'pip install "lstr-video[excel]", or save its sheet as CSV in UTF-8.',
        ) from error
    try:
        with zipfile.ZipFile(path) as container:
            claimed = sum(info.file_size for info in container.infolist())
        if claimed > MOST:
            raise AnnotationError(
                f"{path} would unpack to {claimed} bytes, and more than {MOST} are not read.",
                "save the sheet with the labels alone.",
            )
        with warnings.catch_warnings():  # of parts that openpyxl leaves out, such as lists to choose from
            warnings.simplefilter("ignore")
            with closing(load_workbook(path, read_only=True, data_only=True)) as book:
                return _sheets(path, book)
    except (zipfile.BadZipFile, zlib.error, InvalidFileException, ParseError, EOFError, RuntimeError, OSError) as error:
        raise AnnotationError(
            f"{path} is no workbook of Excel that can be read ({error}).", "save it again as .xlsx, or as CSV in UTF-8."
        ) from error


def _sheets(path: Path, book: Any) -> list[Sheet]:
    sheets = []
    count = 0
    for worksheet in book.worksheets:
        worksheet.reset_dimensions()  # what a sheet claims to hold may be a million rows
        sheet = Sheet(worksheet.title, [])
        for number, cells in enumerate(worksheet.iter_rows(), 1):
            count += 1 + len(cells)
            if count > MOST_CELLS:
                raise AnnotationError(
                    f"{path} has more than {MOST_CELLS} cells.",
                    "save the sheet with the labels alone, as CSV in UTF-8.",
                )
            texts = [_text(cell, sheet) for cell in cells]
            while texts and not texts[-1]:
                texts.pop()
            if texts:
                sheet.rows.append((number, texts))
        sheets.append(sheet)
    return sheets


def _text(cell: Any, sheet: Sheet) -> str:
    """What a cell shows, with all digits of its number."""
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return number_text(value) if abs(value) < 1e300 else repr(value)
    if isinstance(value, datetime) and value.year <= EPOCH.year + 1:
        value = value - EPOCH
    if isinstance(value, time):
        value = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second, microseconds=value.microsecond)
    if isinstance(value, timedelta):
        return _clock(value, cell, sheet)
    return value.isoformat() if isinstance(value, date) else " ".join(str(value).splitlines())


def _clock(value: timedelta, cell: Any, sheet: Sheet) -> str:
    """A time as h:mm:ss, or as h:mm where its cell shows no seconds and it has none."""
    seconds = value.total_seconds()
    sign, seconds = ("-", -seconds) if seconds < 0 else ("", seconds)
    whole, rest = divmod(round(seconds * 1000), 1000)
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    if "s" not in str(cell.number_format).lower() and not second and not rest:
        sheet.short = sheet.short or cell.coordinate
        return f"{sign}{hours}:{minute:02d}"
    fraction = f".{rest:03d}" if rest else ""
    return f"{sign}{hours}:{minute:02d}:{second:02d}{fraction}"

"""Workbooks of Excel, written by openpyxl as a person fills them."""

import sys
import zipfile
from datetime import datetime, time, timedelta

import pytest
from openpyxl import Workbook

from lstr.pipelines.annotations import workbook
from lstr.pipelines.annotations.annotation import AnnotationError
from lstr.pipelines.annotations.format import ConvertOptions
from lstr.pipelines.annotations.formats import read_annotations
from tests.support.annotated import segments


def saved(path, *sheets, formats=()):
    """A workbook of sheets, each a name and rows; formats: of cells of the first, by their references."""
    book = Workbook()
    book.remove(book.active)
    for name, rows in sheets:
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    for cell, form in formats:
        book.worksheets[0][cell].number_format = form
    book.save(path)
    return path


HEADER = ["video", "start", "end", "label"]


def test_the_first_sheet_with_the_columns_is_read(tmp_path):
    rows = [HEADER, ["a.mp4", 1.5, 2, "walk"], [], ["b", 3, "4,5", "run"]]
    path = saved(tmp_path / "x.xlsx", ("Notes", [["who", "when"], ["ann", datetime(2024, 5, 1)]]), ("Labels", rows))
    found = read_annotations(path)
    assert segments(found.videos["a.mp4"]) == [(1.5, 2, "walk")] and segments(found.videos["b"]) == [(3, 4.5, "run")]
    assert "'Labels' is read, and not 'Notes'" in found.notes[0].sentence


def test_times_are_read_as_the_sheet_shows_them(tmp_path):
    """Excel keeps 0:02 as two minutes of an hour; who types it for a video means two seconds, and a CSV says so."""
    rows = [
        HEADER,
        ["a", time(0, 1, 2), time(0, 1, 3, 500000), "walk"],
        ["a", timedelta(hours=30), timedelta(hours=30, seconds=1), "long"],
        ["a", time(0, 2), time(0, 5), "run"],
    ]
    path = saved(tmp_path / "x.xlsx", ("S", rows), formats=[("B4", "h:mm"), ("C4", "h:mm"), ("C2", "mm:ss.0")])
    found = read_annotations(path)
    assert segments(found.videos["a"]) == [(2, 5, "run"), (62, 63.5, "walk"), (108000, 108001, "long")]
    assert "B4" in found.notes[0].sentence


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([HEADER, ["a", "soon", 2, "walk"]], "Sheet 'S', row 2: 'soon' is no number"),
        ([HEADER, ["a", 1, 2, "walk"], [None, 3, 4, "run"]], "Sheet 'S', row 3: the name of the video is missing"),
        ([HEADER, ["a", datetime(2024, 5, 1), 2, "walk"]], "Sheet 'S', row 2: '2024-05-01"),
        ([["who", "when"], ["ann", 1.5]], "Sheet 'S': The table has no column"),
        ([["Labels of ann"], HEADER, ["a", 1, 2, "walk"]], "header, which is in line 2"),
        ([], "The table has no column"),
    ],
)
def test_mistakes_are_named_by_sheet_and_row(tmp_path, rows, words):
    with pytest.raises(AnnotationError, match=words) as caught:
        read_annotations(saved(tmp_path / "x.xlsx", ("S", rows)))
    assert caught.value.hint


def test_other_tables_are_read_from_workbooks_too(tmp_path):
    rows = [["Observation id", "Media file name", "Behavior", "Behavior type", "Start (s)", "Stop (s)"]]
    path = saved(tmp_path / "b.xlsx", ("S", [*rows, ["o", "a.mp4", "walk", "STATE", 1, 2]]))
    assert segments(read_annotations(path).videos["a"]) == [(1, 2, "walk")]
    path = saved(tmp_path / "g.xlsx", ("S", [["time", "walk"], [0, 1], [0.5, True], [1, 0]]))
    assert segments(read_annotations(path).videos["g"]) == [(0, 1, "walk")]
    path = saved(tmp_path / "d.xlsx", ("S", [["Film", "Beginn", "Ende", "Aktion"], ["a", 1, 2, "geht"]]))
    named = ConvertOptions(columns={"video": "Film", "start": "Beginn", "end": "Ende", "label": "Aktion"})
    assert segments(read_annotations(path, named).videos["a"]) == [(1, 2, "geht")]


def test_every_command_reads_it(tmp_path, lstr):
    path = saved(tmp_path / "x.xlsx", ("S", [HEADER, ["a", 1, 2, "walk"]]))
    assert lstr("labels", "check", path)[0] == 0
    code, out, err = lstr("labels", "convert", path, "--to", "csv")
    assert code == 0 and "a,1,2,walk" in out, err


def test_a_workbook_that_unpacks_to_too_much_is_refused_before(tmp_path, monkeypatch):
    path = saved(tmp_path / "x.xlsx", ("S", [HEADER, *[["a", i, i + 1, "walk"] for i in range(50)]]))
    monkeypatch.setattr(workbook, "MOST_CELLS", 100)
    with pytest.raises(AnnotationError, match="more than 100 cells"):
        read_annotations(path)
    monkeypatch.setattr(workbook, "MOST", 1000)
    with pytest.raises(AnnotationError, match="would unpack to"):
        read_annotations(path)


def test_what_is_no_workbook_is_refused(tmp_path, lstr):
    good = saved(tmp_path / "good.xlsx", ("S", [HEADER]))
    cut = good.read_bytes()[:-100]
    (tmp_path / "empty.xlsx").write_bytes(b"")
    (tmp_path / "cut.xlsx").write_bytes(cut)
    with zipfile.ZipFile(tmp_path / "other.xlsx", "w") as container:
        container.writestr("a.txt", "b")
    with zipfile.ZipFile(good) as source, zipfile.ZipFile(tmp_path / "odd.xlsx", "w") as container:
        for info in source.infolist():
            content = source.read(info)
            container.writestr(info.filename, content[:50] if "sheet1" in info.filename else content)
    for name in ("empty", "cut", "other", "odd"):
        code, _, err = lstr("labels", "check", tmp_path / f"{name}.xlsx")
        assert code == 2 and "hint: " in err and "Traceback" not in err, (name, err)


def test_without_openpyxl_it_says_what_to_install(tmp_path, monkeypatch):
    path = saved(tmp_path / "x.xlsx", ("S", [HEADER]))
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(AnnotationError, match="openpyxl is not installed") as caught:
        read_annotations(path)
    assert "lstr-video[excel]" in caught.value.hint

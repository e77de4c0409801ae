"""Tables, as other programs read and write them."""

import csv

import pytest

from lstr.errors import LabelsError
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationSet
from lstr.pipelines.annotations.csv_tables import from_csv
from lstr.pipelines.annotations.format import DEFAULTS, ConvertOptions, format_named
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.evaluation.tables import csv_text
from lstr.pipelines.pages.table import Column, Table, to_csv
from tests.support.annotated import segments


def test_a_table_with_tabs_that_lstr_wrote():
    """Earlier versions wrote whole milliseconds."""
    text = "video\tsubset\tduration_ms\tstart_ms\tend_ms\tlabel\tsubject\tscore\n"
    text += "a\ttraining\t60000\t500\t1250\twave\tAnna\t0.5\nb\ttesting\t\t\t\t\t\t\n"
    segment = Segment(0.5, 1.25, "wave", 0.5, "Anna")
    expected = {"a": AnnotatedVideo((segment,), "training", 60.0), "b": AnnotatedVideo((), "testing")}
    assert from_csv(text, "") == AnnotationSet(expected)


FORMULAS = ("=1+1", "+1", "-1", "@x", "'=1", "''@x", "＝1", '=HYPERLINK("http://x")')


def test_no_cell_is_a_formula_and_all_are_read_as_they_were():
    """A spreadsheet runs `=…` of a stranger's label, and sends what it finds where that says."""
    videos = {f"{text}/{n}": AnnotatedVideo((Segment(1, 2, text, -0.5),), text) for n, text in enumerate(FORMULAS)}
    annotated = AnnotationSet({**videos, "plain": AnnotatedVideo((Segment(1, 2, "it's"),), "a")})
    text = format_named("csv").text(annotated, DEFAULTS)
    cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
    assert not [cell for cell in cells if cell[:1] in "=+-@＝" and cell not in ("", "-0.5")], cells
    assert from_csv(text, "") == annotated and "plain" in cells and "it's" in cells
    text = csv_text([{"class": "=1", "AP": -0.5, "n": None}])
    assert text.splitlines()[1] == "'=1,-0.5,"
    assert to_csv(Table("", [Column("=1"), Column("plain")], [["+1", -0.5]])) == "'=1,plain\n'+1,-0.5\n"


def test_times_as_a_clock_shows_them():
    text = 'video,duration,start,end,label\ngame,1:00:00,0:01.5,1:02:03.25,jump\ngame,,"2:03,5",200,wave\n'
    video = from_csv(text, "").videos["game"]
    assert segments(video) == [(1.5, 3723.25, "jump"), (123.5, 200.0, "wave")] and video.duration == 3600
    assert from_csv("start_ms,end_ms,label\n0:01,2500,jump\n", "a").videos["a"].segments == (Segment(1, 2.5, "jump"),)


def test_tables_of_others(tmp_path):
    """Semicolons with decimal commas, a byte order mark, a remark, one video a file."""
    text = "\ufeffLabel;Start;End;Comment\njump;1,5;2,25;no\n"
    (tmp_path / "game.csv").write_text(text)
    assert read_annotations(tmp_path / "game.csv") == AnnotationSet(
        {"game": AnnotatedVideo((Segment(1.5, 2.25, "jump"),))}
    )


def test_columns_of_frames_are_read_where_their_rate_is_known(tmp_path):
    (tmp_path / "x.csv").write_text("video,start_frame,end_frame,label\ngame,45,90,jump\n")
    annotated = read_annotations(tmp_path / "x.csv", ConvertOptions(frames=30))
    assert segments(annotated.videos["game"]) == [(1.5, 3.0, "jump")]
    with pytest.raises(LabelsError, match="counts frames") as caught:
        read_annotations(tmp_path / "x.csv")
    assert "--frames 30" in caught.value.hint


def test_a_table_as_excel_saves_it_is_read_with_a_note(tmp_path, lstr):
    path = tmp_path / "x.csv"
    path.write_bytes("video;start;end;label\na;1,5;2;Stürzen\n".encode("cp1252"))
    annotated = read_annotations(path)
    assert annotated.classes == ("Stürzen",) and "Windows-1252" in annotated.notes[0].sentence
    code, _, err = lstr("labels", "convert", path, "--to", "vtt")
    assert code == 0 and "Windows-1252" in err
    assert "Windows-1252" in lstr("labels", "check", path)[1]


def test_unicode_text_of_excel_is_read_with_a_note(tmp_path, lstr):
    """UTF-16 with a mark, tabs, and quotation marks where a cell has a comma: it was refused."""
    path = tmp_path / "x.txt"
    path.write_bytes('video\tstart\tend\tlabel\r\na\t"1,5"\t2\tStürzen\r\n'.encode("utf-16"))
    annotated = read_annotations(path)
    assert segments(annotated.videos["a"]) == [(1.5, 2.0, "Stürzen")] and "UTF-16" in annotated.notes[0].sentence
    assert "UTF-16" in lstr("labels", "check", path)[1]


def test_a_duration_beside_a_start_is_the_segment_s():
    video = from_csv("video,start,duration_ms,label\na,0:10,1500,jump\n", "").videos["a"]
    assert segments(video) == [(10.0, 11.5, "jump")] and video.duration is None


@pytest.mark.parametrize(
    ("rows", "durations"),
    [
        (["a,300,302.5,2.5,groom"], [None]),
        (["a,0,2,2,groom", "a,300,302.5,2.5,rear"], [None]),
        (["a,0:05,0:07.52,2.5,groom", "a,300,302.49,2.5,rear"], [None]),
        (["a,0,2,2,groom", "b,300,302.5,2.5,rear"], [None, None]),
        (["a,300,302.5,600,groom", "a,310,311,500,rear", "b,1,2,60,rear"], [None, 60]),
        (["a,300,302.5,600,groom", "a,310,311,,rear", "b,,,60,"], [600, 60]),
        (["a,0,60,60,groom"], [60]),
        (["a,82,112,5.33,fall"], [5.33]),  # numbers of frames, which `lstr labels check` tells by their video's length
    ],
)
def test_a_duration_beside_an_end_is_the_video_s_unless_it_is_the_segment_s(rows, durations):
    """A sheet of bouts: the last one's 2.5 s were the length of its video, and later labels were lost."""
    read = from_csv("\n".join(["video,start,end,duration,label", *rows]), "")
    assert [video.duration for video in read.videos.values()] == durations
    assert [note.kind for note in read.notes] == ["duration"] * (None in durations)


@pytest.mark.parametrize("options", [ConvertOptions(frames=25), ConvertOptions(rate_of=lambda _: 25)])
def test_a_duration_that_counts_frames_as_start_and_end_do_is_not_the_video_s(options):
    read = from_csv("video,start_frame,end_frame,duration,label\na,300,360,60,groom\n", "", options)
    assert read.videos["a"].duration is None and len(read.notes) == 1


@pytest.mark.parametrize(
    ("name", "words"),
    [("x.ods", "a workbook"), ("x.xlsx", "a workbook")],
)
def test_files_of_other_programs_say_what_they_are(tmp_path, lstr, name, words):
    (tmp_path / name).write_text("no workbook")
    for command in ("check", "convert"):
        code, _, err = lstr("labels", command, tmp_path / name, *(("--to", "csv") if command == "convert" else ()))
        assert code == 2 and words in err and "hint: " in err and "CSV" in err, err


@pytest.mark.parametrize("row", ["a,,12,Sum:", "Average,1,,"])
def test_a_row_of_totals_is_an_error(row):
    with pytest.raises(LabelsError, match="Line 3: "):
        from_csv(f"video,start,end,label\na,1,2,jump\n{row}\n", "x")


@pytest.mark.parametrize("row", [",3,4,sit", ",,212.3,", ",,,sit", " ,3,,"])
def test_a_video_that_a_row_does_not_name_is_an_error(row):
    """Merged cells of a spreadsheet: the rows below are of no video that is named after the file."""
    with pytest.raises(LabelsError, match="Line 3: the name of the video is missing") as caught:
        from_csv(f"video,start,end,label,remark\na,1,2,jump,\n{row}\n", "x")
    assert "merged cells" in caught.value.hint
    assert from_csv("video,start,end,label,remark\na,1,2,jump,\n,,,,much\n,,,\n\n", "x").videos.keys() == {"a"}


@pytest.mark.parametrize("row", ["a,3,4,", "a,3,4,  ", "a,3,4", "a,3,", "a,,4,"])
def test_times_without_a_label_are_an_error(row):
    with pytest.raises(LabelsError, match="Line 3: the label is missing") as caught:
        from_csv(f"video,start,end,Label\na,1,2,jump\n{row}\n", "x")
    assert "'Label'" in caught.value.hint
    assert from_csv("video,start,duration,label\na,1,2,jump\nb,,60,\nc\n", "x").videos["c"].segments == ()


ROWS = 'a;1;2;jump;"two\r\nlines; 3, 4"\r\nb;1;2;sit;12" of "it"\r\n'


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ('a;1;2;jump\na;1;2;"jump\nb;3;4;sit\n', 3),
        ('a;1;2;jump\na;1;2;jump\nb;3;4;"sit', 4),
        ('a;1;2;"jump\na;1;2;"sit"\nb;3;4;"sit"\n', 2),
        ('a;1;2;"jump\na;1;2;sit"\nb;3;4;sit\n', 2),
        ('a;1;2;jump;"nice\nb;3;4;sit;nice"\n', 2),
        ('a;1;2;jump;"nice\nb;3;4;sit;\nb;5;6;sit;nice"\n', 2),
        (f'{ROWS}"a;1;2;jump;\nb;3;4;sit;nice\n', 5),
        ('a;1;2;"jump" x;"nice\nb;3;4;sit;\n', 2),
    ],
)
def test_a_quotation_mark_that_is_not_closed_is_named_by_its_line(rows, line):
    with pytest.raises(LabelsError, match=f"^Line {line}: a quotation mark is not closed") as caught:
        from_csv(f"video;start;end;label;remark\n{rows}", "x")
    assert caught.value.hint


def test_remarks_of_several_lines_and_quotation_marks_inside_a_cell_are_read():
    read = from_csv(f'video;start;end;label;remark\n{ROWS}c;3;"4";"""so"" it";\nd;3;4;"so" it;', "x")
    assert [segments(video)[0][2] for video in read.videos.values()] == ["jump", "sit", '"so" it', "so it"]
    with pytest.raises(LabelsError, match="Line 5: 'x' is not a number"):
        from_csv(f"video;start;end;label;remark\n{ROWS}c;x;4;jump;", "x")


@pytest.mark.parametrize("mark", ["sep=;\n", "SEP=;\r\n", '"sep=;"\r\n', "\n\n", ";;;\n"])
def test_excel_s_own_mark_and_blank_lines_may_be_above_the_header(mark):
    read = from_csv(f"{mark}video;start;end;label\na;1,5;2;jump, high\n", "x")
    assert segments(read.videos["a"]) == [(1.5, 2.0, "jump, high")]
    with pytest.raises(LabelsError, match=f"Line {2 + mark.count(chr(10))}: 'x'"):
        from_csv(f"{mark}video;start;end;label\na;x;2;jump, high\n", "x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("video,start,end\nx,1,2\n", "no column label"),
        ("", "no column end, label, start"),
        ("start,end,label\nsoon,2,jump\n", "'soon' is not a number"),
        ("start,end,label\n1,inf,jump\n", "'inf' is not a number"),
        ("start,end,label\n1,0:75,jump\n", "'0:75' is not a number"),
    ],
)
def test_broken_tables(text, words):
    with pytest.raises(LabelsError, match=words) as caught:
        from_csv(text, "x")
    assert caught.value.hint

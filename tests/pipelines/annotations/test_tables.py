"""Tables, as other programs read and write them: rows, columns, times, and tables of 0 and 1."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.errors import LabelsError
from lstr.extractors.video.inputs import find_videos
from lstr.labels.label_set import VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, format_named, recognise
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.annotations.videos import Rates, footage_of_files
from lstr.pipelines.evaluation.tables import csv_text
from lstr.pipelines.pages.table import Column, Table, to_csv
from tests.support.annotated import parse, segments, write

PLAIN = "video,start,end,label"
NTSC = 30000 / 1001


def at(rate: float) -> ConvertOptions:
    """Each video has this many frames per second."""
    return ConvertOptions(rate_of=lambda _: rate)


AT_25 = at(25)


def refused(text: str, named: str, options=AT_25, form: str = "csv") -> str:
    """The hint of the error, which has a text in it."""
    with pytest.raises(LabelsError) as caught:
        parse(form, text, "x", options)
    assert named in str(caught.value) and caught.value.hint
    return caught.value.hint


def test_a_table_with_tabs_that_an_earlier_version_wrote():
    text = "video\tsubset\tduration_ms\tstart_ms\tend_ms\tlabel\tsubject\tscore\n"
    text += "a\ttraining\t60000\t500\t1250\twave\tAnna\t0.5\nb\ttesting\t\t\t\t\t\t\n"
    segment = Segment(0.5, 1.25, "wave", 0.5, "Anna")
    expected = {"a": VideoLabels("training", 60.0, (segment,)), "b": VideoLabels("testing")}
    assert parse("csv", text, "") == AnnotationSet(expected)


FORMULAS = ("=1+1", "+1", "-1", "@x", "'=1", "''@x", "＝1", '=HYPERLINK("http://x")')


def test_no_cell_is_a_formula_and_all_are_read_as_they_were():
    """A spreadsheet runs `=…` of a stranger's label, and sends what it finds where that says."""
    videos = {
        f"{text}/{n}": VideoLabels(text, segments=(Segment(1, 2, text, -0.5),)) for n, text in enumerate(FORMULAS)
    }
    annotated = AnnotationSet({**videos, "plain": VideoLabels("a", segments=(Segment(1, 2, "it's"),))})
    text = write("csv", annotated)
    cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
    assert not [cell for cell in cells if cell[:1] in "=+-@＝" and cell not in ("", "-0.5")], cells
    assert parse("csv", text, "") == annotated and "plain" in cells and "it's" in cells
    assert csv_text([{"class": "=1", "AP": -0.5, "n": None}]).splitlines()[1] == "'=1,-0.5,"
    assert to_csv(Table("", [Column("=1"), Column("plain")], [["+1", -0.5]])) == "'=1,plain\n'+1,-0.5\n"


@pytest.mark.parametrize(
    ("header", "row", "start", "end"),
    [
        ("start,end", "1,2.5", 1.0, 2.5),
        ("Start , END", "1,2.5", 1.0, 2.5),
        ("start_ms,end_ms", "1000,2500", 1.0, 2.5),
        ("start_ms,end_ms", "0:01,2500", 1.0, 2.5),
        ("start,duration", "0:01,1.5", 1.0, 2.5),
        ("start,duration_ms", "0:10,1500", 10.0, 11.5),
        ("start_ms,duration_ms", "1000,1500", 1.0, 2.5),
        ("start_frame,end_frame", "20,50", 0.8, 2.0),
        ("start_frame,duration_frames", "20,30", 0.8, 2.0),
        ("start,end,start_frame,end_frame", "1,2.5,7,9", 1.0, 2.5),
        ("start,end", "0:01.5,1:02:03.25", 1.5, 3723.25),
        ("start,end", '"2:03,5",200', 123.5, 200.0),
        ("start,end", '"1,0","2,0"', 1.0, 2.0),
        ("start,end", "00:00:02:22,0:04", 2.88, 4.0),
    ],
)
def test_documented_columns_and_times_are_read(header, row, start, end):
    read = parse("csv", f"{header},label\n{row},fall\n", "a", AT_25)
    assert segments(read.videos["a"]) == [(start, end, "fall")] and read.notes == ()


@pytest.mark.parametrize(
    "text",
    [
        "\ufeffLabel;Start;End;Comment\njump;1,5;2,25;no\n",
        "start,end,label,,\n1.5,2.25,jump,4,5\n",
        "start,end,label\n1.5,2.25,jump,,\n",
        *(f"{mark}start;end;label\n1,5;2,25;jump" for mark in ("sep=;\n", "SEP=;\r\n", '"sep=;"\r\n', "\n\n", ";;;\n")),
    ],
)
def test_tables_of_other_programs(tmp_path, text):
    (tmp_path / "game.csv").write_text(text)
    assert segments(read_annotations(tmp_path / "game.csv").videos["game"]) == [(1.5, 2.25, "jump")]


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
    read = parse("csv", "\n".join(["video,start,end,duration,label", *rows]), "")
    assert [video.duration for video in read.videos.values()] == durations
    assert [note.kind for note in read.notes] == ["duration"] * (None in durations)


@pytest.mark.parametrize("options", [ConvertOptions(frames=25), at(25)])
def test_a_duration_that_counts_frames_as_start_and_end_do_is_not_the_video_s(options):
    read = parse("csv", "video,start_frame,end_frame,duration,label\na,300,360,60,groom\n", "", options)
    assert read.videos["a"].duration is None and len(read.notes) == 1


@pytest.mark.parametrize(
    ("text", "named"),
    [
        *((f"{PLAIN}\na,1,2,jump\n{row}\n", "Line 3") for row in ("a,,12,Sum:", "Average,1,,")),
        # merged cells of a spreadsheet: the rows below are of no video that is named after the file
        *((f"{PLAIN},remark\na,1,2,jump,\n{row}\n", "Line 3") for row in (",3,4,sit", ",,212.3,", ",,,sit", " ,3,,")),
        *((f"{PLAIN}\na,1,2,jump\n{row}\n", "Line 3") for row in ("a,3,4,", "a,3,4,  ", "a,3,4", "a,3,", "a,,4,")),
        # cells without a header: 2,5 to 4,0 was read as 2 to 5 s of the action '4'
        (f"{PLAIN}\na,2,5,4,0,fall", "Line 2"),
        (f"{PLAIN}\na,2,4,fall\na,2,5,4,fall", "Line 3"),
        (f'{PLAIN}\na,"2,5",4,0,fall', "'fall'"),
        (f"{PLAIN}\na,2,4,fall, hard", "' hard'"),
        (f"{PLAIN}\na,2,4,fall,,much", "Line 2"),
        ("start,end,label\nsoon,2,jump\n", "'soon'"),
        ("start,end,label\n1,inf,jump\n", "'inf'"),
        ("start,end,label\n1,0:75,jump\n", "'0:75'"),
        ("sep=;\nvideo;start;end;label\na;x;2;jump, high\n", "Line 3: 'x'"),
        ("start,end,label\n1,2,jump\n00:00:02:27,3,jump\n", "Line 3: '00:00:02:27'"),
    ],
)
def test_a_row_that_means_nothing_is_named_by_its_line(text, named):
    refused(text, named)


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
    refused(f"video;start;end;label;remark\n{rows}", f"Line {line}")


def test_remarks_of_several_lines_and_quotation_marks_inside_a_cell_are_read():
    read = parse("csv", f'video;start;end;label;remark\n{ROWS}c;3;"4";"""so"" it";\nd;3;4;"so" it;', "x")
    assert [segments(video)[0][2] for video in read.videos.values()] == ["jump", "sit", '"so" it', "so it"]
    refused(f"video;start;end;label;remark\n{ROWS}c;x;4;jump;", "Line 5: 'x'")


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.text('a1,;" ', min_size=1).filter(str.strip))))
def test_no_table_as_csv_writes_it_is_refused(rows):
    out = io.StringIO()
    csv.writer(out).writerows([PLAIN.split(","), *[("v", start, start + length, text) for start, length, text in rows]])
    videos = parse("csv", out.getvalue(), "").videos
    found = [label for video in videos.values() for *_, label in segments(video)]
    assert sorted(found) == sorted(text.strip() for *_, text in rows)


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("Film;Beginn;Ende;Aktion\na;1,5;2;Sturz\n", "start=…,end=…,label=…"),
        ("video,start,end,class\na,1,2,fall\n", "label=…"),
        ("video,begin,end,label\na,1,2,fall\n", "start=…"),
        ("video,start_frame,duration,label\na,30,60,fall\n", "end=…"),
        ("", "start=…,end=…,label=…"),
    ],
)
def test_missing_columns_are_named_with_the_command_to_complete(table, columns):
    hint = refused(table, ", ".join(sorted(name.partition("=")[0] for name in columns.split(","))))
    assert "lstr labels convert FILE" in hint and f"--columns '{columns}'" in hint


def test_columns_are_named_by_a_person(tmp_path, lstr):
    text = "Video;Beginn;Ende;Verhalten, kurz;label;Tier\na;1500;2000;Sturz;x;Anna\n"
    named = {"start_ms": "beginn", "end_ms": "Ende", "label": "Verhalten, kurz", "subject": "Tier"}
    (segment,) = parse("csv", text, "", ConvertOptions(columns=named)).videos["a"].segments
    assert segment == Segment(1.5, 2.0, "Sturz", None, "Anna")
    refused(text, "'Anfang'", ConvertOptions(columns={"start": "Anfang"}))
    refused(text, "'begin'", ConvertOptions(columns={"begin": "Beginn"}))
    path, output = tmp_path / "de.csv", tmp_path / "labels.json"
    path.write_text("Beginn (s);Ende, s;Klasse\n0;1;1\n1;1;0\n")  # otherwise a table of 0 and 1
    columns = "start=Beginn (s),end=Ende, s,label=Klasse"
    code, _, err = lstr("labels", "convert", path, "-o", output, "--columns", columns)
    assert code == 0, err
    (entry,) = json.loads(output.read_text())["database"].values()
    assert [one["segment"] for one in entry["annotations"]] == [[0, 1], [1, 1]]


def test_columns_that_are_not_read_have_a_note():
    """Ten videos under a header of another language were one video of the file's name, without a word."""
    table = "Film;start;end;label\nseq01;1;2;kick\nseq02;3;4;push\n"
    assert len(parse("csv", table, "sheet").notes) == 1
    (note,) = parse("csv", table.replace("seq02", "seq01"), "sheet").notes
    assert "'Film'" in note.sentence
    assert parse("csv", "start;end;label\n1;2;kick\n", "sheet").notes == ()


def test_subjects_are_a_column_there_and_back():
    named = parse("csv", "video,start,end,label,Subject\na,1,2,fall,Anna\na,1,2,fall,Ben\na,3,4,sit,\n", "")
    assert [a.subject for a in named.videos["a"].segments] == ["Anna", "Ben", ""]
    assert parse("csv", write("csv", named), "").videos == named.videos
    assert format_named("vtt").lost(named) == {"subjects"}


@pytest.mark.parametrize(
    ("code", "rate", "seconds"),
    [
        ("00:00:02:22", 25, 2 + 22 / 25),
        ("01:00:00:00", 25, 3600),
        ("00:01:00:29", NTSC, (60 * 30 + 29) / NTSC),
        ("00:01:00;02", NTSC, 60 * 30 / NTSC),
        ("00:10:00;00", NTSC, (600 * 30 - 18) / NTSC),
        ("01:00:00;00", 60000 / 1001, (3600 * 60 - 216) / (60000 / 1001)),
    ],
)
def test_a_time_code_is_a_frame_of_its_video(code, rate, seconds):
    (segment,) = parse("csv", f"{PLAIN}\na,{code},2:00:00,jump\n", "", at(rate)).videos["a"].segments
    assert segment.start == pytest.approx(seconds, abs=1e-9) and segment.end == 7200


@pytest.mark.parametrize(
    "text", ["start,end,start_frame,end_frame,label\n9,9,30,60,fall\n", "start,end,label\n30,60,fall"]
)
def test_one_rate_for_all_goes_before_that_of_a_video(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    read = read_annotations(tmp_path / "x.csv", ConvertOptions(frames=20, rate_of=lambda _: 50)).videos["x"]
    assert segments(read) == [(1.5, 3.0, "fall")]


def test_frame_numbers_take_the_rates_of_the_videos(small_set, tmp_path, lstr):
    """Of a table, of time codes, and of Label Studio."""
    rates = Rates(lambda: find_videos([small_set.videos]))
    rate = rates("scene_00")
    assert rate == footage_of_files(find_videos([small_set.videos]))["scene_00"].rate == rates("elsewhere")
    region = {"type": "timelinelabels", "value": {"ranges": [{"start": 1 + rate, "end": 2 * rate}]}}
    region["value"]["timelinelabels"] = ["walk"]
    tasks = json.dumps([{"data": {"video": "scene_00.avi"}, "annotations": [{"result": [region]}]}])
    frames = f"video,start_frame,end_frame,label\nC:\\films\\scene_00.avi,{rate:g},{2 * rate:g},walk\n"
    codes = f"{PLAIN}\nfilms/scene_00,00:00:01:00,00:00:02:00,walk\n"
    for name, text in (("frames.csv", frames), ("codes.csv", codes), ("tasks.json", tasks)):
        source, output = tmp_path / name, tmp_path / f"{name}.out.json"
        source.write_text(text)
        code, _, err = lstr("labels", "check", source)
        assert code == 2 and "--video VIDEOS" in err and "--frames 30" in err
        assert lstr("labels", "check", source, small_set.videos)[0] == 0
        code, _, err = lstr("labels", "convert", source, "--video", small_set.videos, "-o", output)
        assert code == 0, err
        (entry,) = json.loads(output.read_text())["database"].values()
        assert entry["annotations"] == [{"label": "walk", "segment": [1.0, 2.0]}]


TIMED = "time;groom;rear\n0,0;0;1\n0,1;1;1\n0,2;1;0\n0,3;0;0\n"
UNTIMED = "walk,run\n0,1\n1,0\n1,0\n"
RUN_AND_WALK = [(0.0, 0.1, "run"), (0.1, 0.3, "walk")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (TIMED, [(0.0, 0.2, "rear"), (0.1, 0.3, "groom")]),
        ("Time,a\n0:00:00,0\n0:00:01,1\n0:00:02,0\n", [(1, 2, "a")]),
        (UNTIMED, RUN_AND_WALK),
        ("frame\twalk\n0\t0\n1\t1\n2\t0\n", [(0.1, 0.2, "walk")]),
        (",walk\n0,1\n1,0\n", [(0.0, 0.1, "walk")]),
        ("time,background,walk\n0,1,0\n1,0,1\n", [(1.0, 2.0, "walk")]),
    ],
)
def test_a_table_of_0_and_1_is_known_by_its_beginning(tmp_path, text, expected):
    (tmp_path / "x.csv").write_text(text)
    assert recognise(tmp_path / "x.csv") is format_named("binary")
    assert segments(read_annotations(tmp_path / "x.csv", at(10)).videos["x"]) == expected


def test_another_table_is_not_one_of_0_and_1(tmp_path):
    tables = "start,end,label\n0,1,1\n", "a,b\n0.5,1\n", "a,b\n-1,1\n", "a,b\n", "1,0\n0,1\n", "video,walk\nx,1\n", ""
    for text in tables:
        (tmp_path / "x.csv").write_text(text)
        assert recognise(tmp_path / "x.csv") is format_named("csv"), text


def test_frames_of_a_table_of_0_and_1_need_the_rate_of_the_video():
    found = parse("binary", UNTIMED, "x", ConvertOptions(frames=5)).videos["x"]
    assert segments(found) == [(0.0, 0.2, "run"), (0.2, 0.6, "walk")] and found.duration == pytest.approx(0.6)
    assert "--frames 30" in refused(UNTIMED, "", ConvertOptions(), "binary")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("a,b\n0,1\n0,2\n", "Line 3: '2'"),
        ("a,b\n0,1\n0,\n", "Line 3"),
        ("a,b\n0,1\n0\n", "Line 3"),
        ("time,a\n0,1\nnan,1\n", "Line 3: 'nan'"),
        ("time,a\n0,1\n0,1\n", "Line 3: '0'"),
        ("a,a\n0,1\n", ""),
        ("a,b\n", ""),
        ('a,b\n0,"1\n', ""),
    ],
)
def test_a_wrong_table_of_0_and_1_is_refused(text, named):
    refused(text, named, form="binary")


def test_all_faulty_cells_are_named_with_line_and_column():
    text = f"{PLAIN}\na,soon,late,jump\na,1,2,jump\na,3,4,\n"
    refused(text, "Line 2: 'late' is not a number (column 'end')")
    refused(text, "Line 4")
    refused("time,jump,sit\n0,1,2\n1,x,0\n", "'x'", form="binary")

"""Tables, as other programs read and write them: rows, columns, times, and tables of 0 and 1."""

import csv
import io
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.extractors.video.inputs import find_videos
from lstr.labels.label_set import VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import ConvertOptions, format_named, recognise
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.annotations.videos import Rates, footage_of_files
from lstr.pipelines.evaluation.tables import csv_text
from lstr.pipelines.pages.table import Column, Table, to_csv
from tests.support.annotated import parse, read_error, segments, write

PLAIN = "video,start,end,label"
REMARKS = "video;start;end;label;remark"
NTSC = 30000 / 1001


def at(rate: float) -> SimpleNamespace:
    """Each video has this many frames per second."""
    return SimpleNamespace(frame_rate=lambda _: rate, seconds=lambda _: None)


def test_columns_with_tabs_are_read_and_written_with_commas():
    text = "video\tsubset\tduration_ms\tstart_ms\tend_ms\tlabel\tSubject\tscore\n"
    text += "a\ttraining\t60000\t500\t1250\twave\tAnna\t0.5\na\t\t\t500\t1250\twave\tBen\t\nb\ttesting\t\t\t\t\t\t\n"
    waves = Segment(0.5, 1.25, "wave", 0.5, "Anna"), Segment(0.5, 1.25, "wave", None, "Ben")
    annotated = parse("csv", text)
    assert annotated == AnnotationSet({"a": VideoLabels("training", 60.0, waves[::-1]), "b": VideoLabels("testing")})
    assert parse("csv", write("csv", annotated)) == annotated
    assert "subjects" in format_named("vtt").lost(annotated)


FORMULAS = ("=1+1", "+1", "-1", "@x", "'=1", "''@x", "＝1", '=HYPERLINK("http://x")')


def test_formulas_are_escaped_and_read_back():
    """A spreadsheet runs `=…` of a stranger's label, and sends its result to an address in it."""
    videos = {
        f"{text}/{n}": VideoLabels(text, segments=(Segment(1, 2, text, -0.5),)) for n, text in enumerate(FORMULAS)
    }
    annotated = AnnotationSet({**videos, "plain": VideoLabels("a", segments=(Segment(1, 2, "it's"),))})
    text = write("csv", annotated)
    cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
    assert not [cell for cell in cells if cell[:1] in "=+-@＝" and cell not in ("", "-0.5")], cells
    assert parse("csv", text) == annotated and "plain" in cells and "it's" in cells
    assert csv_text([{"class": "=1", "AP": -0.5, "n": None}]).splitlines()[1] == "'=1,-0.5,"
    assert to_csv(Table("", [Column("=1"), Column("plain")], [["+1", -0.5]])) == "'=1,plain\n'+1,-0.5\n"


@pytest.mark.parametrize(
    ("header", "row", "start", "end", "frames"),
    [
        ("Start , END", "1,2.5", 1.0, 2.5, None),
        ("start_ms,end_ms", "0:01,2500", 1.0, 2.5, None),
        ("start,duration", "0:01,1.5", 1.0, 2.5, None),
        ("start_frame,end_frame", "20,50", 0.8, 2.0, None),
        ("start_frame,duration_frames", "20,30", 0.8, 2.0, None),
        ("start,end,start_frame,end_frame", "1,2.5,7,9", 1.0, 2.5, None),
        ("start,end", "0:01.5,1:02:03.25", 1.5, 3723.25, None),
        ("start,end", '"2:03,5",200', 123.5, 200.0, None),
        ("start,end", "00:00:02:22,0:04", 2.88, 4.0, None),
        # the option `frames` takes precedence over the rates of videos, and over columns in seconds
        ("start,end", "30,60", 1.5, 3.0, 20),
        ("start,end,start_frame,end_frame", "9,9,30,60", 1.5, 3.0, 20),
    ],
)
def test_documented_columns_and_times(header, row, start, end, frames):
    annotated = parse("csv", f"{header},label\n{row},fall\n", "a", ConvertOptions(frames=frames), at(25))
    assert segments(annotated.videos["a"]) == [(start, end, "fall")] and annotated.notes == ()


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
        (["a,0:05,0:07.52,2.5,groom", "a,300,302.49,2.5,rear"], [None]),
        (["a,0,2,2,groom", "b,300,302.5,2.5,rear"], [None, None]),
        (["a,300,302.5,600,groom", "a,310,311,500,rear", "b,1,2,60,rear"], [None, 60]),
        (["a,300,302.5,600,groom", "a,310,311,,rear", "b,,,60,"], [600, 60]),
        (["a,0,60,60,groom"], [60]),
        (["a,82,112,5.33,fall"], [5.33]),  # frame numbers, which `lstr labels check` detects by the video's length
    ],
)
def test_a_duration_next_to_an_end_is_of_the_video_or_of_the_segment(rows, durations):
    """In a sheet of bouts, the last bout's 2.5 s were the length of its video, and later labels were lost."""
    annotated = parse("csv", "\n".join(["video,start,end,duration,label", *rows]))
    assert [video.duration for video in annotated.videos.values()] == durations
    assert [note.kind for note in annotated.notes] == ["duration"] * (None in durations)


@pytest.mark.parametrize(("options", "rates"), [(ConvertOptions(frames=25), None), (ConvertOptions(), at(25))])
def test_a_duration_in_frames_is_of_the_segment(options, rates):
    text = "video,start_frame,end_frame,duration,label\na,300,360,60,groom\n"
    annotated = parse("csv", text, options=options, rates=rates)
    assert annotated.videos["a"].duration is None and len(annotated.notes) == 1


ROWS = 'a;1;2;jump;"two\r\nlines; 3, 4"\r\nb;1;2;sit;12" of "it"\r\n'
UNCLOSED = (  # quotation marks, and their lines
    ('a;1;2;jump\na;1;2;"jump\nb;3;4;sit\n', 3),
    ('a;1;2;"jump\na;1;2;"sit"\nb;3;4;"sit"\n', 2),
    ('a;1;2;"jump\na;1;2;sit"\nb;3;4;sit\n', 2),
    ('a;1;2;jump;"nice\nb;3;4;sit;\nb;5;6;sit;nice"\n', 2),
    (f'{ROWS}"a;1;2;jump;\nb;3;4;sit;nice\n', 5),
    ('a;1;2;"jump" x;"nice\nb;3;4;sit;\n', 2),
)


@pytest.mark.parametrize(
    ("form", "text", "value"),
    [
        *(("csv", f"{REMARKS}\n{rows}", f"Line {line}") for rows, line in UNCLOSED),
        *(("csv", f"{PLAIN}\na,1,2,jump\n{row}\n", "Line 3") for row in ("a,,12,Sum:", "a,3,4,  ", "a,3,4", "a,,4,")),
        # merged cells of a spreadsheet: the rows below have no video, not the video with the name of the file
        *(("csv", f"{REMARKS}\na;1;2;jump;\n{row}", "Line 3") for row in (";3;4;sit", ";;212,3;", ";;;sit", " ;3;;")),
        # cells without a header: 2,5 to 4,0 was read as 2 to 5 s of the action '4'
        ("csv", f"{PLAIN}\na,2,4,fall\na,2,5,4,fall", "Line 3"),
        ("csv", f'{PLAIN}\na,"2,5",4,0,fall', "'fall'"),
        *(("csv", f"start,end,label\n1,{end},jump\n", f"'{end}'") for end in ("inf", "0:75")),
        ("csv", "sep=;\nvideo;start;end;label\na;x;2;jump, high\n", "Line 3: 'x'"),
        ("csv", "start,end,label\n1,2,jump\n00:00:02:27,3,jump\n", "Line 3: '00:00:02:27'"),
        # all wrong cells are listed
        *(("csv", f"{PLAIN}\na,soon,late,jump\na,1,2,jump\na,3,4,\n", value) for value in ("'late'", "Line 4")),
        ("binary", "a,b\n0,1\n0,2\n", "Line 3: '2'"),
        ("binary", "a,b\n0,1\n0\n", "Line 3"),
        *(("binary", f"time,a\n0,1\n{time},1\n", f"Line 3: '{time}'") for time in ("nan", "0")),
        ("binary", "time,jump,sit\n0,1,2\n1,x,0\n", "'x'"),
        *(("binary", text, "") for text in ("a,a\n0,1\n", "a,b\n", 'a,b\n0,"1\n')),
    ],
)
def test_an_error_names_the_line_and_the_cell(form, text, value):
    read_error(form, text, value, rates=at(25))


def test_remarks_of_several_lines_and_quotation_marks_inside_a_cell():
    annotated = parse("csv", f'{REMARKS}\n{ROWS}c;3;"4";"""so""\nit";\nd;3;4;"so" it;')
    assert [segments(video)[0][2] for video in annotated.videos.values()] == ["jump", "sit", '"so" it', "so it"]
    read_error("csv", f"{REMARKS}\n{ROWS}c;x;4;jump;", "Line 5: 'x'")


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.text('a1,;" ', min_size=1).filter(str.strip))))
def test_tables_of_the_csv_module_are_read(rows):
    out = io.StringIO()
    csv.writer(out).writerows([PLAIN.split(","), *[("v", start, start + length, text) for start, length, text in rows]])
    labels = [segment.label for _, segment in parse("csv", out.getvalue()).segments]
    assert sorted(labels) == sorted(text.strip() for *_, text in rows)


@pytest.mark.parametrize(
    ("table", "columns"),
    [
        ("Film;Beginn;Ende;Aktion\na;1,5;2;Sturz\n", "start=…,end=…,label=…"),
        ("video,start_frame,duration,label\na,30,60,fall\n", "end=…"),
        ("", "start=…,end=…,label=…"),
    ],
)
def test_missing_columns_are_named_in_a_command_to_complete(table, columns):
    names = sorted(name.partition("=")[0] for name in columns.split(","))
    hint = read_error("csv", table, ", ".join(names)).hint
    assert "lstr labels convert FILE" in hint and f"--columns '{columns}'" in hint


def test_the_columns_option(tmp_path, run):
    text = "Video;Beginn;Ende;Verhalten, kurz;label;Tier\na;1500;2000;Sturz;x;Anna\n"
    columns = {"start_ms": "beginn", "label": "Verhalten, kurz", "subject": "Tier"}
    for header, end in (("Ende", 2.0), ("Beginn", 1.5)):  # point events have one column of times
        options = ConvertOptions(columns=columns | {"end_ms": header})
        assert parse("csv", text, options=options).videos["a"].segments == (Segment(1.5, end, "Sturz", None, "Anna"),)
    for name, fault in (("start", "'Anfang'"), ("begin", "'begin'")):
        read_error("csv", text, fault, ConvertOptions(columns={name: "Anfang"}))
    assert "start=Tier,end=…" in read_error("csv", text, "end (it", ConvertOptions(columns={"start": "Tier"})).hint
    path, out = tmp_path / "de.csv", tmp_path / "labels.json"
    path.write_text("Beginn (s);Ende, s;Klasse\n0;1;1\n1;1;0\n")  # otherwise a table of 0 and 1
    run("labels", "convert", path, "-o", out, "--columns", "start=Beginn (s),end=Ende, s,label=Klasse")
    assert segments(read_annotations(out).videos["de"]) == [(0, 1, "1"), (1, 1, "0")]


def test_ignored_columns_have_a_note():
    """Ten videos under a header of another language were one video of the file's name, without a warning."""
    table = "Film;start;end;label\nseq01;1;2;kick\nseq02;3;4;push\n"
    assert len(parse("csv", table).notes) == 1
    (note,) = parse("csv", table.replace("seq02", "seq01")).notes
    assert "'Film'" in note.sentence
    assert parse("csv", "start;end;label\n1;2;kick\n").notes == ()


@pytest.mark.parametrize(
    ("code", "rate", "seconds"),
    [
        ("00:00:02:22", 25, 2 + 22 / 25),
        ("00:01:00:29", NTSC, (60 * 30 + 29) / NTSC),
        ("00:01:00;02", NTSC, 60 * 30 / NTSC),
        ("00:10:00;00", NTSC, (600 * 30 - 18) / NTSC),
        ("01:00:00;00", 60000 / 1001, (3600 * 60 - 216) / (60000 / 1001)),
    ],
)
def test_time_codes(code, rate, seconds):
    (segment,) = parse("csv", f"{PLAIN}\na,{code},2:00:00,jump\n", rates=at(rate)).videos["a"].segments
    assert segment.start == pytest.approx(seconds, abs=1e-9) and segment.end == 7200


def test_frame_numbers_take_the_rates_of_the_videos(small_set, tmp_path, lstr):
    rates = Rates(lambda: find_videos([small_set.videos]))
    rate = rates.frame_rate("scene_00")
    assert rate == footage_of_files(find_videos([small_set.videos]))["scene_00"][1] == rates.frame_rate("elsewhere")
    texts = {
        "frames.csv": f"video,start_frame,end_frame,label\nC:\\films\\scene_00.avi,{rate:g},{2 * rate:g},walk\n",
        "codes.csv": f"{PLAIN}\nfilms/scene_00,00:00:01:00,00:00:02:00,walk\n",
    }
    for name, text in texts.items():
        source, output = tmp_path / name, tmp_path / f"{name}.out.json"
        source.write_text(text)
        code, _, err = lstr("labels", "check", source)
        assert code == 2 and "--video VIDEOS" in err and "--frames 30" in err
        assert lstr("labels", "check", source, small_set.videos)[0] == 0
        assert lstr("labels", "convert", source, "--video", small_set.videos, "-o", output)[0] == 0
        assert segments(read_annotations(output).first[1]) == [(1.0, 2.0, "walk")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("time;groom;rear\n0,0;0;1\n0,1;1;1\n0,2;1;0\n0,3;0;0\n", [(0.0, 0.2, "rear"), (0.1, 0.3, "groom")]),
        ("Time,a\n0:00:00,0\n0:00:01,1\n0:00:02,0\n", [(1, 2, "a")]),
        ("walk,run\n0,1\n1,0\n1,0\n", [(0.0, 0.1, "run"), (0.1, 0.3, "walk")]),
        ("frame\twalk\n0\t0\n1\t1\n2\t0\n", [(0.1, 0.2, "walk")]),
        (",walk\n0,1\n1,0\n", [(0.0, 0.1, "walk")]),
        ("time,background,walk\n0,1,0\n1,0,1\n", [(1.0, 2.0, "walk")]),
    ],
)
def test_tables_of_0_and_1_are_recognised(tmp_path, text, expected):
    (tmp_path / "x.csv").write_text(text)
    assert recognise(tmp_path / "x.csv") is format_named("binary")
    assert segments(read_annotations(tmp_path / "x.csv", rates=at(10)).videos["x"]) == expected


@pytest.mark.parametrize(
    "text", ["start,end,label\n0,1,1\n", "a,b\n0.5,1\n", "a,b\n-1,1\n", "a,b\n", "1,0\n0,1\n", "video,walk\nx,1\n", ""]
)
def test_other_tables_are_not_tables_of_0_and_1(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    assert recognise(tmp_path / "x.csv") is format_named("csv")


def test_frames_of_a_table_of_0_and_1_need_the_rate_of_the_video():
    video = parse("binary", "walk\n1\n1\n0", options=ConvertOptions(frames=5)).videos["x"]
    assert segments(video) == [(0.0, 0.4, "walk")] and video.duration == pytest.approx(0.6)
    assert "--frames 30" in read_error("binary", "walk\n1\n").hint

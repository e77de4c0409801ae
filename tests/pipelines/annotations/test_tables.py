"""Tables, as other programs read and write them: rows, columns, times, and tables of 0 and 1."""

import csv
import io
import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.errors import LabelsError
from lstr.extractors.video.inputs import find_videos
from lstr.labels.label_set import VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import DEFAULTS, ConvertOptions, format_named, recognise
from lstr.pipelines.annotations.label_files import read_annotations
from lstr.pipelines.annotations.videos import Rates, footage_of_files
from lstr.pipelines.evaluation.tables import csv_text
from lstr.pipelines.pages.table import Column, Table, to_csv
from tests.support.annotated import parse, segments


def test_a_table_with_tabs_that_lstr_wrote():
    """Earlier versions wrote whole milliseconds."""
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
    text = format_named("csv").text(annotated, DEFAULTS)
    cells = [cell for row in csv.reader(text.splitlines()) for cell in row]
    assert not [cell for cell in cells if cell[:1] in "=+-@＝" and cell not in ("", "-0.5")], cells
    assert parse("csv", text, "") == annotated and "plain" in cells and "it's" in cells
    text = csv_text([{"class": "=1", "AP": -0.5, "n": None}])
    assert text.splitlines()[1] == "'=1,-0.5,"
    assert to_csv(Table("", [Column("=1"), Column("plain")], [["+1", -0.5]])) == "'=1,plain\n'+1,-0.5\n"


def test_times_as_a_clock_shows_them():
    text = 'video,duration,start,end,label\ngame,1:00:00,0:01.5,1:02:03.25,jump\ngame,,"2:03,5",200,wave\n'
    video = parse("csv", text, "").videos["game"]
    assert segments(video) == [(1.5, 3723.25, "jump"), (123.5, 200.0, "wave")] and video.duration == 3600
    read = parse("csv", "start_ms,end_ms,label\n0:01,2500,jump\n")
    assert read.first[1].segments == (Segment(1, 2.5, "jump"),)


def test_tables_of_others(tmp_path):
    """Semicolons with decimal commas, a byte order mark, a remark, one video a file."""
    text = "\ufeffLabel;Start;End;Comment\njump;1,5;2,25;no\n"
    (tmp_path / "game.csv").write_text(text)
    assert read_annotations(tmp_path / "game.csv") == AnnotationSet(
        {"game": VideoLabels(segments=(Segment(1.5, 2.25, "jump"),))}
    )


def test_a_duration_beside_a_start_is_the_segment_s():
    video = parse("csv", "video,start,duration_ms,label\na,0:10,1500,jump\n", "").videos["a"]
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
    read = parse("csv", "\n".join(["video,start,end,duration,label", *rows]), "")
    assert [video.duration for video in read.videos.values()] == durations
    assert [note.kind for note in read.notes] == ["duration"] * (None in durations)


@pytest.mark.parametrize("options", [ConvertOptions(frames=25), ConvertOptions(rate_of=lambda _: 25)])
def test_a_duration_that_counts_frames_as_start_and_end_do_is_not_the_video_s(options):
    read = parse("csv", "video,start_frame,end_frame,duration,label\na,300,360,60,groom\n", "", options)
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
        parse("csv", f"video,start,end,label\na,1,2,jump\n{row}\n", "x")


@pytest.mark.parametrize("row", [",3,4,sit", ",,212.3,", ",,,sit", " ,3,,"])
def test_a_video_that_a_row_does_not_name_is_an_error(row):
    """Merged cells of a spreadsheet: the rows below are of no video that is named after the file."""
    with pytest.raises(LabelsError, match="Line 3: the name of the video is missing") as caught:
        parse("csv", f"video,start,end,label,remark\na,1,2,jump,\n{row}\n", "x")
    assert "merged cells" in caught.value.hint
    assert parse("csv", "video,start,end,label,remark\na,1,2,jump,\n,,,,much\n,,,\n\n", "x").videos.keys() == {"a"}


@pytest.mark.parametrize("row", ["a,3,4,", "a,3,4,  ", "a,3,4", "a,3,", "a,,4,"])
def test_times_without_a_label_are_an_error(row):
    with pytest.raises(LabelsError, match="Line 3: the label is missing") as caught:
        parse("csv", f"video,start,end,Label\na,1,2,jump\n{row}\n", "x")
    assert "'Label'" in caught.value.hint
    assert parse("csv", "video,start,duration,label\na,1,2,jump\nb,,60,\nc\n", "x").videos["c"].segments == ()


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
        parse("csv", f"video;start;end;label;remark\n{rows}", "x")
    assert caught.value.hint


def test_remarks_of_several_lines_and_quotation_marks_inside_a_cell_are_read():
    read = parse("csv", f'video;start;end;label;remark\n{ROWS}c;3;"4";"""so"" it";\nd;3;4;"so" it;', "x")
    assert [segments(video)[0][2] for video in read.videos.values()] == ["jump", "sit", '"so" it', "so it"]
    with pytest.raises(LabelsError, match="Line 5: 'x' is not a number"):
        parse("csv", f"video;start;end;label;remark\n{ROWS}c;x;4;jump;", "x")


@pytest.mark.parametrize("mark", ["sep=;\n", "SEP=;\r\n", '"sep=;"\r\n', "\n\n", ";;;\n"])
def test_excel_s_own_mark_and_blank_lines_may_be_above_the_header(mark):
    read = parse("csv", f"{mark}video;start;end;label\na;1,5;2;jump, high\n", "x")
    assert segments(read.videos["a"]) == [(1.5, 2.0, "jump, high")]
    with pytest.raises(LabelsError, match=f"Line {2 + mark.count(chr(10))}: 'x'"):
        parse("csv", f"{mark}video;start;end;label\na;x;2;jump, high\n", "x")


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
        parse("csv", text, "x")
    assert caught.value.hint


AT_20 = ConvertOptions(rate_of=lambda _: 20)


@pytest.mark.parametrize(
    ("header", "row", "found"),
    [
        ("start,end", "1,2.5", (1.0, 2.5)),
        ("Start , END", "1,2.5", (1.0, 2.5)),
        ("start_ms,end_ms", "1000,2500", (1.0, 2.5)),
        ("start,duration", "0:01,1.5", (1.0, 2.5)),
        ("start_ms,duration_ms", "1000,1500", (1.0, 2.5)),
        ("start_frame,end_frame", "20,50", (1.0, 2.5)),
        ("start_frame,duration_frames", "20,30", (1.0, 2.5)),
        ("start,end,start_frame,end_frame", "1,2.5,7,9", (1.0, 2.5)),
    ],
)
def test_documented_columns_are_read(header, row, found):
    read = parse("csv", f"{header},label\n{row},fall\n", "a", AT_20)
    assert segments(read.videos["a"]) == [(*found, "fall")] and read.notes == ()


def test_one_rate_of_all_takes_the_columns_of_frames():
    text = "start,end,start_frame,end_frame,label\n9,9,30,60,fall\n"
    assert segments(parse("csv", text, "a", ConvertOptions(frames=20)).videos["a"]) == [(1.5, 3.0, "fall")]
    plain = parse("csv", "start,end,label\n30,60,fall\n", "a", ConvertOptions(frames=20))
    assert segments(plain.videos["a"]) == [(1.5, 3.0, "fall")]


@pytest.mark.parametrize(
    ("table", "missing", "command"),
    [
        ("Film;Beginn;Ende;Aktion\na;1,5;2;Sturz\n", "end, label, start", "start=…,end=…,label=…"),
        ("video,start,end,class\na,1,2,fall\n", "label", "label=…"),
        ("video,begin,end,label\na,1,2,fall\n", "start", "start=…"),
        ("video,start_frame,duration,label\na,30,60,fall\n", "end", "end=…"),
        ("", "end, label, start", "start=…,end=…,label=…"),
    ],
)
def test_other_columns_are_an_error_with_the_command_to_complete(table, missing, command):
    with pytest.raises(LabelsError, match=f"no column {missing} ") as caught:
        parse("csv", table, "x")
    assert f"lstr labels convert FILE -o labels.json --columns {shlex.quote(command)}`" in caught.value.hint


def test_the_command_of_the_error_reads_the_table(tmp_path, lstr):
    path = tmp_path / "de.csv"
    path.write_text("Video ID;Beginn (s);Ende, s;Aktion\na;1,5;2;Sturz\n")
    code, _, err = lstr("labels", "check", path)
    assert code == 2
    words = shlex.split(" ".join(err.split()).partition("`lstr ")[2].partition("`")[0])
    words[words.index("labels.json")] = str(tmp_path / "labels.json")
    for name in ("Beginn (s)", "Ende, s", "Aktion"):
        words[-1] = words[-1].replace("…", name, 1)
    code, _, err = lstr(*words[:-1], f"video=Video ID,{words[-1]}")
    assert code == 0, err
    database = json.loads((tmp_path / "labels.json").read_text())["database"]
    assert database == {"a": {"annotations": [{"label": "Sturz", "segment": [1.5, 2]}]}}


def test_columns_are_named_by_a_person():
    text = "Video;Beginn;Ende;Verhalten, kurz;label;Tier\na;1500;2000;Sturz;x;Anna\n"
    named = {"start_ms": "beginn", "end_ms": "Ende", "label": "Verhalten, kurz", "subject": "Tier"}
    read = parse("csv", text, "", ConvertOptions(columns=named))
    assert segments(read.videos["a"]) == [(1.5, 2.0, "Sturz")] and read.videos["a"].segments[0].subject == "Anna"
    for wrong, words in (({"start": "Anfang"}, "no column 'Anfang'"), ({"begin": "Beginn"}, "Unknown column: 'begin'")):
        with pytest.raises(LabelsError, match=words) as caught:
            parse("csv", text, "", ConvertOptions(columns=wrong))
        assert caught.value.hint


def test_columns_that_are_not_read_have_a_note():
    """Ten videos under a header of another language were one video of the file's name, without a word."""
    table = "Film;start;end;label\nseq01;1;2;kick\nseq02;3;4;push\n"
    (note,) = parse("csv", table, "sheet").notes
    assert note.sentence.startswith("no column names the video") and "'Film'" in note.sentence
    (note,) = parse("csv", table.replace("seq02", "seq01"), "sheet").notes
    assert note.sentence == "columns that are not read: 'Film'"
    assert parse("csv", "start;end;label\n1;2;kick\n", "sheet").notes == ()


def test_spellings_become_one_class(tmp_path, lstr):
    (tmp_path / "x.csv").write_text("video,start,end,label\na,1,2,High jump\na,3,4,high_jump\na,5,6,run\n")
    words = ("labels", "convert", tmp_path / "x.csv", "--to", "csv", "--rename")
    code, out, err = lstr(*words, "High jump=high_jump")
    assert code == 0 and out.count("high_jump") == 2 and "High jump" not in out, err
    code, _, err = lstr(*words, "leap=jump")
    assert code == 2 and "unknown class 'leap'" in err and "'High jump', 'high_jump', 'run'" in err
    assert "is not OLD=NEW" in lstr(*words, "leap")[2]


def test_who_does_it_is_a_column_there_and_back():
    named = parse("csv", "video,start,end,label,Subject\na,1,2,fall,Anna\na,1,2,fall,Ben\na,3,4,sit,\n", "")
    assert [a.subject for a in named.videos["a"].segments] == ["Anna", "Ben", ""]
    again = parse("csv", format_named("csv").text(named, ConvertOptions()), "")
    assert again.videos == named.videos and format_named("vtt").lost(named) == {"subjects"}


PLAIN = "video,start,end,label"


@pytest.mark.parametrize(
    ("rows", "line", "cell"),
    [
        ("a,2,5,4,0,fall", 2, "0"),
        ("a,2,4,fall\na,2,5,4,fall", 3, "fall"),
        ('a,"2,5",4,0,fall', 2, "fall"),
        ("a,2,4,fall, hard", 2, " hard"),
        ("a,2,4,fall,,much", 2, ""),
    ],
)
def test_cells_without_a_header_are_named_by_their_line(rows, line, cell):
    """2,5 to 4,0 was read as 2 to 5 s of the action '4'."""
    words = f"^Line {line} .* {cell!r}"
    with pytest.raises(LabelsError, match=words) as caught:
        parse("csv", f"{PLAIN}\n{rows}\n", "x")
    assert "semicolons" in caught.value.hint and "first line" in caught.value.hint


@pytest.mark.parametrize(
    "table",
    [
        f"{PLAIN}\na,1,2,jump,,\n",
        f'{PLAIN}\na,"1,0","2,0",jump\n',
        f"{PLAIN},,\na,1,2,jump,4,5\n",
        "video;start;end;label\na;1,0;2,0;jump",
    ],
)
def test_empty_cells_and_quoted_commas_are_read(table):
    assert segments(parse("csv", table, "a").videos["a"]) == [(1.0, 2.0, "jump")]


@given(st.lists(st.tuples(st.integers(0, 99), st.integers(0, 99), st.text('a1,;" ', min_size=1).filter(str.strip))))
def test_no_table_as_csv_writes_it_is_refused(rows):
    out = io.StringIO()
    csv.writer(out).writerows([PLAIN.split(","), *[("v", start, start + length, text) for start, length, text in rows]])
    videos = parse("csv", out.getvalue(), "").videos
    found = [label for video in videos.values() for *_, label in segments(video)]
    assert sorted(found) == sorted(text.strip() for *_, text in rows)


NTSC = 30000 / 1001


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
    text = f"video,start,end,label\na,{code},2:00:00,jump\n"
    read = parse("csv", text, "", ConvertOptions(rate_of={"a": rate}.get)).videos["a"].segments
    assert read[0].start == pytest.approx(seconds, abs=1e-9) and read[0].end == 7200


def test_one_rate_of_all_goes_before_that_of_a_video(tmp_path):
    (tmp_path / "x.csv").write_text("video,start,end,duration,label\na,00:00:02:22,0:04,0:09,jump\n")
    read = read_annotations(tmp_path / "x.csv", ConvertOptions(frames=25, rate_of=lambda _: 50)).videos["a"]
    assert segments(read) == [(2.88, 4.0, "jump")] and read.duration == 9


def test_a_frame_that_no_second_has_is_named():
    with pytest.raises(LabelsError, match="Line 3: '00:00:02:27' is frame 27 of a second that has 25") as caught:
        parse("csv", "start,end,label\n1,2,jump\n00:00:02:27,3,jump\n", "", ConvertOptions(rate_of=lambda _: 25))
    assert "--frames" in caught.value.hint


@pytest.mark.parametrize("row", ["a,00:00:01:05,3,jump", "a,5,9,jump"])
def test_frames_without_a_rate_say_what_to_do(row):
    header = "video,start,end,label" if ":" in row else "video,start_frame,end_frame,label"
    with pytest.raises(LabelsError, match="counts frames") as caught:
        parse("csv", f"{header}\n{row}\n", "")
    assert "--video VIDEOS" in caught.value.hint and "--frames 30" in caught.value.hint


def test_the_videos_that_are_named_say_how_many_frames_a_second_has(small_set, tmp_path, lstr):
    rate = footage_of_files(find_videos([small_set.videos]))["scene_00"].rate
    assert rate
    (tmp_path / "frames.csv").write_text(
        f"video,start_frame,end_frame,label\nscene_00.avi,{rate:g},{2 * rate:g},walk\n"
    )
    (tmp_path / "codes.csv").write_text("video,start,end,label\nfilms/scene_00,00:00:01:00,00:00:02:00,walk\n")
    for name in ("frames", "codes"):
        source, output = tmp_path / f"{name}.csv", tmp_path / f"{name}.json"
        code, _, err = lstr("labels", "check", source)
        assert code == 2 and "counts frames" in err and f"lstr labels convert {source} --video VIDEOS" in err
        assert lstr("labels", "check", source, small_set.videos)[0] == 0
        code, _, err = lstr("labels", "convert", source, "--video", small_set.videos, "-o", output)
        assert code == 0, err
        (entry,) = json.loads(output.read_text())["database"].values()
        assert entry["annotations"] == [{"label": "walk", "segment": [1.0, 2.0]}]


def test_label_studio_counts_by_the_videos_that_are_named(small_set, tmp_path):
    rates = Rates(lambda: find_videos([small_set.videos]))
    rate = rates("scene_00")
    assert rate and rates("C:\\films\\scene_01.mp4") == rate and rates("elsewhere") == rate
    region = {"type": "timelinelabels", "value": {"ranges": [{"start": 1, "end": rate}], "timelinelabels": ["walk"]}}
    tasks = [{"data": {"video": "scene_00.avi"}, "annotations": [{"result": [region]}]}]
    (tmp_path / "x.json").write_text(json.dumps(tasks))
    read = read_annotations(tmp_path / "x.json", ConvertOptions(rate_of=rates))
    assert segments(read.videos["scene_00"]) == [(0.0, 1.0, "walk")]


TIMED = "time;groom;rear\n0,0;0;1\n0,1;1;1\n0,2;1;0\n0,3;0;0\n"
AT_10 = ConvertOptions(rate_of=lambda video_id: 10.0)


def read(text: str, options: ConvertOptions = AT_10) -> VideoLabels:
    return parse("binary", text, "x", options).first[1]


@pytest.mark.parametrize("text", [TIMED, "walk,run\n0,1\n1,0\n", "frame\twalk\n1\t0\n2\t1\n", ",walk\n0,1\n1,0\n"])
def test_a_table_is_known_by_its_beginning(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    assert recognise(tmp_path / "x.csv") is format_named("binary")


@pytest.mark.parametrize(
    "text",
    [
        "start,end,label\n0,1,1\n",
        "a,b\n0.5,1\n",
        "a,b\n-1,1\n",
        "a,b\n",
        "1,0\n0,1\n1,1\n",
        "video,walk\nx,1\n",
        "nose_x,speed,Attack\n1.5,2.5,1\n",
        "",
    ],
)
def test_another_table_is_none(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    assert recognise(tmp_path / "x.csv") is format_named("csv")


def test_times_are_those_of_their_column():
    video = read(TIMED, ConvertOptions())
    assert segments(video) == [(0.0, 0.2, "rear"), (0.1, 0.3, "groom")] and video.duration == pytest.approx(0.4)
    assert segments(read("Time,a\n0:00:00,0\n0:00:01,1\n0:00:02,0\n")) == [(1, 2, "a")]


def test_frames_need_the_rate_of_the_video(tmp_path):
    (tmp_path / "x.csv").write_text("walk,run\n0,1\n1,0\n1,0\n")
    assert segments(read_annotations(tmp_path / "x.csv", AT_10).videos["x"]) == [(0.0, 0.1, "run"), (0.1, 0.3, "walk")]
    found = read_annotations(tmp_path / "x.csv", ConvertOptions(frames=5)).videos["x"]
    assert segments(found) == [(0.0, 0.2, "run"), (0.2, 0.6, "walk")] and found.duration == pytest.approx(0.6)
    with pytest.raises(LabelsError, match="without a frame rate") as caught:
        read_annotations(tmp_path / "x.csv")
    assert "--frames 30" in caught.value.hint
    assert segments(read("frame,a\n0,0\n1,1\n2,0\n")) == [(0.1, 0.2, "a")]


def test_background_is_no_action():
    found = parse("binary", "time,background,walk\n0,1,0\n1,0,1\n", "x", ConvertOptions())
    assert found.classes == ("walk",) and segments(found.videos["x"]) == [(1, 2, "walk")]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n0,1\n0,2\n", "Line 3: '2' in the column 'b' is neither 0 nor 1"),
        ("a,b\n0,1\n0,\n", "Line 3: nothing in the column 'b'"),
        ("a,b\n0,1\n0\n", "Line 3: nothing in the column 'b'"),
        ("time,a\n0,1\nnan,1\n", "Line 3: 'nan' is not a number"),
        ("time,a\n0,1\n0,1\n", "Line 3: '0' is not after the row above"),
        ("a,a\n0,1\n", "Two columns of the table have the same name"),
        ("a,b\n", "no column of 0 and 1"),
        ('a,b\n0,"1\n', "a quotation mark is not closed"),
    ],
)
def test_what_is_no_table_of_0_and_1_is_named_by_its_line(text, words):
    with pytest.raises(LabelsError, match=words) as caught:
        read(text)
    assert caught.value.hint


def test_columns_that_a_person_names_make_it_a_table_of_segments(tmp_path):
    (tmp_path / "x.csv").write_text("Beginn,Ende,Klasse\n0,1,1\n1,1,0\n")
    named = ConvertOptions(columns={"start": "Beginn", "end": "Ende", "label": "Klasse"})
    assert segments(read_annotations(tmp_path / "x.csv", named).videos["x"]) == [(0, 1, "1"), (1, 1, "0")]

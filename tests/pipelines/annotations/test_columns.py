"""Which column of a table is what: documented names, names that a person gives, and the error with the command."""

import json
import shlex

import pytest

from lstr.errors import LabelsError
from lstr.pipelines.annotations.csv_tables import from_csv
from lstr.pipelines.annotations.format import ConvertOptions, format_named
from tests.support.annotated import segments

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
    read = from_csv(f"{header},label\n{row},fall\n", "a", AT_20)
    assert segments(read.videos["a"]) == [(*found, "fall")] and read.notes == ()


def test_one_rate_of_all_takes_the_columns_of_frames():
    text = "start,end,start_frame,end_frame,label\n9,9,30,60,fall\n"
    assert segments(from_csv(text, "a", ConvertOptions(frames=20)).videos["a"]) == [(1.5, 3.0, "fall")]
    plain = from_csv("start,end,label\n30,60,fall\n", "a", ConvertOptions(frames=20))
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
        from_csv(table, "x")
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
    read = from_csv(text, "", ConvertOptions(columns=named))
    assert segments(read.videos["a"]) == [(1.5, 2.0, "Sturz")] and read.videos["a"].segments[0].subject == "Anna"
    for wrong, words in (({"start": "Anfang"}, "no column 'Anfang'"), ({"begin": "Beginn"}, "Unknown column: 'begin'")):
        with pytest.raises(LabelsError, match=words) as caught:
            from_csv(text, "", ConvertOptions(columns=wrong))
        assert caught.value.hint


def test_what_is_no_pair_is_refused(tmp_path, lstr):
    (tmp_path / "x.csv").write_text("start,end,label\n1,2,fall\n")
    code, _, err = lstr("labels", "convert", tmp_path / "x.csv", "--to", "csv", "--columns", "start")
    assert code == 2 and "is not NAME=HEADER" in err


def test_columns_that_are_not_read_have_a_note():
    """Ten videos under a header of another language were one video of the file's name, without a word."""
    table = "Film;start;end;label\nseq01;1;2;kick\nseq02;3;4;push\n"
    (note,) = from_csv(table, "sheet").notes
    assert note.sentence.startswith("no column says which video a row is of") and "'Film'" in note.sentence
    (note,) = from_csv(table.replace("seq02", "seq01"), "sheet").notes
    assert note.sentence == "columns that are not read: 'Film'"
    assert from_csv("start;end;label\n1;2;kick\n", "sheet").notes == ()


def test_spellings_become_one_class(tmp_path, lstr):
    (tmp_path / "x.csv").write_text("video,start,end,label\na,1,2,High jump\na,3,4,high_jump\na,5,6,run\n")
    words = ("labels", "convert", tmp_path / "x.csv", "--to", "csv", "--rename")
    code, out, err = lstr(*words, "High jump=high_jump")
    assert code == 0 and out.count("high_jump") == 2 and "High jump" not in out, err
    code, _, err = lstr(*words, "leap=jump")
    assert code == 2 and "no class 'leap'" in err and "'High jump', 'high_jump', 'run'" in err
    assert "is not OLD=NEW" in lstr(*words, "leap")[2]


def test_a_folder_with_a_workbook_alone_says_so(tmp_path, lstr):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "study.ods").write_text("{}")
    code, _, err = lstr("labels", "check", tmp_path / "own")
    assert code == 2 and "a workbook" in err and "hint: " in err


def test_who_does_it_is_a_column_there_and_back():
    named = from_csv("video,start,end,label,Subject\na,1,2,fall,Anna\na,1,2,fall,Ben\na,3,4,sit,\n", "")
    assert [a.subject for a in named.videos["a"].segments] == ["Anna", "Ben", ""]
    again = from_csv(format_named("csv").text(named, ConvertOptions()), "")
    assert again.videos == named.videos and format_named("vtt").lost(named) == {"subjects"}

"""Which column of a table is what: wide tables, headers in other languages, and what is no table of segments."""

import json

import pytest

from lstr.pipelines.annotations.annotation import AnnotationError
from lstr.pipelines.annotations.format import ConvertOptions
from lstr.pipelines.annotations.formats import FORMATS
from lstr.pipelines.annotations.tables import from_csv
from tests.support.annotated import segments

TWO = [(1.0, 2.0, "fall"), (3.0, 4.0, "sit")]


@pytest.mark.parametrize(
    "text",
    [
        "video,start1,end1,label1,start2,end2,label2\na,1,2,fall,3,4,sit\nb,1,2,fall,,,\n",
        "video,start,end,label,start.1,end.1,label.1\na,1,2,fall,3,4,sit\nb,1,2,fall,,,\n",
        "video,start,end,label,start,end,label\na,1,2,fall,3,4,sit\nb,1,2,fall,,,\n",
        "video,Start 1 (s),Duration 1 (s),Action 1,Start 2 (ms),Stop 2 (ms),Action 2\na,1,1,fall,3000,4000,sit\n"
        "b,1,1,fall,,,\n",
        "video,fall_start,fall_end,sit start,sit end\na,1,2,3,4\nb,1,2,,\n",
        "video,start_fall,end_fall,start-sit_ms,duration-sit_ms\na,1,2,3000,1000\nb,0:01,0:02,,\n",
    ],
)
def test_a_wide_table_has_several_segments_in_a_row(text):
    read = from_csv(text, "")
    assert segments(read.videos["a"]) == TWO and segments(read.videos["b"]) == TWO[:1]
    assert [note.kind for note in read.notes] == ["wide table"]


def test_one_label_serves_all_segments_of_a_row():
    read = from_csv("id,label,duration,start_1,end_1,start_2,end_2\na,fall,60,1,2,3,4\nb,,30,,,,\n", "")
    assert segments(read.videos["a"]) == [(1.0, 2.0, "fall"), (3.0, 4.0, "fall")]
    assert read.videos["b"].segments == () and read.videos["b"].duration == 30


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("start,end,onset,offset,label\n1,2,10,20,fall\n", [(1.0, 2.0, "fall")]),
        ("start,end,label,start_frame,end_frame\n1,2,fall,30,60\n", [(1.0, 2.0, "fall")]),
        ("start,duration,duration_frames,label\n1,1,60,fall\n", [(1.0, 2.0, "fall")]),
        ("start,end,label,event1\n1,2,fall,x\n", [(1.0, 2.0, "fall")]),
    ],
)
def test_two_names_of_one_thing_are_one_segment(text, found):
    read = from_csv(text, "a")
    assert segments(read.videos["a"]) == found and read.notes == ()


@pytest.mark.parametrize(
    ("header", "missing"),
    [
        ("video,t-start,t-end", "label"),
        ("video,clip_start,clip_end", "end, label, start"),
        ("video,start,end,label1", "label"),
        ("video,start1,end2,label", "end, start"),
    ],
)
def test_what_lacks_a_column_is_refused(header, missing):
    with pytest.raises(AnnotationError, match=f"no column {missing} ") as caught:
        from_csv(f"{header}\na,1,2,x\n", "")
    assert "--columns" in caught.value.hint


@pytest.mark.parametrize(
    ("header", "row", "found"),
    [
        ("start_frame,duration_frames", "30,60", (1.5, 4.5)),
        ("start_frame,duration_seconds", "30,60", (1.5, 61.5)),
        ("start_frame,duration (ms)", "30,500", (1.5, 2.0)),
        ("start_frame,duration,duration_frames", "30,7,60", (1.5, 4.5)),
        ("fall_start_frame,fall_duration_frames", "30,60", (1.5, 4.5)),
    ],
)
@pytest.mark.parametrize("frames", [None, 20])
def test_a_duration_beside_frames_says_what_it_counts(header, row, found, frames):
    options = ConvertOptions(frames=frames, rate_of=lambda _: 20)
    read = from_csv(f"{header},label\n{row},fall\n" if "fall" not in header else f"{header}\n{row}\n", "a", options)
    assert segments((read.in_seconds(frames) if frames else read).videos["a"]) == [(*found, "fall")]


@pytest.mark.parametrize("frames", [None, 20])
def test_a_duration_beside_frames_is_refused_where_it_may_be_either(frames):
    options = ConvertOptions(frames=frames, rate_of=lambda _: 20)
    text = "video,start_frame,duration,label\na,30,60,fall\n"
    with pytest.raises(AnnotationError, match="'start_frame' counts frames, and 'duration' does not say") as caught:
        from_csv(text, "", options)
    assert caught.value.hint == "call it duration_frames or duration_seconds."
    named = ConvertOptions(frames=frames, rate_of=lambda _: 20, columns={"duration_frames": "duration"})
    read = from_csv(text, "", named)
    assert segments((read.in_seconds(frames) if frames else read).videos["a"]) == [(1.5, 4.5, "fall")]


FRENCH = "vidéo;début;fin;comportement;note\na;1;2;chute;5\nb;1;2;chute;\n"


def test_a_column_that_may_be_the_video_is_not_left_out_unsaid(tmp_path, lstr):
    path = tmp_path / "fr.csv"
    path.write_text(FRENCH)
    code, _, err = lstr("labels", "check", path)
    hint = (
        f"lstr labels convert {path} -o labels.json --columns video=…,start=…,end=…,label=…` (duration=… in the place"
    )
    assert code == 2 and hint in " ".join(err.split()), err
    words = ("labels", "convert", path, "--to", "csv", "--columns")
    code, _, err = lstr(*words, "start=début,end=fin,label=comportement")
    assert code == 2 and "may be one of these: 'vidéo'." in err and "--columns video=vidéo" in err, err
    assert lstr(*words, "video=vidéo,start=début,end=fin,label=comportement")[0] == 0
    path.write_text("Beginn;Ende;Aktion;Nr;Notiz\n1;2;Sturz;1;gut\n1;2;Sturz;2;\n")
    assert lstr(*words, "start=Beginn,end=Ende,label=Aktion")[0] == 0, "a number or a remark here and there is no video"


def test_columns_are_named_in_any_language():
    text = "Video;Beginn (ms);Ende (ms);Verhalten, kurz;label;Bild\na;1500;2000;Sturz;x;30\n"
    named = {"start": "beginn", "end": "Ende (ms)", "label": "Verhalten, kurz"}
    assert segments(from_csv(text, "", ConvertOptions(columns=named)).videos["a"]) == [(1.5, 2.0, "Sturz")]
    named |= {"start_frame": "Bild", "end": "Ende"}
    del named["start"]
    frames = from_csv(text, "", ConvertOptions(columns=named, frames=20)).videos["a"]
    assert segments(frames) == [(30.0, 2.0, "Sturz")], "numbers of frames are left to be divided"
    for wrong, words in (({"start": "Anfang"}, "no column 'Anfang'"), ({"begin": "Beginn"}, "called 'begin'")):
        with pytest.raises(AnnotationError, match=words) as caught:
            from_csv(text, "", ConvertOptions(columns=wrong))
        assert caught.value.hint


def test_a_person_names_columns_on_the_command_line(tmp_path, lstr):
    (tmp_path / "de.csv").write_text("Video;Beginn (s);Ende, s;Aktion\na;1,5;2;Sturz\n")
    code, _, err = lstr("labels", "check", tmp_path / "de.csv")
    hint = f"lstr labels convert {tmp_path / 'de.csv'} -o labels.json --columns start=…,end=…,label=…"
    assert code == 2 and hint in err
    words = ("labels", "convert", tmp_path / "de.csv", "-o", tmp_path / "x.json", "--columns")
    code, _, err = lstr(*words, "start=Beginn,end=Ende, s,label=Aktion")
    assert code == 0, err
    found = json.loads((tmp_path / "x.json").read_text())["database"]["a"]["annotations"]
    assert found == [{"label": "Sturz", "segment": [1.5, 2]}]
    code, _, err = lstr(*words, "start")
    assert code == 2 and "is not NAME=HEADER" in err


def test_spellings_become_one_class(tmp_path, lstr):
    (tmp_path / "x.csv").write_text("video,start,end,label\na,1,2,High jump\na,3,4,high_jump\na,5,6,run\n")
    words = ("labels", "convert", tmp_path / "x.csv", "--to", "csv", "--set")
    code, out, err = lstr(*words, "class.rename=High jump=high_jump")
    assert code == 0 and out.count("high_jump") == 2 and "High jump" not in out, err
    code, _, err = lstr(*words, "class.rename=leap=jump")
    assert code == 2 and "no class 'leap'" in err and "'High jump', 'high_jump', 'run'" in err
    assert "is not OLD=NEW" in lstr(*words, "class.rename=leap")[2]


def test_a_folder_of_another_program_says_what_it_holds(tmp_path, lstr):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "study.ods").write_text("{}")
    code, _, err = lstr("labels", "check", tmp_path / "own")
    assert code == 2 and "a workbook" in err and "hint: " in err


def test_who_does_it_is_a_column_there_and_back():
    named = from_csv("video,start,end,label,Individual\na,1,2,fall,Anna\na,1,2,fall,Ben\na,3,4,sit,\n", "")
    assert [a.subject for a in named.videos["a"].segments] == ["Anna", "Ben", ""]
    again = from_csv(FORMATS["csv"].render(named, ConvertOptions()), "")
    assert again.videos == named.videos and FORMATS["vtt"].lost(named) == {"subjects"}
    wanted = ConvertOptions(columns={"subject": "Tier"})
    assert (
        from_csv("video,start,end,label,Tier\na,1,2,fall,Anna\n", "", wanted).videos["a"].segments[0].subject == "Anna"
    )

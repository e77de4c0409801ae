"""Tables of 0 and 1: a row for each frame or moment, a column for each action."""

import pytest

from lstr.errors import LabelsError
from lstr.pipelines.annotations.annotation import AnnotatedVideo
from lstr.pipelines.annotations.csv_tables import from_binary
from lstr.pipelines.annotations.format import ConvertOptions, format_named, recognise
from lstr.pipelines.annotations.label_files import read_annotations
from tests.support.annotated import segments

TIMED = "time;groom;rear\n0,0;0;1\n0,1;1;1\n0,2;1;0\n0,3;0;0\n"
AT_10 = ConvertOptions(rate_of=lambda video_id: 10.0)


def read(text: str, options: ConvertOptions = AT_10) -> AnnotatedVideo:
    return from_binary(text, "x", options).first[1]


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
    with pytest.raises(LabelsError, match="does not say how many a second") as caught:
        read_annotations(tmp_path / "x.csv")
    assert "--frames 30" in caught.value.hint
    assert segments(read("frame,a\n0,0\n1,1\n2,0\n")) == [(0.1, 0.2, "a")]


def test_background_is_no_action():
    found = from_binary("time,background,walk\n0,1,0\n1,0,1\n", "x", ConvertOptions())
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

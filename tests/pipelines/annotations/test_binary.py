"""Tables of 0 and 1, as A-SOiD, DeepEthogram and SimBA write them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.labels.segment import Segment
from lstr.pipelines.annotations.annotation import AnnotatedVideo, AnnotationError, AnnotationSet
from lstr.pipelines.annotations.binary import from_binary, to_binary
from lstr.pipelines.annotations.format import ConvertOptions
from lstr.pipelines.annotations.formats import FORMATS, convert, read_annotations, recognise
from lstr.pipelines.annotations.rows import Rows
from tests.support.annotated import segments

ASOID = "time;groom;rear\n0,0;0;1\n0,1;1;1\n0,2;1;0\n0,3;0;0\n"
DEEPETHOGRAM = ",background,groom,rear\n0,1,0,0\n1,0,1,0\n2,0,1,1\n3,-1,-1,-1\n4,1,0,0\n"
SIMBA = """,nose_x,nose_y,nose_p,speed,Low_prob_detections_0.1,Attack,Sniff
0,1.5,2.5,0.9,3.25,0,0,1
1,1.5,2.5,0.9,3.5,0,1,1
"""
AT_10 = ConvertOptions(rate_of=lambda video_id: 10.0)


def read(text: str, options: ConvertOptions = AT_10, name: str = "x") -> AnnotatedVideo:
    return from_binary(Rows(text), name, options).first[1]


@pytest.mark.parametrize("text", [ASOID, DEEPETHOGRAM, SIMBA, "walk,run\n0,1\n1,0\n", "frame\twalk\n1\t0\n2\t1\n"])
def test_a_table_is_known_by_its_beginning(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    assert recognise(tmp_path / "x.csv") is FORMATS["binary"]


@pytest.mark.parametrize(
    "text",
    [
        "start,end,label\n0,1,1\n",
        "a,b\n0.5,1\n",
        "a,b\n",
        "1,0\n0,1\n1,1\n",
        "video,walk\nx,1\n",
        "",
    ],
)
def test_another_table_is_none(tmp_path, text):
    (tmp_path / "x.csv").write_text(text)
    assert recognise(tmp_path / "x.csv") is FORMATS["csv"]


def test_times_are_those_of_their_column():
    video = read(ASOID, ConvertOptions())
    assert segments(video) == [(0.0, 0.2, "rear"), (0.1, 0.3, "groom")] and video.duration == pytest.approx(0.4)
    assert segments(read("t_ms,a\n0,1\n500,1\n1000,0\n", ConvertOptions())) == [(0.0, 1.0, "a")]
    assert segments(read("Time,a\n0:01:00,1\n0:01:01,0\n")) == [(0, 60, "Ambiguous"), (60, 61, "a")]


@pytest.mark.parametrize(
    ("seconds", "frames", "tail"),
    [
        (5.0, None, (0.4, 5.0)),
        (0.64, None, None),
        (0.66, None, (0.4, 0.66)),
        (0.3, None, None),
        (5.0, 10.0, (4.0, 50.0)),
    ],
)
def test_what_a_table_does_not_reach_is_not_labelled(seconds, frames, tail):
    options = ConvertOptions(frames=frames, rate_of=lambda _: 10.0, seconds_of=lambda _: seconds)
    found = from_binary(Rows("walk\n0\n1\n1\n0\n"), "x", options)
    ambiguous = [(a.start, a.end) for a in found.videos["x"].segments if a.label == "Ambiguous"]
    assert ambiguous == ([tail] if tail else []) and bool(tail) == any("after 0.4 s" in n.sentence for n in found.notes)
    assert found.videos["x"].duration == pytest.approx(seconds if tail else 0.4)


def test_frames_need_the_rate_of_the_video(tmp_path):
    (tmp_path / "x.csv").write_text("walk,run\n0,1\n1,0\n1,0\n")
    assert segments(read_annotations(tmp_path / "x.csv", AT_10).videos["x"]) == [(0.0, 0.1, "run"), (0.1, 0.3, "walk")]
    found = read_annotations(tmp_path / "x.csv", ConvertOptions(frames=5)).videos["x"]
    assert segments(found) == [(0.0, 0.2, "run"), (0.2, 0.6, "walk")] and found.duration == 0.6
    with pytest.raises(AnnotationError, match="does not say how many a second") as caught:
        read_annotations(tmp_path / "x.csv")
    assert "--frames 30" in caught.value.hint
    timed = read_annotations(tmp_path / "x.csv", ConvertOptions(frames=5, source_format="binary"))
    assert segments(timed.videos["x"]) == segments(found)


def test_frames_are_counted_from_one_or_from_zero():
    expected = [(0.1, 0.2, "a")]
    assert segments(read("frame,a\n1,0\n2,1\n")) == segments(read("Frame_Number,a\n0,0\n1,1\n")) == expected


def test_what_deepethogram_has_not_labelled_is_no_background(tmp_path, lstr):
    (tmp_path / "game_labels.csv").write_text(DEEPETHOGRAM)
    found = read_annotations(tmp_path / "game_labels.csv", AT_10)
    assert segments(found.videos["game"]) == [(0.1, 0.3, "groom"), (0.2, 0.3, "rear"), (0.3, 0.4, "Ambiguous")]
    assert found.classes == ("groom", "rear", "Ambiguous") and "not labelled (-1)" in found.notes[0].sentence
    code, _, err = lstr("labels", "convert", tmp_path / "game_labels.csv", "--frames", "10", "--to", "csv")
    assert code == 0 and "neither trains nor is scored" in err
    later = DEEPETHOGRAM.replace("rear\n", "rear,late\n").replace("0\n", "0,-1\n").replace("1\n", "1,-1\n")
    with pytest.raises(AnnotationError, match="'late' is -1 in each row"):
        read(later.replace("-1,-1,-1,-1", "0,0,0,-1"))


def test_of_simba_only_the_actions_count():
    found = from_binary(Rows(SIMBA), "x", AT_10)
    assert segments(found.videos["x"]) == [(0.0, 0.2, "Sniff"), (0.1, 0.2, "Attack")]
    assert "'Attack', 'Sniff'" in found.notes[0].sentence and found.classes == ("Attack", "Sniff")
    machine = "nose_x,nose_y,nose_p,new,Probability_Attack,Attack\n1,2,.5,7,0.25,0\n1,2,.5,7,0.75,1\n"
    assert segments(read(machine)) == [(0.1, 0.2, "Attack")]
    assert from_binary(Rows(SIMBA), "x", ConvertOptions(rate_of=AT_10.rate_of, classes=("Sniff",))).classes == (
        "Sniff",
    )
    with pytest.raises(AnnotationError, match="no column 'Bite'"):
        from_binary(Rows(SIMBA), "x", ConvertOptions(classes=("Bite",)))
    with pytest.raises(AnnotationError, match="no column of 0 and 1"):
        read("nose_x,nose_y,nose_p,new\n1,2,.5,7\n")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a,b\n0,1\n0,2\n", "Line 3: '2' in the column 'b' is neither 0 nor 1"),
        ("a,b\n0,1\n0,\n", "Line 3: nothing in the column 'b'"),
        ("a,b\n0,1\n0\n", "Line 3: nothing in the column 'b'"),
        ("time,a\n0,1\nnan,1\n", "Line 3: 'nan' is no number"),
        ("time,a\n0,1\n0,1\n", "Line 3: 0 does not come after 0"),
        ("time,a\n0,1\n1,1\n2,0\n9,1\n", "Line 5: rows are missing between 2 and 9"),
        ("frame,a\n0,1\n1,1\n2,0\n4,1\n", "Line 5: rows are missing between 2 and 4"),
        ("a,a\n0,1\n", "Two columns of the table have one name"),
        ("a,b\n", "no column of 0 and 1"),
        ('a,b\n0,"1\n', "a quotation mark is not closed"),
    ],
)
def test_what_is_no_table_of_0_and_1_is_named_by_its_line(text, words):
    with pytest.raises(AnnotationError, match=words) as caught:
        read(text)
    assert caught.value.hint


def test_columns_that_a_person_names_make_it_a_table_of_segments(tmp_path):
    (tmp_path / "x.csv").write_text("Beginn,Ende,Klasse\n0,1,1\n1,1,0\n")
    named = ConvertOptions(columns={"start": "Beginn", "end": "Ende", "label": "Klasse"})
    assert segments(read_annotations(tmp_path / "x.csv", named).videos["x"]) == [(0, 1, "1"), (1, 1, "0")]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.lists(st.sampled_from([0, 1]), min_size=3, max_size=3), min_size=2, max_size=20), st.integers(0, 19))
def test_there_and_back(rows, unknown):
    """Each row of each class, and a row that nobody labelled."""
    on = np.array(rows, bool)
    found = [Segment(i / 5, (i + 1) / 5, "abc"[at]) for i, row in enumerate(rows) for at, one in enumerate(row) if one]
    if unknown < len(rows):
        found.append(Segment(unknown / 5, (unknown + 1) / 5, "Ambiguous"))
        on[unknown] = False
    video = AnnotatedVideo(tuple(found), duration=len(rows) / 5)
    text = to_binary(AnnotationSet({"x": video}, ("a", "b", "c")), ConvertOptions(fps=5))
    back = to_binary(from_binary(Rows(text), "x", ConvertOptions()), ConvertOptions(fps=5))
    assert back == text
    table = np.array([line.split(",")[2:] for line in text.splitlines()[1:]], int)
    assert ((table == 1) == on).all() and ((table == -1).all(axis=1) == (np.arange(len(rows)) == unknown)).all()


def test_a_table_to_write_needs_a_rate_and_a_duration(tmp_path, lstr):
    labels = AnnotationSet({"x": AnnotatedVideo((), duration=1e9)}, ("a",))
    with pytest.raises(AnnotationError, match="How many rows a second") as caught:
        to_binary(labels, ConvertOptions())
    assert "--set fps=25" in caught.value.hint
    for wrong in (labels, AnnotationSet({"x": AnnotatedVideo()}, ("a",))):
        with pytest.raises(AnnotationError, match="would have"):
            to_binary(wrong, ConvertOptions(fps=25))
    (tmp_path / "x.csv").write_text("video,duration,start,end,label\ng,1,0.2,0.6,walk\n")
    code, out, err = lstr("labels", "convert", tmp_path / "x.csv", "--to", "binary", "--set", "fps=5")
    assert code == 0 and out.splitlines()[:3] == ["time,background,walk", "0.000000,1,0", "0.200000,0,1"], err
    done = convert([tmp_path / "x.csv"], "binary", tmp_path / "out", ConvertOptions(fps=5))
    assert [path.name for path in done.files] == ["g.binary.csv"]

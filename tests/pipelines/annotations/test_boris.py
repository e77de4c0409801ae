"""BORIS's projects and exports of events, as its versions write them."""

import json

import pytest

from lstr.errors import LabelsError
from lstr.pipelines.annotations.annotation import AnnotationSet
from lstr.pipelines.annotations.format import format_named, recognise
from lstr.pipelines.annotations.label_files import read_annotations, read_label_file
from tests.support.annotated import parse, segments

ETHOGRAM = {
    "0": {"code": "walk", "type": "State event", "key": "w", "category": "moves", "modifiers": {}},
    "1": {"code": "call", "type": "Point event", "key": "c", "category": "", "modifiers": ""},
}


def observation(events=(), files=("v/a.mp4",), **other) -> dict:
    lengths = {file: 10.0 for file in files}
    content = {
        "type": "MEDIA",
        "file": {"1": list(files), "2": []},
        "time offset": 0.0,
        "media_info": {"length": lengths, "fps": {}},
    }
    return {**content, "events": list(events), **other}


def project(**observations) -> dict:
    return {"behaviors_conf": ETHOGRAM, "subjects_conf": {}, "observations": observations}


def kinds(annotated: AnnotationSet) -> set[str]:
    return {note.kind for note in annotated.notes}


def test_states_are_pairs_by_subject_and_modifiers_and_points_have_no_length():
    events = [
        [1.0, "ann", "walk", "fast", ""],
        [2.0, "ben", "walk", "", "nice"],
        [3.0, "ann", "walk", "fast", "", 75],
        [2.5, "", "call", "None|None", ""],
        [4.0, "ben", "walk", "", ""],
    ]
    found = parse("boris", project(o1=observation(events)))
    assert segments(found.videos["v/a"]) == [(1.0, 3.0, "walk"), (2.0, 4.0, "walk"), (2.5, 2.5, "call")]
    assert [a.subject for a in found.videos["v/a"].segments] == ["ann", "ben", ""]
    assert found.classes == ("walk", "call") and found.videos["v/a"].duration == 10
    assert kinds(found) == {"point events", "modifiers", "comments"}
    assert "modifiers of 2 events" in " ".join(note.sentence for note in found.notes)


def test_a_time_offset_is_no_part_of_the_video():
    found = parse(
        "boris", project(o=observation([[61, "", "walk", "", ""], [62.5, "", "walk", "", ""]], **{"time offset": 60}))
    )
    assert segments(found.videos["v/a"]) == [(1.0, 2.5, "walk")]


def test_an_observation_of_several_files_is_cut_where_they_are():
    events = [[t, "", "walk", "", ""] for t in (8, 12, 15, 20)] + [[10, "", "call", "", ""]]
    found = parse("boris", project(o=observation(events, ("a.mp4", "b.mp4"))))
    assert segments(found.videos["a"]) == [(8.0, 10.0, "walk")]
    assert segments(found.videos["b"]) == [(0.0, 0.0, "call"), (0.0, 2.0, "walk"), (5.0, 10.0, "walk")]
    whole = observation(events, ("a.mp4", "b.mp4"), media_info={})
    with pytest.raises(LabelsError, match="'o'.*a.mp4"):
        parse("boris", project(o=whole))


def test_players_beside_the_first_and_observations_without_a_video_are_told():
    two = observation(file={"1": ["a.mp4"], "2": ["side.mp4"]})
    found = parse("boris", project(two=two, live=observation(type="LIVE", file=[]), odd=observation(type="IMAGES")))
    assert found.videos.keys() == {"a"} and kinds(found) >= {"several players", "no video"}
    with pytest.raises(LabelsError, match="No observation of the project shows a video"):
        parse("boris", project(live=observation(type="LIVE", file={})))


def test_what_was_not_watched_is_ambiguous():
    part = {"observation time interval": [2, 8]}
    found = parse("boris", project(o=observation([[3, "", "walk", "", ""], [4, "", "walk", "", ""]], **part)))
    assert segments(found.videos["v/a"]) == [(0, 2, "Ambiguous"), (3, 4, "walk"), (8, 10, "Ambiguous")]
    assert "part of a video" in kinds(found)


def test_two_observations_of_a_video_are_one_where_their_subjects_differ():
    def of(subject):
        return observation([[1, subject, "walk", "", ""], [2, subject, "walk", "", ""]])

    found = parse("boris", project(o1=of("ann"), o2=of("ben")))
    assert len(found.videos["v/a"].segments) == 2 and "several observations" in kinds(found)
    with pytest.raises(LabelsError, match="'o1' and 'o2' both code the subject 'ann' in 'v/a.mp4'"):
        parse("boris", project(o1=of("ann"), o2=of("ann")))


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([[1, "ann", "walk", "", ""]], r"'o', event 1: 'walk' of 'ann' at 1 s begins and never ends"),
        ([[1, "", "walk", "x", ""], [2, "", "walk", "", ""]], "event 1: 'walk' at 1 s begins and never ends"),
        ([[1, "", "sleep", "", ""]], "event 1 is 'sleep', which the ethogram does not have"),
        ([[float("nan"), "", "call", "", ""]], "event 1: the time is nan"),
        ([["soon", "", "call", "", ""]], "event 1: the time is 'soon'"),
        ([[10**400, "", "call", "", ""]], "event 1: the time is"),
        ([[1]], "event 1 has no code"),
    ],
)
def test_an_event_that_means_nothing_is_named(events, words):
    with pytest.raises(LabelsError, match=words) as caught:
        parse("boris", project(o=observation(events)))
    assert caught.value.hint


@pytest.mark.parametrize(
    ("other", "words"),
    [
        ({"media_creation_date_as_offset": True}, "counts its times from when its media were made"),
        ({"file": {"1": []}}, "'o' shows no file"),
        ({"file": {"1": [3]}}, "not paths"),
        ({"time offset": "x"}, "the time offset is 'x'"),
        ({"media_info": {"length": {"a": "long"}}}, "the length of 'a' is 'long'"),
    ],
)
def test_an_observation_that_cannot_be_placed_is_named(other, words):
    with pytest.raises(LabelsError, match=words):
        parse("boris", project(o=observation(**other)))


@pytest.mark.parametrize("content", [{}, [], {"behaviors_conf": [], "observations": {}}, {"behaviors_conf": ETHOGRAM}])
def test_what_is_no_project_is_refused(content):
    with pytest.raises(LabelsError, match="not a project of BORIS"):
        parse("boris", content)


def test_files_are_called_by_what_tells_them_apart():
    with pytest.raises(LabelsError, match="Two files would be the video 'v/a.mp4'"):
        parse("boris", project(o=observation(files=["/v/a.mp4", "//v/a.mp4"])))
    files = {"x": "/home/ann/v/a.mp4", "day/b": "/data/day/b.mp4", "y": r"C:\v\c.avi", "z": "/other/a.mp4"}
    found = parse("boris", project(**{name: observation(files=[file]) for name, file in files.items()}))
    assert set(found.videos) == {"home/ann/v/a.mp4", "day/b", "c", "other/a.mp4"}


def test_labels_of_a_project_belong_to_the_videos_that_it_names(tmp_path, lstr):
    content = project(o=observation([[1, "", "walk", "", ""], [2, "", "walk", "", ""]], ["/else/where/fall-01.mp4"]))
    (tmp_path / "study.boris").write_text(json.dumps(content))
    assert read_label_file(tmp_path / "study.boris", present={"fall-01"}).videos["fall-01"].segments
    code, _, err = lstr("labels", "convert", tmp_path / "study.boris", "-o", tmp_path / "labels.csv")
    assert code == 0, err
    assert segments(read_annotations(tmp_path / "labels.csv").videos["fall-01"]) == [(1, 2, "walk")]
    (tmp_path / "study.boris").write_text("[" * 100_000)
    code, _, err = lstr("labels", "check", tmp_path / "study.boris")
    assert code == 2 and "is not JSON" in err


OLD = """Observation id,o1,,,,,,,
,,,,,,,,
Media file(s),,,,,,,,
,,,,,,,,
Player #1,films/a.mp4,,,,,,,
Observation date,2016-11-27 01:57:26,,,,,,,
Time offset (s),60.0,,,,,,,
independent variables,,,,,,,,
variable,value,,,,,,,
,,,,,,,,
Time,Media file path,Total length,FPS,Subject,Behavior,Behavioral category,Comment,Status
63.300,films/a.mp4,360,25.0,ann,walk,,,START
67.750,films/a.mp4,360,25.0,ann,walk,,,STOP
68.000,films/a.mp4,360,25.0,No focal subject,call,,hm,POINT
"""
SOURCE = "player #1:a.mp4;b.mp4|player #2:c.mp4\t0\t10.000;20.000|5\t25.000;25.000|30"
TABULAR = f"""Observation id\tObservation type\tSource\tTime offset (s)\tMedia duration (s)\tFPS\tSubject\tBehavior\t\
Modifier #1\tBehavior type\tTime\tMedia file name\tImage index\tComment
o1\tMedia file(s)\t{SOURCE}\t\twalk\tfast\tSTART\t8\ta.mp4\t200\t
o1\tMedia file(s)\t{SOURCE}\t\twalk\tfast\tSTOP\t12\tb.mp4\t50\t
"""
AGGREGATED = """Observation id,Observation date,Description,Media file,Total length,FPS,Subject,Behavior,\
Behavioral category,Modifiers,Behavior type,Start (s),Stop (s),Duration (s),Comment start,Comment stop
o1,2016-12-01,,a.mp4,10,25,ann,walk,,,STATE,1.8,3,1.2,,
o1,2016-12-01,,a.mp4,10,25,No focal subject,call,,,POINT,4,NA,NA,,
o2,2016-12-01,,b.mp4,10,25,ann,walk,moves,,STATE,2,3,1,,
o3,2016-12-01,,NA,NA,NA,ann,walk,moves,,STATE,2,3,1,,
"""


@pytest.mark.parametrize(("name", "text"), [("x.csv", OLD), ("x.tsv", TABULAR), ("x.csv", AGGREGATED)])
def test_an_export_is_known_by_its_header(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert recognise(tmp_path / name) is format_named("borisevents")
    assert read_annotations(tmp_path / name).videos


def test_the_earlier_tabular_export_has_lines_above_its_header():
    found = parse("borisevents", OLD, "x")
    assert segments(found.videos["films/a"]) == [(3.3, 7.75, "walk"), (8.0, 8.0, "call")]
    assert {note.kind for note in found.notes} == {"point events", "comment"}
    assert {a.subject for a in found.videos["films/a"].segments} - {""}, "who does it is kept"


def test_the_tabular_export_says_how_long_each_file_is():
    found = parse("borisevents", TABULAR, "x")
    assert segments(found.videos["a"]) == [(8.0, 10.0, "walk")] and segments(found.videos["b"]) == [(0.0, 2.0, "walk")]
    assert found.videos["b"].duration == 20


def test_the_aggregated_export_has_a_row_a_bout():
    found = parse("borisevents", AGGREGATED, "x")
    assert segments(found.videos["a"]) == [(1.8, 3.0, "walk"), (4.0, 4.0, "call")]
    assert found.videos.keys() == {"a", "b"} and "'o3'" in " ".join(note.sentence for note in found.notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OLD.replace(",STOP", ",START"), "Line 13: 'walk' of 'ann' at 7.75 s begins again before it ends"),
        (OLD.replace(",START", ",STOP"), "Line 12: 'walk' of 'ann' at 3.3 s ends and never began"),
        (OLD.replace(",POINT", ",OFTEN"), "Line 14: 'OFTEN' is neither START, STOP nor POINT"),
        (OLD.replace("63.300", "later"), "Line 12: 'later' is not a number"),
        (AGGREGATED.replace("o2", "o1"), "'o1' plays 2 files"),
        (AGGREGATED.replace(",walk,", ",,"), "Line 2: the behaviour is missing"),
        ("a,b\n1,2\n", "not an export of BORIS"),
    ],
)
def test_what_an_export_leaves_open_is_named_by_its_line(text, words):
    with pytest.raises(LabelsError, match=words) as caught:
        parse("borisevents", text, "x")
    assert caught.value.hint

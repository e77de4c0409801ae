"""BORIS's projects and exports of events, as its versions write them."""

import json

import pytest

from lstr.pipelines.annotations.format import format_named, recognise
from lstr.pipelines.annotations.label_files import read_annotations, read_label_file
from tests.support.annotated import parse, read_error, segments
from tests.support.errors import assert_error

ETHOGRAM = {
    "0": {"code": "walk", "type": "State event", "key": "w", "category": "moves", "modifiers": {}},
    "1": {"code": "call", "type": "Point event", "key": "c", "category": "", "modifiers": ""},
}
BOUT = [[1, "", "walk", "", ""], [2, "", "walk", "", ""]]


def observation(events=(), files=("v/a.mp4",), **entries) -> dict:
    content = {
        "type": "MEDIA",
        "file": {"1": list(files), "2": []},
        "time offset": 0.0,
        "media_info": {"length": {file: 10.0 for file in files}, "fps": {}},
    }
    return {**content, "events": list(events), **entries}


def project(**observations) -> dict:
    return {"behaviors_conf": ETHOGRAM, "subjects_conf": {}, "observations": observations}


def kinds(annotated) -> set[str]:
    return {note.kind for note in annotated.notes}


def test_states_are_paired_by_subject_and_modifiers():
    events = [
        [61.0, "ann", "walk", "fast", ""],
        [62.0, "ben", "walk", "", "nice"],
        [63.0, "ann", "walk", "fast", "", 75],
        [62.5, "", "call", "None|None", ""],
        [64.0, "ben", "walk", "", ""],
    ]
    annotated = parse("boris", project(o=observation(events, **{"time offset": 60})))
    assert segments(annotated.videos["v/a"]) == [(1.0, 3.0, "walk"), (2.0, 4.0, "walk"), (2.5, 2.5, "call")]
    assert [a.subject for a in annotated.videos["v/a"].segments] == ["ann", "ben", ""]
    assert annotated.classes == ("walk", "call") and annotated.videos["v/a"].duration == 10
    assert kinds(annotated) == {"point events", "modifiers", "comments"}


def test_an_observation_of_several_files_is_split_at_their_ends():
    events = [[t, "", "walk", "", ""] for t in (8, 12, 15, 20)] + [[10, "", "call", "", ""]]
    annotated = parse("boris", project(o=observation(events, ("a.mp4", "b.mp4"))))
    assert segments(annotated.videos["a"]) == [(8.0, 10.0, "walk")]
    assert segments(annotated.videos["b"]) == [(0.0, 0.0, "call"), (0.0, 2.0, "walk"), (5.0, 10.0, "walk")]
    read_error("boris", project(o=observation(events, ("a.mp4", "b.mp4"), media_info={})), "'a.mp4'")


def test_other_players_and_observations_without_a_video_are_skipped_with_a_note():
    two = observation(file={"1": ["a.mp4"], "2": ["side.mp4"]})
    annotated = parse("boris", project(two=two, live=observation(type="LIVE", file=[]), odd=observation(type="IMAGES")))
    assert annotated.videos.keys() == {"a"} and kinds(annotated) >= {"several players", "no video"}


def test_time_outside_the_observation_interval_is_ambiguous():
    annotated = parse("boris", project(o=observation(BOUT, **{"observation time interval": [1, 8]})))
    assert segments(annotated.videos["v/a"]) == [(0, 1, "Ambiguous"), (1, 2, "walk"), (8, 10, "Ambiguous")]
    assert "part of a video" in kinds(annotated)


def test_observations_of_a_video_are_merged_if_their_subjects_differ():
    ann, ben = (observation([[t, subject, "walk", "", ""] for t in (1, 2)]) for subject in ("ann", "ben"))
    annotated = parse("boris", project(o1=ann, o2=ben))
    assert len(annotated.videos["v/a"].segments) == 2 and "several observations" in kinds(annotated)
    read_error("boris", project(o1=ann, o2=ann), "'ann'")


def test_video_ids_are_distinct_parts_of_the_paths(tmp_path):
    files = {"x": "/home/ann/v/a.mp4", "day/b": "/data/day/b.mp4", "y": r"C:\v\c.avi", "z": "/other/a.mp4"}
    path = tmp_path / "study.boris"
    path.write_text(json.dumps(project(**{name: observation(BOUT, [file]) for name, file in files.items()})))
    assert set(read_annotations(path).videos) == {"home/ann/v/a.mp4", "day/b", "c", "other/a.mp4"}
    assert read_label_file(path, present={"b"}).videos["b"].segments


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


@pytest.mark.parametrize(
    ("name", "text", "expected", "notes"),
    [
        ("x.csv", OLD, {"films/a": [(3.3, 7.75, "walk"), (8.0, 8.0, "call")]}, {"point events", "comment"}),
        ("x.tsv", TABULAR, {"a": [(8.0, 10.0, "walk")], "b": [(0.0, 2.0, "walk")]}, set()),
        ("x.csv", AGGREGATED, {"a": [(1.8, 3.0, "walk"), (4.0, 4.0, "call")], "b": [(2.0, 3.0, "walk")]}, {"no video"}),
    ],
    ids=["with lines above the header", "tabular", "aggregated"],
)
def test_exports_are_recognised_by_their_header(tmp_path, name, text, expected, notes):
    (tmp_path / name).write_text(text)
    assert recognise(tmp_path / name) is format_named("borisevents")
    annotated = read_annotations(tmp_path / name)
    assert {video_id: segments(video) for video_id, video in annotated.videos.items()} == expected
    assert kinds(annotated) >= notes and annotated.videos[max(expected)].duration == (20 if text == TABULAR else None)
    assert ("ann" in {s.subject for _, s in annotated.segments}) == (text != TABULAR)


WRONG_OBSERVATIONS = (
    ({"events": [[1, "", "walk", "x", ""], [2, "", "walk", "", ""]]}, "'o', event 1: 'walk'"),
    ({"events": [[1, "", "sleep", "", ""]]}, "'sleep'"),
    ({"events": [[float("nan"), "", "call", "", ""]]}, "nan"),
    ({"events": [[10**400, "", "call", "", ""]]}, "event 1"),
    ({"events": [[1]]}, "event 1"),
    ({"media_creation_date_as_offset": True}, "'o'"),
    ({"file": {"1": []}}, "'o'"),
    ({"file": {"1": [3]}}, "'o'"),
    ({"time offset": "x"}, "'x'"),
    ({"media_info": {"length": {"a": "long"}}}, "'long'"),
    ({"type": "LIVE", "file": {}}, ""),
    ({"files": ["/v/a.mp4", "//v/a.mp4"]}, "'v/a.mp4'"),
)


@pytest.mark.parametrize(
    ("form", "content", "value"),
    [
        *(("boris", project(o=observation(**entries)), value) for entries, value in WRONG_OBSERVATIONS),
        *(("boris", content, "") for content in ({}, [], {"observations": {}}, {"behaviors_conf": ETHOGRAM})),
        ("borisevents", OLD.replace(",STOP", ",START"), "Line 13: 'walk'"),
        ("borisevents", OLD.replace(",START", ",STOP"), "Line 12: 'walk'"),
        ("borisevents", OLD.replace(",POINT", ",OFTEN"), "Line 14: 'OFTEN'"),
        ("borisevents", OLD.replace("63.300", "later"), "Line 12: 'later'"),
        ("borisevents", OLD.replace("films/a.mp4,360", "b.mp4,360", 1), "films/a.mp4"),
        ("borisevents", AGGREGATED.replace("o2", "o1"), "'o1'"),
        ("borisevents", AGGREGATED.replace(",walk,", ",,"), "Line 2"),
        ("borisevents", "a,b\n1,2\n", ""),
    ],
)
def test_an_error_names_the_observation_or_the_line(form, content, value):
    read_error(form, content, value)


WALK = {"clip1": [(1, 3.5, "walk"), (4, 4, "sniff"), (10, 12, "walk")]}
COLUMN_NAMES = ("time_hour", "lower_time", "time_clock", "status", "subject", "comment", "fps", "mediafile", "modifier")
RENAMED = [(0, 3.5, "walk"), (5, 6, "sit")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((f"boris_var_{name}.tsv", WALK) for name in (*COLUMN_NAMES, "offset")),
        *((f"boris_agg_{name}.csv", WALK) for name in ("plain", "var_time", "var_status")),
        ("boris_var_subject2.tsv", {"clip1": [(1, 5, "groom"), (2, 9, "groom")]}),
        ("boris_media_renamed.tsv", {"Video10": RENAMED}),
        ("boris_not_found.tsv", {"clip1": RENAMED}),
        ("boris_not_found_source.tsv", {"clip1": RENAMED}),
        ("boris_german_excel.csv", {"Käfig 1": [(1.876, 2.701, "putzen"), (11.576, 1013.375, "laufen")]}),
        ("forms/boris_v7_two_players.csv", {"Video10": [(1.876, 2.701, "attack"), (245.655, 248.481, "sniffing")]}),
        ("forms/elan_child.eaf", {"elan_child": [(0, 20, "trial 1"), (1, 2, "reach"), (4, 5, "grasp")]}),
        ("forms/ls_audio_sync.json", {"clip1": [(1, 3.5, "walk"), (10, 12, "sniff")]}),
        *((f"forms/ls_{name}.json", {"clip1": [(1, 3.48, "walk")]}) for name in ("video_url", "html", "fps_text")),
        ("forms/ls_unannotated.json", {"clip1": [(1, 3.48, "walk")]}),
        ("forms/ls_id.json", {"17": [(1, 3.48, "walk")]}),
        ("forms/ls_track.json", {}),
    ],
)
def test_files_of_bug_reports_are_read(shared, name, expected):
    """Variables with the names of columns, media that were renamed or not found, regions and tiers of other types."""
    annotated = read_annotations(shared / "data" / "reports" / name)
    assert {video_id: segments(video) for video_id, video in annotated.videos.items()} == expected
    assert {s.subject for _, s in annotated.segments} == {"A", "B"} or "subject2" not in name
    assert expected or any("'videorectangle'" in note.sentence for note in annotated.notes)


@pytest.mark.parametrize("name", ["bento.annot", "cvat.xml", "elan_tab.txt", "via3.csv", "cowlog.csv"])
def test_check_and_convert_have_the_same_error_for_unknown_formats(shared, lstr, name):
    path = shared / "data" / "reports" / "forms" / name
    errors = [lstr("labels", *words, path) for words in (["check"], ["convert", "--to", "csv"])]
    for result in errors:
        assert_error(result, 2, name)
    assert errors[0][2] == errors[1][2]

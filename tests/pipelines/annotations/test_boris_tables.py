"""BORIS's exports of events, as its versions write them."""

import pytest

from lstr.errors import LabelsError
from lstr.pipelines.annotations.boris_tables import from_export
from lstr.pipelines.annotations.formats import FORMATS, read_annotations, recognise
from tests.support.annotated import segments

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
    assert recognise(tmp_path / name) is FORMATS["borisevents"]
    assert read_annotations(tmp_path / name).videos


def test_the_earlier_tabular_export_has_lines_above_its_header():
    found = from_export(OLD, "x")
    assert segments(found.videos["films/a"]) == [(3.3, 7.75, "walk"), (8.0, 8.0, "call")]
    assert {note.kind for note in found.notes} == {"point events", "comment"}
    assert {a.subject for a in found.videos["films/a"].segments} - {""}, "who does it is kept"


def test_the_tabular_export_says_how_long_each_file_is():
    found = from_export(TABULAR, "x")
    assert segments(found.videos["a"]) == [(8.0, 10.0, "walk")] and segments(found.videos["b"]) == [(0.0, 2.0, "walk")]
    assert found.videos["b"].duration == 20


def test_the_aggregated_export_has_a_row_a_bout():
    found = from_export(AGGREGATED, "x")
    assert segments(found.videos["a"]) == [(1.8, 3.0, "walk"), (4.0, 4.0, "call")]
    assert found.videos.keys() == {"a", "b"} and "'o3'" in " ".join(note.sentence for note in found.notes)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (OLD.replace(",STOP", ",START"), "Line 13: 'walk' of 'ann' at 7.75 s begins again before it ends"),
        (OLD.replace(",START", ",STOP"), "Line 12: 'walk' of 'ann' at 3.3 s ends and never began"),
        (OLD.replace(",POINT", ",OFTEN"), "Line 14: 'OFTEN' is neither START, STOP nor POINT"),
        (OLD.replace("63.300", "later"), "Line 12: 'later' is not a number"),
        (AGGREGATED.replace("o2", "o1"), "'o1' shows 2 files one after another"),
        (AGGREGATED.replace(",walk,", ",,"), "Line 2: the behaviour is missing"),
        ("a,b\n1,2\n", "not an export of BORIS"),
    ],
)
def test_what_an_export_leaves_open_is_named_by_its_line(text, words):
    with pytest.raises(LabelsError, match=words) as caught:
        from_export(text, "x")
    assert caught.value.hint

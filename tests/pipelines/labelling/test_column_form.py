"""A table in another language: what is asked, what is shown of each answer, and the project that begins of it."""

import json

import pytest

from lstr.errors import LabelsError
from lstr.pipelines.labelling.columns import Choice, unnamed_table
from lstr.pipelines.labelling.job import LabelOptions, label
from tests.support.browser import until
from tests.support.requests import Visitor
from tests.support.videos import write_video

HOSTILE = "<img src=x onerror=alert(1)>"
TABLE = f"""Film;Beginn;Ende;Verhalten;Tier;Notiz
a.mp4;0,1;0,2;Putzen;Ada;
a.mp4;0,3;0,4;{HOSTILE};;"gut; schnell"
c.mp4;0,1;0,4;Putzen;Bo;
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    for name in ("a", "b"):
        write_video(folder / f"{name}.mp4", range(0, 600, 20))
    return folder


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "werte.csv"
    path.write_text(TABLE)
    return path


def options(folder, table, tmp_path):
    return LabelOptions([str(folder)], tmp_path / "labels.json", [str(table)])


def test_what_a_column_may_be_is_guessed(table, tmp_path):
    found = unnamed_table(table)
    assert found.guess({"a": None}).columns == {"video": 0, "start": 1, "end": 2, "label": 3}
    (tmp_path / "known.csv").write_text("video,start,end,label\na,1,2,x\n")
    (tmp_path / "binary.csv").write_text("walk,run,sit\n0,1,0\n1,0,0\n")
    assert unnamed_table(tmp_path / "known.csv") is None and unnamed_table(tmp_path / "binary.csv") is None


@pytest.mark.parametrize(
    ("unit", "text", "start"),
    [("seconds", "0:01,5", 1.5), ("milliseconds", "1500", 1.5), ("frames", "60", 2.0)],
)
def test_times_count_what_a_person_says(folder, tmp_path, unit, text, start):
    (tmp_path / "x.csv").write_text(f"Wo;Von;Dauer;Was\na;{text};{text};Putzen\n")
    choice = Choice({"video": 0, "start": 1, "duration": 2, "label": 3}, unit)
    (segment,) = unnamed_table(tmp_path / "x.csv").read(choice, {"a": folder / "a.mp4"}).videos["a"].segments
    assert (segment.start, segment.end, segment.label) == (start, 2 * start, "Putzen")


def test_a_choice_that_does_not_do_is_said(folder, table, tmp_path):
    choices = [
        ({"start": 1, "end": 2}, "No column is the action yet"),
        ({"label": 3, "end": 2}, "No column is the start yet"),
        ({"label": 3, "start": 1}, "No column is the end, or how long it lasts yet"),
        ({"label": 3, "start": 1, "end": 0}, "Line 2"),
        ({"label": 3, "start": 1, "end": 99}, "no such column"),
        ({"label": 1, "start": 1, "end": 2}, "no choice of columns"),
        ({"label": 3, "start": 1, "end": 2, "score": 5}, "no choice of columns"),
    ]
    with label(options(folder, table, tmp_path)) as labelling:
        visitor = Visitor(labelling.server.address)
        for columns, words in choices:
            answer = visitor.ask("/columns/try", {"columns": columns})
            assert answer.status == 400 and words in answer.json["error"], columns
    assert not (tmp_path / "labels.json").exists(), "nothing has begun"


def test_what_comes_is_told_and_begins_once(folder, table, tmp_path):
    choice = {"columns": {"video": 0, "start": 1, "end": 2, "label": 3, "subject": 4}}
    with label(options(folder, table, tmp_path)) as labelling:
        visitor = Visitor(labelling.server.address)
        told = visitor.ask("/columns/try", choice).json
        assert (told["labels"], told["videos"], told["unknown"], told["subjects"]) == (3, 1, ["c"], ["Ada", "Bo"])
        assert visitor.ask("/columns/try", b"{}", content_type="text/plain").status == 415
        assert visitor.ask("/columns/try", b" " * 70000).status == 413
        assert visitor.ask("/columns/try", b"[1]").status == 400
        assert visitor.ask("/columns/try", choice, origin="http://evil.example").status == 403
        assert visitor.ask("/times/0").status == 404, "there is no project yet"
        assert visitor.ask("/columns/begin", choice).status == 200
        assert visitor.ask("/times/0").status == 200 and visitor.ask("/columns/begin", choice).status == 404
        labelling.project.settle()
    database = json.loads((tmp_path / "labels.json").read_text())["database"]
    assert [(m["label"], m["subject"]) for m in database["a"]["annotations"] if "subject" in m] == [("Putzen", "Ada")]
    with label(options(folder, table, tmp_path)) as again:
        assert Visitor(again.server.address).ask("/times/0").status == 200, "the same command goes on, and asks no more"
    (tmp_path / "other.csv").write_text("video,start,end,label\na,0.1,0.2,x\n")
    with pytest.raises(LabelsError, match="is there already"), label(options(folder, tmp_path / "other.csv", tmp_path)):
        pass


def test_how_labels_with_known_columns_are_taken_is_told(folder, tmp_path):
    """Points vanished, and labels of other videos were in the project without a word."""
    path, told = tmp_path / "known.csv", []
    path.write_text("video,start,end,label,note\na,0.1,0.2,run,odd\na,0.3,0.3,call\nc,0,1,run\n")
    with label(LabelOptions([str(folder)], tmp_path / "l.json", [str(path)]), told.append) as labelling:
        assert [one.start for one in labelling.project.state.labels["a"].values()] == [0.1]
    assert told == [
        "columns that are not read: 'note'",
        "1 of 3 labels last no time, such as point events, and are left out: call",
        "1 of 2 labelled videos are not open here: c",
    ]
    path.write_text("video,start,end,label\nc,0,1,run\n")
    with label(LabelOptions([str(folder)], tmp_path / "m.json", [str(path)]), told.append):
        assert "no label belongs to any of the videos" in told[-1] and len(told) == 4


def test_doubts_are_shown(folder, table, tmp_path):
    with label(options(folder, table, tmp_path)) as labelling:
        visitor = Visitor(labelling.server.address)
        odd = {"columns": {"start": 1, "end": 2, "label": 0, "video": 3}}
        assert "No row is of a video that is open here." in visitor.ask("/columns/try", odd).json["doubts"]
    (tmp_path / "ms.csv").write_text("Wo;Von;Bis;Was\na;100;200;1\n")
    with label(LabelOptions([str(folder)], tmp_path / "l.json", [str(tmp_path / "ms.csv")])) as labelling:
        choice = {"columns": {"video": 0, "start": 1, "end": 2, "label": 3}}
        doubts = Visitor(labelling.server.address).ask("/columns/try", choice).json["doubts"]
        assert "1 of 1 labels start after their video ends" in doubts[0] and "All actions are numbers" in doubts[1]


@pytest.mark.long
def test_columns_are_chosen_on_the_page(chromium, folder, table, tmp_path):
    with label(options(folder, table, tmp_path)) as labelling:
        page = chromium.new_page()
        complaints = []
        page.on("console", lambda message: complaints.append(message.text))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(labelling.server.address)
        until(page, "!$('begin').disabled")
        assert [page.locator("#table select").nth(at).input_value() for at in range(6)] == [
            "video", "start", "end", "label", "", "",
        ]  # fmt: skip
        page.locator("#table select").nth(4).select_option("subject")
        until(page, "$('sentence').textContent.includes('by Ada, Bo')")
        assert "3 labels of 2 actions" in page.inner_text("#sentence") and HOSTILE in page.inner_text("#labels")
        assert "1 video of the table is not here: c" in page.inner_text("#rest")
        page.locator("#table select").nth(5).select_option("label")
        until(
            page,
            "$('begin').disabled && $('sentence').textContent.includes('label is missing')",
        )
        page.locator("#table select").nth(3).select_option("label")
        until(page, "!$('begin').disabled")
        assert page.locator("#table select").nth(5).input_value() == "", "one thing is one column"
        with page.expect_navigation():
            page.click("#begin")
        until(page, "typeof asked !== 'undefined' && !loading && $('rows').querySelectorAll('button').length === 2")
        assert page.locator("img").count() == 1
        page.close()
    refused = [text for text in complaints if "status of 400" not in text]  # a browser notes each answer of that kind
    assert not refused

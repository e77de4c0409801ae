"""A table in another language: the form asks for its columns, and a project begins with it."""

import json

import pytest

from lstr.errors import LabelsError
from lstr.pipelines.labelling.label import Choice, label, read_unnamed
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


def test_tables_with_known_columns_need_no_form(table, tmp_path):
    assert read_unnamed(table).header[0] == "Film"
    (tmp_path / "known.csv").write_text("video,start,end,label\na,1,2,x\n")
    (tmp_path / "binary.csv").write_text("walk,run,sit\n0,1,0\n1,0,0\n")
    assert read_unnamed(tmp_path / "known.csv") is None and read_unnamed(tmp_path / "binary.csv") is None


@pytest.mark.parametrize(
    ("unit", "text", "start"),
    [("seconds", "0:01,5", 1.5), ("milliseconds", "1500", 1.5), ("frames", "60", 2.0)],
)
def test_times_have_the_chosen_unit(folder, tmp_path, unit, text, start):
    (tmp_path / "x.csv").write_text(f"Wo;Von;Dauer;Was\na;{text};{text};Putzen\n")
    choice = Choice({"video": 0, "start": 1, "duration": 2, "label": 3}, unit)
    (segment,) = read_unnamed(tmp_path / "x.csv").read(choice, {"a": folder / "a.mp4"}).videos["a"].segments
    assert (segment.start, segment.end, segment.label) == (start, 2 * start, "Putzen")


def test_a_wrong_choice_is_explained_and_begins_nothing(folder, table, tmp_path):
    choices = [
        ({"start": 1, "end": 2}, "No column is the action yet"),
        ({"label": 3, "end": 2}, "No column is the start yet"),
        ({"label": 3, "start": 1}, "No column is the end or the duration yet"),
        ({"label": 3, "start": 1, "end": 0}, "Line 2"),
        ({"label": 3, "start": 1, "end": 99}, "no such column"),
        ({"label": 1, "start": 1, "end": 2}, "choice of columns is not valid"),
        ({"label": 3, "start": 1, "end": 2, "score": 5}, "choice of columns is not valid"),
    ]
    with label([str(folder)], tmp_path / "labels.json", [str(table)]) as labelling:
        visitor = Visitor(labelling.server.address)
        for columns, words in choices:
            answer = visitor.ask("/columns/try", {"columns": columns})
            assert answer.status == 400 and words in answer.json["error"], columns
        assert visitor.ask("/columns/try", b"{}", content_type="text/plain").status == 415
        assert visitor.ask("/columns/try", b" " * 70000).status == 413
        assert visitor.ask("/columns/try", b"[1]").status == 400
        odd = visitor.ask("/columns/try", {"columns": {"start": 1, "end": 2, "label": 0, "video": 3}}).json
        assert "no label belongs to any of the videos" in " ".join(odd["notes"])
    assert not (tmp_path / "labels.json").exists()
    (tmp_path / "ms.csv").write_text("Wo;Von;Bis;Was\na;100;200;1\n")
    with label([str(folder)], tmp_path / "l.json", [str(tmp_path / "ms.csv")]) as labelling:
        late = {"columns": {"video": 0, "start": 1, "end": 2, "label": 3}}
        notes = Visitor(labelling.server.address).ask("/columns/try", late).json["notes"]
        assert notes == ["1 of 1 labels start after their video ends: is the unit right?"]


def test_a_project_begins_once_and_resumes(folder, table, tmp_path):
    choice = {"columns": {"video": 0, "start": 1, "end": 2, "label": 3, "subject": 4}}
    with label([str(folder)], tmp_path / "labels.json", [str(table)]) as labelling:
        visitor = Visitor(labelling.server.address)
        assert visitor.ask("/times/0").status == 404, "there is no project yet"
        assert visitor.ask("/columns/begin", choice).status == 200
        assert visitor.ask("/times/0").status == 200 and visitor.ask("/columns/begin", choice).status == 404
        labelling.project.settle()
    content = json.loads((tmp_path / "labels.json").read_text())
    assert [mark["subject"] for mark in content["database"]["c"]["annotations"]] == ["Bo"]
    with label([str(folder)], tmp_path / "labels.json", [str(table)]) as again:
        assert Visitor(again.server.address).ask("/times/0").status == 200, "the same command asks no more"
    (tmp_path / "other.csv").write_text("video,start,end,label\na,0.1,0.2,x\n")
    with pytest.raises(LabelsError, match="already exists"):
        with label([str(folder)], tmp_path / "labels.json", [str(tmp_path / "other.csv")]):
            pass


def test_the_terminal_says_how_known_columns_are_read(folder, tmp_path):
    path, told = tmp_path / "known.csv", []
    path.write_text("video,start,end,label,note\na,0.1,0.2,run,odd\na,0.3,0.3,call\nc,0,1,run\n")
    with label([str(folder)], tmp_path / "l.json", [str(path)], tell=told.append) as labelling:
        assert [one.start for one in labelling.project.state.labels["a"].values()] == [0.1]
    assert told == [
        "columns that are not read: 'note'",
        "1 of 3 labels have no duration, as point events, and are skipped: call",
        "1 of 2 labelled videos are not open here: c",
    ]


@pytest.mark.long
def test_columns_are_chosen_on_the_page(chromium, folder, table, tmp_path):
    with label([str(folder)], tmp_path / "labels.json", [str(table)]) as labelling:
        page = chromium.new_page()
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("dialog", lambda dialog: complaints.append(dialog.message))
        page.goto(labelling.server.address)
        until(page, "!$('begin').disabled")
        chosen = [page.locator("#table select").nth(at).input_value() for at in range(6)]
        assert chosen == ["video", "start", "end", "label", "", ""]
        page.locator("#table select").nth(4).select_option("subject")
        until(page, "$('sentence').textContent.includes('by Ada, Bo')")
        assert "3 labels of 2 actions" in page.inner_text("#sentence") and HOSTILE in page.inner_text("#labels")
        page.locator("#table select").nth(5).select_option("label")
        until(page, "$('begin').disabled && $('sentence').textContent.includes('label is missing')")
        page.locator("#table select").nth(3).select_option("label")
        until(page, "!$('begin').disabled")
        assert page.locator("#table select").nth(5).input_value() == "", "one thing is one column"
        with page.expect_navigation():
            page.click("#begin")
        until(page, "typeof asked !== 'undefined' && !loading && $('rows').querySelectorAll('button').length === 2")
        assert page.locator("img").count() == 1 and not complaints
        page.close()

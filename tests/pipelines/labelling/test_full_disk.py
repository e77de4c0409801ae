"""A full disk while a person labels: what cannot be saved is said and not kept, what was saved is, and it goes on."""

import json

import pytest

from lstr.errors import OutputError
from lstr.labels.label_set import Labels, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import Label
from tests.support.labelling import action, put
from tests.support.processes import room
from tests.support.requests import Visitor
from tests.support.videos import write_video

MANY = Labels(
    ("Background", "walk"), {"a": VideoLabels("", 900.0, tuple(Segment(i, i + 0.5, "walk") for i in range(200)))}
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("films")
    write_video(folder / "a.mp4", range(0, 400, 20))
    return folder


def lines(project: Project) -> list[dict]:
    return [json.loads(line) for line in project.journal.path.read_text().splitlines()]


def test_a_change_that_the_journal_cannot_take_is_not_kept(tmp_path):
    with Project(tmp_path / "l.json") as project:
        walk = action(project, "walk")
        put(project, Label(walk, 1, 2), "a", "x")
        project.settle()
        kept, revision = lines(project), project.revision
        for more in (0, 1, 40, 100):
            with room(project.journal.path.stat().st_size + more), pytest.raises(OutputError, match="written"):
                put(project, Label(walk, 3, 4), "a", "y")
        assert lines(project) == kept and project.revision == revision and "y" not in project.state.labels["a"]
        put(project, Label(walk, 3, 4), "a", "y")
    with Project(tmp_path / "l.json") as again:
        assert {key: label.start for key, label in again.state.labels["a"].items()} == {"x": 1, "y": 3}


def test_where_only_the_journal_has_room_nothing_is_lost(tmp_path):
    path = tmp_path / "l.json"
    with pytest.raises(OutputError, match="not up to date") as told, Project(path, MANY) as project:
        project.settle()
        written = path.read_bytes()
        most = project.journal.path.stat().st_size + 2000
        assert most < len(written)
        with room(most):
            put(project, Label("c1", 300, 301), "a", "new")
            project.settle()
            assert "written" in project.trouble and path.read_bytes() == written, "the file is the last whole one"
            project.close()
    assert "make room" in told.value.hint and sorted(p.name for p in tmp_path.iterdir()) == ["l.json", "l.json.journal"]
    with Project(path) as again:
        assert again.state.labels["a"]["new"].start == 300
    assert b'"new"' in path.read_bytes()


def test_the_page_is_told_and_goes_on_when_there_is_room(labelling):
    visitor, project = Visitor(labelling.server.address), labelling.project

    def ask(name: str):
        change = {"kind": "action", "key": name, "after": {"name": name}}
        return visitor.ask("/change", {"id": f"id of {name}", "changes": [change]})

    assert ask("one").status == 200
    project.settle()
    with room(project.journal.path.stat().st_size + 10):
        refused = ask("two")
        assert refused.status == 500 and "cannot be written" in refused.json["error"]
    assert ask("two").status == 200 and ask("two").json["trouble"] == ""
    assert set(project.state.actions) == {"one", "two"}

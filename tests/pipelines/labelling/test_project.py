"""Changes in one order, undone and done again without end, that outlive the process and never lose each other."""

import json
import random
import signal
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.errors import ConflictError, LabelsError, OutputError, RequestError
from lstr.labels.label_set import Labels, VideoLabels, read_labels
from lstr.labels.segment import Segment
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import NOTHING, About, Action, Change, Label, Subject
from tests.support.labelling import action, labels_after, new_id, put
from tests.support.processes import heed_interrupts, room

A = "fall-01"


@pytest.fixture
def project(tmp_path):
    with Project(tmp_path / "labels.json", durations={A: 8.0}) as opened:
        yield opened


def test_a_label_is_in_the_file_when_it_is_made(project):
    fall = action(project, "fall", "f")
    put(project, Label(fall, 1.0, 2.5, "Anna", "slips"), A, "x")
    put(project, About(complete=True), A)
    project.settle()
    labels = read_labels(project.path)
    assert labels.classes == ("Background", "fall")
    assert [(s.label, s.start, s.end) for s in labels.videos[A].segments] == [("fall", 1.0, 2.5)]
    assert json.loads(project.path.read_text())["database"][A]["annotations"] == [
        {"label": "fall", "segment": [1.0, 2.5], "id": "x", "subject": "Anna", "comment": "slips"}
    ]


def test_what_was_undone_is_gone_once_something_else_is_done(project):
    """All that was done to a video can be undone and redone; see test_whatever_is_done_comes_back."""
    fall = action(project, "fall")
    put(project, Label(fall, 1.0, 2.0), "another", "x")
    put(project, Label(fall, 1.0, 2.0), A, "x")
    project.turn(new_id(), A, "undo")
    assert project.turn(new_id(), A, "undo") is None and "x" in project.state.labels["another"]
    put(project, Label(fall, 70.0, 71.0), A, "new")
    assert project.turn(new_id(), A, "redo") is None


def test_what_labels_of_a_removed_action_were_cannot_be_undone(tmp_path):
    with Project(tmp_path / "labels.json") as project:
        fall, walk = action(project, "fall", "f"), action(project, "walk", "w")
        put(project, Label(fall, 1.0, 2.0), A, "x")
        put(project, None, A, "x")
        put(project, Label(walk, 1.0, 2.0), "another", "y")
        project.change(new_id(), [Change("action", "", fall, project.state.actions[fall], None)])
        assert project.turn(new_id(), A, "undo") is None
        assert project.turn(new_id(), "another", "undo") and project.turn(new_id(), "another", "redo")
        before = project.snapshot(), project.history
    with Project(tmp_path / "labels.json") as again:
        assert (again.snapshot(), again.history) == before


@pytest.mark.parametrize(
    "changes",
    [
        [Change("label", A, "y", None, Label("unknown", 1.0, 2.0))],
        [Change("action", "", "b", None, Action("fall"))],
        [Change("action", "", "b", None, Action("fly", "F"))],
        [Change("action", "", "id of fall", Action("fall", "f", 0), None)],
        [Change("about", A, "", None, About(True)), Change("about", "b", "", None, About(True))],
        [Change("about", A, "", None, About(True)), Change("subject", "", "Anna", None, Subject())],
        [],
    ],
    ids=["no action", "a name twice", "a key twice", "an action with labels", "two videos", "two kinds", "nothing"],
)
def test_what_does_not_go_together_changes_nothing(project, changes):
    put(project, Label(action(project, "fall", "f"), 1.0, 2.0), A, "x")
    before = project.revision, project.snapshot()[1]
    with pytest.raises(RequestError) as refused:
        project.change(new_id(), changes)
    assert refused.value.hint and (project.revision, project.state) == before


def test_no_character_of_a_comment_ends_a_line_of_the_journal(tmp_path):
    with Project(tmp_path / "labels.json") as first:
        put(first, Label(NOTHING, 1.0, 2.0, comment="one\u2028two\u2029three\x85four"), A, "x")
        put(first, Label(NOTHING, 3.0, 4.0), A, "y")
        state, revision = first.snapshot()[1], first.revision
    with Project(tmp_path / "labels.json") as again:
        assert (again.state, again.revision) == (state, revision) and len(again.history.done[A]) == 2
    first.path.unlink()
    with Project(tmp_path / "labels.json") as third:
        assert third.state == state, "the journal alone is enough"


def test_a_file_that_was_changed_by_hand_counts(tmp_path):
    with Project(tmp_path / "labels.json") as first:
        fall = action(first, "fall")
        put(first, Label(fall, 1.0, 2.0), A, "x")
        first.settle()
    content = json.loads(first.path.read_text())
    content["database"][A]["annotations"].append({"label": "fall", "segment": ["0:05", 6], "id": "x"})
    first.path.write_text(json.dumps(content))
    with Project(first.path) as again:
        assert sorted(label.start for label in again.state.labels[A].values()) == [1.0, 5.0]
        with pytest.raises(ConflictError):
            again.since(1)
        put(again, Label(fall, 7.0, 8.0), A, "z")
    with Project(first.path) as third:
        assert len(third.state.labels[A]) == 3
    assert not list(tmp_path.glob("*.before")), "it is still ours"


def test_a_file_of_another_tool_is_kept_and_begins_the_project(tmp_path):
    """There is nothing yet, or a project whose file was replaced; all other time is background in such a file."""
    path = tmp_path / "labels.json"
    for tool in ("one", "another"):
        old = {"version": tool, "database": {"a": {"annotations": [{"label": tool, "segment": [1, 2]}]}, "b": {}}}
        old["database"]["a"]["duration"] = 9
        path.write_text(json.dumps(old))
        with Project(path) as project:
            assert project.state.abouts == {"a": About(True), "b": About(True)}
            put(project, About(complete=False), "a")
        assert json.loads((tmp_path / "labels.json.before").read_text()) == old
        read = read_labels(path)
        assert [s.label for s in read.videos["a"].segments] == [tool, "Ambiguous", "Ambiguous"]
    with pytest.raises(LabelsError):
        Project(path, begin=read)


def test_only_one_process_has_it_open(project):
    with pytest.raises(OutputError) as busy:
        Project(project.path)
    assert "-o" in busy.value.hint


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 1), st.integers(0, 50), st.integers(1, 50)),
        st.tuples(st.just("remove"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.sampled_from(["undo", "redo", "open again"]), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("complete"), st.booleans(), st.integers(0, 1)),
    ),
    max_size=25,
)


@settings(max_examples=25)
@given(steps)
def test_whatever_is_done_comes_back(tmp_path_factory, steps):
    path = tmp_path_factory.mktemp("project") / "labels.json"
    project = Project(path, durations={"a": 30.0, "b": 10.0})
    try:
        fall = action(project, "fall")
        for what, which, video, *times in steps:
            name = "ab"[video]
            if what == "open again":
                before = project.snapshot(), project.history
                project.close()
                project = Project(path, durations={"a": 30.0, "b": 10.0})
                assert (project.snapshot(), project.history) == before
            elif what in ("undo", "redo"):
                project.turn(new_id(), name, what)
            elif what == "complete":
                put(project, About(complete=which), name)
            else:
                value = Label(fall, times[0] / 4, sum(times) / 4) if what == "put" else None
                put(project, value, name, f"label {which}")
        end = project.snapshot()[1]
        for name in "ab":
            turned = 0
            while project.turn(new_id(), name, "undo"):
                turned += 1
            assert name not in project.state.labels and project.state.abouts.get(name) is None
            for _ in range(turned):
                project.turn(new_id(), name, "redo")
            assert project.state.labels.get(name) == end.labels.get(name)
    finally:
        project.close()


MANY = Labels(
    ("Background", "walk"), {"a": VideoLabels("", 900.0, tuple(Segment(i, i + 0.5, "walk") for i in range(200)))}
)


def lines(project: Project) -> list[dict]:
    return [json.loads(line) for line in project.journal.path.read_text().splitlines()]


def test_a_change_that_the_journal_cannot_take_is_not_kept(tmp_path):
    with Project(tmp_path / "l.json") as project:
        walk = action(project, "walk")
        put(project, Label(walk, 1, 2), "a", "x")
        project.settle()
        kept, revision = lines(project), project.revision
        for more in (0, 1, 40, 100):
            with room(project.journal.path.stat().st_size + more), pytest.raises(OutputError):
                put(project, Label(walk, 3, 4), "a", "y")
        assert lines(project) == kept and project.revision == revision and "y" not in project.state.labels["a"]
        put(project, Label(walk, 3, 4), "a", "y")
    with Project(tmp_path / "l.json") as again:
        assert {key: label.start for key, label in again.state.labels["a"].items()} == {"x": 1, "y": 3}


def test_where_only_the_journal_has_room_nothing_is_lost(tmp_path):
    path = tmp_path / "l.json"
    with pytest.raises(OutputError) as told, Project(path, MANY) as project:
        project.settle()
        written = path.read_bytes()
        most = project.journal.path.stat().st_size + 2000
        assert most < len(written)
        with room(most):
            put(project, Label("c1", 300, 301), "a", "new")
            project.settle()
            assert project.trouble and path.read_bytes() == written, "the file is the last whole one"
            project.close()
    assert told.value.hint and sorted(p.name for p in tmp_path.iterdir()) == ["l.json", "l.json.journal"]
    with Project(path) as again:
        assert again.state.labels["a"]["new"].start == 300
    assert b'"new"' in path.read_bytes()


LABELLER = """
import random, sys
from pathlib import Path
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import Change, Label

random.seed(int(sys.argv[2]))
with Project(Path(sys.argv[1])) as project:
    (fall,) = project.state.actions
    print("open", flush=True)
    while True:
        key = f"label {random.randrange(200)}"
        before = project.state.get("label", "a", key)
        start = random.randrange(1000) / 8
        after = None if before and random.random() < 0.3 else Label(fall, start, start + 1)
        if before is None and after is None:
            continue
        deed = random.random()
        if deed < 0.15:
            entry = project.turn(f"{random.random()}", "a", random.choice(["undo", "redo"]))
        else:
            entry = project.change(f"{random.random()}", [Change("label", "a", key, before, after)])
        if entry:
            print(entry.revision, flush=True)
"""


@pytest.mark.long
def test_nothing_that_was_acknowledged_is_lost(tmp_path):
    path, moments = tmp_path / "labels.json", random.Random(7)
    with Project(path) as project:
        action(project, "fall")
    lines: list[str] = []
    for kill in range(6):
        words = [sys.executable, "-c", LABELLER, str(path), str(kill)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts) as labeller:
            assert labeller.stdout.readline() == "open\n"
            acknowledged = 0
            for _ in range(moments.randrange(1, 120)):
                acknowledged = int(labeller.stdout.readline())
            labeller.send_signal(signal.SIGKILL)
            rest = labeller.stdout.read().split("\n")  # what it said before it heard of its end
            acknowledged = max([acknowledged, *(int(text) for text in rest[:-1])])
        journal = path.with_name("labels.json.journal").read_text().splitlines()
        assert journal[: len(lines)] == lines, "what was written once is never written over"
        lines = journal[:-1]  # the last may be cut short
        with Project(path) as again:
            assert again.revision >= acknowledged
            replayed = labels_after(journal)
            assert {key: (label.start, label.end) for key, label in again.state.labels.get("a", {}).items()} == replayed
            again.settle()
        assert len([s for s in read_labels(path).videos["a"].segments if s.label == "fall"]) == len(replayed)
    assert not list(tmp_path.glob(".*tmp-*")), "nor is anything left lying about"

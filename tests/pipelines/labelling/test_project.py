"""A labels project: its changes, undo and redo, its file and journal, and that it survives kills and a full disk."""

import json
import random
import signal
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.chunk import CLOCK
from lstr.errors import ConflictError, LabelsError, OutputError, RequestError
from lstr.labels.label_set import Labels, VideoLabels, labels_of, read_activitynet, targets
from lstr.labels.segment import Segment
from lstr.pipelines.annotations.label_files import read_label_file
from lstr.pipelines.labelling.document import find_unlabelled, from_document, to_document
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import NOTHING, About, Action, Change, Label, State, Subject, change_of
from tests.support.labelling import action, new_id, put
from tests.support.processes import limit_file_size, restore_signals


def labels_after(journal: list[str]) -> dict[str, tuple[float, float]]:
    """Return start and end of the labels by key, parsed from the journal without the product's reader."""
    labels: dict[str, tuple[float, float]] = {}
    for text in journal:
        try:
            line = json.loads(text)
        except ValueError:
            continue
        for change in line.get("changes", ()):
            if change["kind"] == "label":
                labels.pop(change["key"], None)
                if (after := change["after"]) is not None:
                    labels[change["key"]] = (after["start"], after["end"])
    return labels


def test_changes_are_written_to_the_label_file(project):
    fall = action(project, "fall", "f")
    put(project, Label(fall, 1.0, 2.5, "Anna", "slips"), "a", "x")
    put(project, About(complete=True), "a")
    project.settle()
    content = json.loads(project.path.read_text())
    expected = {"label": "fall", "segment": [1.0, 2.5], "id": "x", "subject": "Anna", "comment": "slips"}
    assert content["classes"] == ["Background", "fall"] and content["database"]["a"]["annotations"] == [expected]


def test_removing_an_action_ends_the_undo_of_its_labels(tmp_path):
    with Project(tmp_path / "labels.json") as project:
        fall, walk = action(project, "fall", "f"), action(project, "walk", "w")
        put(project, Label(fall, 1.0, 2.0), "a", "x")
        put(project, None, "a", "x")
        put(project, Label(walk, 1.0, 2.0), "b", "y")
        project.change(new_id(), [Change("action", "", fall, project.state.actions[fall], None)])
        assert project.turn(new_id(), "a", "undo") is None
        assert project.turn(new_id(), "b", "undo") and project.turn(new_id(), "b", "redo")
        before = project.snapshot(), project.history
    with Project(tmp_path / "labels.json") as reopened:
        assert (reopened.snapshot(), reopened.history) == before


@pytest.mark.parametrize(
    "changes",
    [
        [Change("label", "a", "y", None, Label("unknown", 1.0, 2.0))],
        [Change("action", "", "b", None, Action("fall"))],
        [Change("action", "", "b", None, Action("fly", "F"))],
        [Change("action", "", "id of fall", Action("fall", "f", 0), None)],
        [Change("about", "a", "", None, About(True)), Change("about", "b", "", None, About(True))],
        [Change("about", "a", "", None, About(True)), Change("subject", "", "Anna", None, Subject())],
        [],
    ],
    ids=["no action", "a name twice", "a key twice", "an action with labels", "two videos", "two kinds", "nothing"],
)
def test_inconsistent_changes_are_refused(project, changes):
    put(project, Label(action(project, "fall", "f"), 1.0, 2.0), "a", "x")
    before = project.revision, project.snapshot()[1]
    with pytest.raises(RequestError):
        project.change(new_id(), changes)
    assert (project.revision, project.state) == before


def test_no_character_of_a_comment_ends_a_line_of_the_journal(tmp_path):
    path = tmp_path / "labels.json"
    with Project(path) as project:
        put(project, Label(NOTHING, 1.0, 2.0, comment="one\u2028two\u2029three\x85four"), "a", "x")
        put(project, Label(NOTHING, 3.0, 4.0), "a", "y")
        state, revision = project.snapshot()[1], project.revision
    with Project(path) as project:
        assert (project.state, project.revision) == (state, revision) and len(project.history.done["a"]) == 2
    path.unlink()
    with Project(path) as project:
        assert project.state == state, "the journal alone is enough"


def test_a_file_that_was_edited_by_hand_is_read(tmp_path):
    path = tmp_path / "labels.json"
    with Project(path) as project:
        fall = action(project, "fall")
        put(project, Label(fall, 1.0, 2.0), "a", "x")
    content = json.loads(path.read_text())
    content["database"]["a"]["annotations"].append({"label": "fall", "segment": ["0:05", 6], "id": "x"})
    path.write_text(json.dumps(content))
    with Project(path) as project:
        assert sorted(label.start for label in project.state.labels["a"].values()) == [1.0, 5.0]
        with pytest.raises(ConflictError):
            project.since(1)
        put(project, Label(fall, 7.0, 8.0), "a", "z")
    with Project(path) as project:
        assert len(project.state.labels["a"]) == 3
    assert not list(tmp_path.glob("*.before")), "only files of other tools are copied"


def test_a_file_of_another_tool_is_copied_and_starts_the_project(tmp_path):
    """Also where it replaced the file of a project. Unlabelled time is background in such files."""
    path = tmp_path / "labels.json"
    for tool in ("one", "another"):
        annotations = [{"label": tool, "segment": [1, 2]}]
        content = {"version": tool, "database": {"a": {"annotations": annotations, "duration": 9}, "b": {}}}
        path.write_text(json.dumps(content))
        with Project(path) as project:
            assert project.state.abouts == {"a": About(True), "b": About(True)}
            put(project, About(complete=False), "a")
        assert json.loads((tmp_path / "labels.json.before").read_text()) == content
        labels = read_label_file(path)
        assert [s.label for s in labels.videos["a"].segments] == [tool, "Ambiguous", "Ambiguous"]
    with pytest.raises(LabelsError):
        Project(path, begin=labels)


def test_a_second_process_is_refused(project):
    with pytest.raises(OutputError):
        Project(project.path)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 3), st.integers(0, 1), st.integers(0, 50), st.integers(1, 50)),
        st.tuples(st.just("remove"), st.integers(0, 3), st.integers(0, 1)),
        st.tuples(st.sampled_from(["undo", "redo", "reopen"]), st.just(0), st.integers(0, 1)),
        st.tuples(st.just("complete"), st.booleans(), st.integers(0, 1)),
    ),
    max_size=25,
)


@settings(max_examples=25)
@given(steps)
def test_undo_and_redo_restore_every_state(tmp_path_factory, steps):
    """Of each video; a new change ends what can be redone."""
    path = tmp_path_factory.mktemp("project") / "labels.json"
    project = Project(path, durations={"a": 30.0, "b": 10.0})
    try:
        fall = action(project, "fall")
        for step, key, video, *times in steps:
            name = "ab"[video]
            if step == "reopen":
                before = project.snapshot(), project.history
                project.close()
                project = Project(path, durations={"a": 30.0, "b": 10.0})
                assert (project.snapshot(), project.history) == before
            elif step in ("undo", "redo"):
                project.turn(new_id(), name, step)
            else:
                value = Label(fall, times[0] / 4, sum(times) / 4) if step == "put" else None
                value, key = (About(complete=key), "") if step == "complete" else (value, f"label {key}")
                put(project, value, name, key)
                assert project.turn(new_id(), name, "redo") is None
        end = project.snapshot()[1]
        for name in "ab":
            count = 0
            while project.turn(new_id(), name, "undo"):
                count += 1
            assert name not in project.state.labels and project.state.abouts.get(name) is None
            for _ in range(count):
                project.turn(new_id(), name, "redo")
            assert project.state.labels.get(name) == end.labels.get(name)
    finally:
        project.close()


def test_a_change_that_the_journal_cannot_store_is_undone(tmp_path):
    path = tmp_path / "labels.json"
    with Project(path) as project:
        walk, journal = action(project, "walk"), project.journal.path
        put(project, Label(walk, 1, 2), "a", "x")
        project.settle()
        content, revision = journal.read_text(), project.revision
        for n_bytes in (0, 1, 40, 100):
            with limit_file_size(journal.stat().st_size + n_bytes), pytest.raises(OutputError):
                put(project, Label(walk, 3, 4), "a", "y")
        assert journal.read_text() == content
        assert project.revision == revision and "y" not in project.state.labels["a"]
        put(project, Label(walk, 3, 4), "a", "y")
    with Project(path) as project:
        assert {key: label.start for key, label in project.state.labels["a"].items()} == {"x": 1, "y": 3}


def test_a_change_on_a_full_disk_is_in_the_journal(tmp_path):
    path, segments = tmp_path / "labels.json", tuple(Segment(i, i + 0.5, "walk") for i in range(200))
    labels = Labels(("Background", "walk"), {"a": VideoLabels("", 900.0, segments)})
    with pytest.raises(OutputError), Project(path, labels) as project:
        project.settle()
        content = path.read_bytes()
        limit = project.journal.path.stat().st_size + 2000
        assert limit < len(content)
        with limit_file_size(limit):
            put(project, Label("c1", 300, 301), "a", "new")
            project.settle()
            assert project.trouble and path.read_bytes() == content, "the last complete file"
            project.close()
    assert {p.name for p in tmp_path.iterdir()} == {"labels.json", "labels.json.journal"}
    with Project(path) as project:
        assert project.state.labels["a"]["new"].start == 300
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
        if random.random() < 0.15:
            entry = project.turn(f"{random.random()}", "a", random.choice(["undo", "redo"]))
        else:
            entry = project.change(f"{random.random()}", [Change("label", "a", key, before, after)])
        if entry:
            print(entry.revision, flush=True)
"""


@pytest.mark.long
def test_a_killed_process_loses_no_acknowledged_change(tmp_path):
    path, rng = tmp_path / "labels.json", random.Random(7)
    with Project(path) as project:
        action(project, "fall")
    lines: list[str] = []
    for seed in range(6):
        words = [sys.executable, "-c", LABELLER, str(path), str(seed)]
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=restore_signals) as labeller:
            assert labeller.stdout.readline() == "open\n"
            for _ in range(rng.randrange(1, 120)):
                acknowledged = int(labeller.stdout.readline())
            labeller.send_signal(signal.SIGKILL)
            output = labeller.stdout.read().split("\n")  # printed before the signal arrived; the last line may be cut
            acknowledged = max([acknowledged, *(int(text) for text in output[:-1])])
        journal = path.with_name("labels.json.journal").read_text().splitlines()
        assert journal[: len(lines)] == lines, "the journal only grows"
        lines = journal[:-1]  # the last line may be cut
        with Project(path) as project:
            assert project.revision >= acknowledged
            replayed = labels_after(journal)
            labels = project.state.labels.get("a", {})
            assert {key: (label.start, label.end) for key, label in labels.items()} == replayed
            project.settle()
        assert len([s for s in read_label_file(path).videos["a"].segments if s.label == "fall"]) == len(replayed)
    assert not list(tmp_path.glob(".*tmp-*")), "no temporary files"


def targets_of(*labels: Label, complete: bool = False) -> dict[str, list[int]]:
    """Return the training targets of a video of 16 chunks, by class."""
    held = {str(key): label for key, label in enumerate(labels)}
    state = State({"a": held}, abouts={"a": About(complete)}, actions={"f": Action("fall", "f")})
    document = to_document(state, {"a": 4.0}, {})
    labels = labels_of(*read_activitynet(document, "labels.json"), "labels.json")
    rows = targets(labels.videos["a"], labels.classes, 16)
    return dict(zip(labels.classes, rows.T.tolist(), strict=True))


def test_training_targets():
    """Unlabelled time is ambiguous, also after the start of an open label; empty time is background."""
    by_class = targets_of(Label("f", 0.6, 1.1), Label(NOTHING, 1.1, 2.6))
    assert by_class["fall"] == [0, 0, 1, 1, 1] + [0] * 11
    assert by_class["Background"] == [0] * 5 + [1] * 5 + [0] * 6, "excludes a chunk that is half unlabelled"
    assert by_class["Ambiguous"] == [1, 1] + [0] * 8 + [1] * 6, "excludes chunks with an action"
    by_class = targets_of(Label("f", 2.0, None), complete=True)
    assert by_class["Ambiguous"] == [0] * 8 + [1] * 8 and not any(by_class["fall"])


times = st.integers(0, 160).map(lambda ticks: ticks / 40)
labels = st.lists(
    st.tuples(st.sampled_from(["f", "w", NOTHING]), times, times).filter(lambda label: label[1] < label[2]), max_size=6
)


@settings(max_examples=50)
@given(labels, st.booleans())
def test_unlabelled_time_equals_a_count_of_40_ticks_a_second(spans, complete):
    ambiguous = np.zeros(16, bool)
    for start, end in find_unlabelled([Label(*span) for span in spans], complete, 4.0):
        assert (start * 4).is_integer() and start < end <= 4
        ambiguous[CLOCK.first(start) : CLOCK.end(end)] = True
    is_labelled, has_action = np.zeros((2, 160), bool)
    for name, start, end in spans:
        ticks = slice(round(start * 40), round(end * 40))
        is_labelled[ticks] = True
        has_action[ticks] |= name != NOTHING
    chunks = ~has_action.reshape(16, 10).any(1) & ~is_labelled.reshape(16, 10).all(1)
    np.testing.assert_array_equal(ambiguous, chunks & (not complete))


def test_a_damaged_file_is_refused():
    document = to_document(State(actions={"f": Action("fall", "f")}), {}, {})
    document["lstr"]["actions"] = [{"name": "fall"}]
    with pytest.raises(LabelsError, match="labels.json"):
        from_document(document, "labels.json")


PROPOSAL = {"action": "kick", "start": 3, "end": 4, "peak": 0.5, "threshold": 0.5, "model": "m"}


@pytest.mark.parametrize(
    "entry",
    [
        {"kind": "file", "key": "/etc/passwd"},
        {"kind": "label", "key": "x", "after": {"action": "f", "start": 1}},
        {"kind": "label", "video": "a", "key": "x", "after": {"action": "f", "start": 2, "end": 2}},
        {"kind": "label", "video": "a", "key": "x", "after": {"action": "f", "start": 1, "comment": "\ud800"}},
        {"kind": "proposal", "video": "a", "key": "p", "after": PROPOSAL | {"end": 2}},
        {"kind": "proposal", "video": "a", "key": "p", "after": PROPOSAL | {"state": "perhaps"}},
        {"kind": "action", "key": "x", "after": {"name": "Background"}},
        {"kind": "action", "key": "x", "after": {"name": "fall", "key": "j"}},
    ],
)
def test_invalid_changes_are_refused(entry):
    with pytest.raises(RequestError):
        change_of(entry)

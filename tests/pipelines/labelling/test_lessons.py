"""Learning from a labels project: what it takes, what is kept of it, and what a person is refused."""

import json
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from lstr.labels.label_set import read_labels
from lstr.pipelines.labelling.lesson import (
    FAILED,
    LEARNING,
    LEARNT,
    STOPPED,
    Lesson,
    LessonOptions,
    command_of,
    files_of,
    learnable,
    write_snapshot,
)
from lstr.pipelines.labelling.lessons import Lessons
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.values import NOTHING, About, Label, RefusedError
from lstr.pipelines.learning.workspace import Workspace
from tests.support.labelling import action, put

MEASURED = {"sentence": "", "together": {}, "hours": 1.0}


@pytest.fixture
def project(tmp_path):
    with Project(tmp_path / "labels.json") as opened:
        yield opened


def lessons_of(project, *kept: Lesson, **options) -> Lessons:
    """The learnings of a project whose folder has these."""
    for lesson in kept:
        files = files_of(project.path.with_suffix(".models"), lesson.number)
        files.write(lesson)
        files.report.mkdir(parents=True)
        files.model.write_bytes(b"a model")
    return Lessons(project, LessonOptions(["videos"], **options))


def test_what_is_learnt_from_is_what_is_labelled(project, tmp_path):
    fall = action(project, "fall")
    put(project, Label(fall, 1, 2), "labelled", "a")
    put(project, About(complete=True), "complete")
    put(project, Label(fall, 1), "begun", "b")
    put(project, About(comment="later"), "commented")
    put(project, Label(NOTHING, 1, 2), "nothing happens", "c")
    revision, state = project.snapshot()
    kept = learnable(state)
    assert set(kept.videos()) == {"labelled", "complete", "nothing happens"}
    files = files_of(tmp_path / "x.models", 3)
    write_snapshot(files, kept, {name: 5.0 for name in state.videos()}, revision)
    put(project, Label(fall, 3, 4), "labelled", "later")
    read = read_labels(files.labels)
    assert [s.label for s in read.videos["labelled"].segments].count("fall") == 1, "later labels do not disturb it"
    assert not read.videos["complete"].segments and set(read.videos) == set(kept.videos())
    assert files.action_names() == {fall: "fall"}
    assert files.parts == Workspace(files.model).path and files.report == Workspace(files.model).report


def test_nothing_labelled_is_one_sentence(project):
    put(project, About(complete=True), "a")
    lessons = lessons_of(project)
    with pytest.raises(RefusedError, match="Nothing is labelled yet"):
        lessons.begin()
    assert not lessons.folder.exists()


@pytest.mark.parametrize("seconds", [0.0, -60.0, 59.0, float("nan"), float("inf"), 1e9])
def test_a_time_that_is_none_is_refused(project, seconds):
    put(project, Label(action(project, "fall"), 1, 2), "a", "x")
    with pytest.raises(RefusedError, match="no time to learn in"):
        lessons_of(project).begin(seconds)


def test_the_command_is_one_that_a_shell_takes():
    options = LessonOptions(["my videos", "b's"], settings={"algorithm": "dis", "settings": {"epochs": "2"}, "seed": 3})
    files = files_of(Path("labels.models"), 2)
    paths = files.labels, files.model
    words = shlex.split(command_of(options, *paths, 720.0))
    written = ["labels.models/2/labels.json", "-o", "labels.models/2/model-2.lstr"]
    more = ["--time", "12m", "--flow", "dis", "--set", "epochs=2", "--set", "seed=3"]
    assert words == ["lstr", "learn", "my videos", "b's", *written, *more]
    assert "--time 100s" in command_of(options, *paths, 100.0)
    assert "--time" not in command_of(options, *paths, None)


def test_what_ran_when_all_was_killed_can_go_on(project):
    lessons = lessons_of(project, Lesson(1, 0.0, 2, 3), Lesson(4, 0.0, 2, 3, state=LEARNT, measured=MEASURED))
    assert [(one["number"], one["state"]) for one in lessons.describe()["lessons"]] == [(4, LEARNT), (1, STOPPED)]
    assert lessons.state() == {"version": 0, "number": None, "run": None}
    assert lessons.describe()["next"].endswith(f"{project.path} -o {project.path.with_name('labels.lstr')}")
    lessons.remove(1)
    assert not lessons.files(1).folder.exists() and lessons.state()["version"] == 1


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"number": "1"}', '{"number": 2, "begun": 0, "videos": 1, "labels": 1}']
)
def test_a_folder_that_no_learning_has_made_is_left_alone(project, content):
    folder = project.path.with_suffix(".models") / "1"
    folder.mkdir(parents=True)
    (folder / "lesson.json").write_text(content)
    assert lessons_of(project).describe()["lessons"] == []
    assert (folder / "lesson.json").read_text() == content


def test_of_old_models_the_files_stay_unless_they_have_a_name(project):
    several = [Lesson(number, 0.0, 1, 1, state=LEARNT, measured=MEASURED) for number in range(1, 6)]
    lessons = lessons_of(project, replace(several[0], name="the first"), *several[1:], kept=2)
    lessons._prune()
    has_parts = {number: lessons.files(number).parts.exists() for number in range(1, 6)}
    assert has_parts == {1: True, 2: False, 3: False, 4: True, 5: True}
    assert all(lessons.files(number).model.exists() for number in range(1, 6))


def test_names_and_numbers_that_are_none(project):
    lessons = lessons_of(
        project, Lesson(1, 0.0, 1, 1, state=LEARNT, measured=MEASURED), Lesson(2, 0.0, 1, 1, state=FAILED)
    )
    lessons.call(1, "  with the night  ")
    assert lessons.files(1).read().name == "with the night"
    for ask in (
        lambda: lessons.call(1, "x" * 201),
        lambda: lessons.call(1, "a\nb"),
        lambda: lessons.call(2, "failed"),
        lambda: lessons.remove(1),
        lambda: lessons.remove(9),
        lambda: lessons.go_on(1),
        lambda: lessons.use(2),
    ):
        with pytest.raises(RefusedError):
            ask()
    assert json.loads((lessons.files(2).folder / "lesson.json").read_text())["state"] == FAILED != LEARNING

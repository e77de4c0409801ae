"""What is trained on, the command that does it, its progress, its failures, and the models in the folder."""

import os
import shlex
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from lstr.errors import RequestError
from lstr.files.content import write_json
from lstr.labels.label_set import read_labels
from lstr.pipelines.labelling import training as module
from lstr.pipelines.labelling.document import to_document
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.training import Training, usable_for_training
from lstr.pipelines.labelling.values import NOTHING, About, Label
from lstr.pipelines.learning.workspace import Workspace
from tests.support.labelling import action, put
from tests.support.training_page import until, wait

SAY = "import json, os, sys, time\nsay = lambda text: print(text, file=sys.stderr, flush=True)"

SERVER = """
import os, socket, sys
from lstr.pipelines.labelling.training import start

process = start(["lstr", "bench"])  # which takes minutes
socket.send_fds(socket.socket(fileno=int(sys.argv[1])), [b"x"], [process.stderr.fileno()])
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def project(tmp_path):
    with Project(tmp_path / "labels.json") as opened:
        yield opened


@pytest.fixture
def labelled(project):
    """The project with a label."""
    put(project, Label(action(project, "fall"), 1, 2), "a", "x")
    return project


@pytest.fixture
def learn(monkeypatch):
    """Let a Python program be what `lstr learn` does; the commands that were started."""
    commands = []

    def replace(program: str) -> list[list[str]]:
        def start(command):
            commands.append(command)
            return subprocess.Popen([sys.executable, "-c", f"{SAY}\n{program}"], stderr=subprocess.PIPE, text=True)

        monkeypatch.setattr(module, "start", start)
        return commands

    return replace


def test_what_is_trained_on_is_what_is_labelled(project, tmp_path):
    fall = action(project, "fall")
    put(project, Label(fall, 1, 2), "labelled", "a")
    put(project, About(complete=True), "complete")
    put(project, Label(fall, 1), "begun", "b")
    put(project, About(comment="later"), "commented")
    put(project, Label(NOTHING, 1, 2), "nothing happens", "c")
    _, state = project.snapshot()
    kept = usable_for_training(state)
    assert set(kept.videos()) == {"labelled", "complete", "nothing happens"}
    write_json(tmp_path / "snapshot.json", to_document(kept, {name: 5.0 for name in state.videos()}, {"revision": 1}))
    read = read_labels(tmp_path / "snapshot.json")
    assert [s.label for s in read.videos["labelled"].segments].count("fall") == 1
    assert not read.videos["complete"].segments and set(read.videos) == set(kept.videos())


def test_nothing_labelled_is_one_sentence(project):
    put(project, About(complete=True), "a")
    training = Training(project, ["videos"])
    with pytest.raises(RequestError, match="Nothing is labelled yet"):
        training.begin()
    assert not training.folder.exists()


@pytest.mark.parametrize("seconds", [0.0, -60.0, 59.0, float("nan"), float("inf"), 1e9])
def test_a_time_limit_out_of_range_is_refused(labelled, seconds):
    with pytest.raises(RequestError, match="out of range"):
        Training(labelled, ["videos"]).begin(seconds)


def test_the_command_is_one_that_a_shell_takes(project):
    training = Training(project, ["my videos", "b's"], ["--set", "recipe.flow_algorithm=dis"])
    labels, model = Path("labels.models/2/labels.json"), Path("labels.models/2/model-2.lstr")
    words = ["lstr", "learn", "my videos", "b's", str(labels), "-o", str(model)]
    assert training.command(labels, model, 720.0) == [*words, "--time", "720s", "--set", "recipe.flow_algorithm=dis"]
    assert training.command(labels, model) == [*words, "--set", "recipe.flow_algorithm=dis"]
    assert shlex.split(training.describe()["command"])[2:4] == ["my videos", "b's"]
    assert training.report(2) == Workspace(training.model(2)).report


def test_a_damaged_model_is_neither_shown_nor_replaced(labelled, learn):
    commands = learn("sys.exit(1)")
    training = Training(labelled, ["videos"])
    training.model(1).parent.mkdir(parents=True)
    training.model(1).write_bytes(b"no model")
    (training.folder / "notes").mkdir()
    with Training(labelled, ["videos"]) as again:
        assert again.describe()["models"] == []
        again.begin()
        wait(again)
    assert commands[0][-1] == str(training.model(2))


def test_of_old_models_the_files_stay(project):
    training = Training(project, ["videos"])
    training._models = [{"number": number, "report": True} for number in range(8, 0, -1)]
    for number in range(1, 9):
        training.report(number).mkdir(parents=True)
        training.model(number).write_bytes(b"a model")
    (training.folder / "1" / "lesson.json").touch()
    training._prune()
    assert [number for number in range(1, 9) if training.report(number).exists()] == [1, 4, 5, 6, 7, 8]
    assert all(training.model(number).exists() for number in range(1, 9))


def test_progress_and_warnings_are_shown(labelled, learn):
    commands = learn(
        'say(json.dumps({"warning": "one example"}))\nsay("a library says something")\nsay("{no json")\n'
        'say(json.dumps({"step": 2, "steps": 7, "name": "train", "share": 0.5, "seconds_left": 60.0}))\n'
        'say(json.dumps({"notice": "a notice"}))\ntime.sleep(60)'
    )
    states = []
    with Training(labelled, ["videos"]) as training:
        training.listen(states.append)
        training.begin(120)
        with pytest.raises(RequestError, match="being trained already"):
            training.begin()
        until(lambda: states and states[-1]["progress"] and states[-1]["progress"]["step"] == 2, "the progress")
        shown = training.describe()
        assert shown["warnings"] == ["one example"] and shown["progress"]["share"] == 0.5
        training.stop()
        assert training.describe()["progress"] is None and training.describe()["error"] == ""
    ((_, _, _, labels, _, model, *limit),) = commands
    assert limit == ["--time", "120s"] and model == str(training.model(1)) and Path(labels).is_file()
    assert states[-1]["progress"] is None


@pytest.mark.parametrize(
    ("program", "error", "hint"),
    [
        ('say("error: Too few.")\nsay("hint: label more.")\nsys.exit(2)', "Too few.", "label more."),
        ("os.kill(os.getpid(), 9)", "ended unexpectedly (signal SIGKILL).", "memory"),
        ("sys.exit(1)", "ended unexpectedly (exit code 1).", "memory"),
    ],
)
def test_a_failure_is_an_error_with_a_hint(labelled, learn, program, error, hint):
    learn(program)
    trained = []
    with Training(labelled, ["videos"], on_trained=trained.append) as training:
        training.begin()
        state = wait(training)
        assert error in state["error"] and hint in state["hint"] and not state["models"] and not trained
        training.begin()
        assert training.describe()["error"] == "" and training.describe()["progress"]["number"] == 1


def test_it_ends_with_a_server_that_is_killed():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        words = [sys.executable, "-c", SERVER, str(theirs.fileno())]
        assert subprocess.run(words, pass_fds=[theirs.fileno()]).returncode == -signal.SIGKILL
        begun = monotonic()
        _, (written,), _, _ = socket.recv_fds(ours, 1, 1)
        with os.fdopen(written) as stream:
            stream.read()  # until nobody can write to it
    assert monotonic() - begun < 20

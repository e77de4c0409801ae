"""What a training is started with, its progress, its failures, and the models in the folder."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from lstr.errors import RequestError
from lstr.pipelines.labelling import training as module
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.labelling.values import NOTHING, About, Label
from lstr.pipelines.learning.plan import Workspace
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
    with Project(tmp_path / "labels.json", durations={"complete": 5.0}) as opened:
        yield opened


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


def test_it_trains_on_labelled_and_complete_videos(project, learn):
    commands = learn("sys.exit(1)")
    put(project, About(complete=True), "complete")
    with Training(project, ["my videos"], ["--set", "recipe.flow_algorithm=dis"]) as training:
        with pytest.raises(RequestError, match="Nothing is labelled yet"):
            training.begin()
        assert not training.folder.exists()
        fall = action(project, "fall")
        put(project, Label(fall, 1, 2), "labelled", "a")
        put(project, Label(fall, 1), "begun", "b")
        put(project, About(comment="later"), "commented")
        put(project, Label(NOTHING, 1, 2), "nothing happens", "c")
        for seconds in (0.0, -60.0, 59.0, float("nan"), float("inf"), 1e9):
            with pytest.raises(RequestError, match="out of range"):
                training.begin(seconds)
        training.model(1).parent.mkdir(parents=True)
        training.model(1).write_bytes(b"no model")  # a damaged one is neither shown nor replaced
        training.begin(720)
        assert wait(training)["models"] == []
        assert training.report(2) == Workspace(training.model(2)).report
        ((*words, labels, _, model, _, seconds, _, _),) = commands
        assert words == ["lstr", "learn", "my videos"] and model == str(training.model(2)) and seconds == "720s"
    content = json.loads(Path(labels).read_text())
    assert set(content["database"]) == {"labelled", "complete", "nothing happens"}


def test_progress_and_warnings_are_shown(project, learn):
    learn(
        'say(json.dumps({"warning": "one example"}))\nsay("a library says something")\nsay("{no json")\n'
        'say(json.dumps({"step": 2, "steps": 7, "name": "train", "share": 0.5, "seconds_left": 60.0}))\n'
        'say(json.dumps({"notice": "a notice"}))\ntime.sleep(60)'
    )
    put(project, Label(action(project, "fall"), 1, 2), "a", "x")
    with Training(project, ["videos"]) as training:
        training.begin(120)
        with pytest.raises(RequestError, match="being trained already"):
            training.begin()
        until(lambda: training.describe()["progress"]["step"] == 2, "the progress")
        shown = training.describe()
        assert shown["warnings"] == ["one example"] and shown["progress"]["share"] == 0.5
        training.stop()
        assert training.describe()["progress"] is None and training.describe()["error"] == ""


@pytest.mark.parametrize(
    ("program", "error", "hint"),
    [
        ('say("error: Too few.")\nsay("hint: label more.")\nsys.exit(2)', "Too few.", "label more."),
        ("os.kill(os.getpid(), 9)", "ended unexpectedly (signal SIGKILL).", "memory"),
        ("sys.exit(1)", "ended unexpectedly (exit code 1).", "memory"),
    ],
)
def test_a_failure_is_an_error_with_a_hint(project, learn, program, error, hint):
    learn(program)
    put(project, Label(action(project, "fall"), 1, 2), "a", "x")
    trained = []
    with Training(project, ["videos"], on_trained=trained.append) as training:
        training.begin()
        state = wait(training)
        assert error in state["error"] and hint in state["hint"] and not state["models"] and not trained
        training.begin()
        assert training.describe()["error"] == "" and training.describe()["progress"]["number"] == 1


def test_old_models_are_kept_without_their_working_folders(project, learn):
    learn("sys.exit(0)")
    put(project, Label(action(project, "fall"), 1, 2), "a", "x")
    with Training(project, ["videos"]) as training:
        for number in range(1, 9):
            training.report(number).mkdir(parents=True)
            training.model(number).write_bytes(b"a model")
        training.begin()
        wait(training)
        assert [number for number in range(1, 9) if training.report(number).exists()] == [4, 5, 6, 7, 8]
        assert all(training.model(number).exists() for number in range(1, 9))


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

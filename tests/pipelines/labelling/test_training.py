"""Training from the page: its labels, progress and failures, and the models in the folder."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lstr.errors import RequestError
from lstr.pipelines.labelling import training as module
from lstr.pipelines.labelling.label import label
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.labelling.values import NOTHING, About, Label
from lstr.pipelines.learning.plan import Workspace
from tests.support.documents import parse
from tests.support.labelling import action, put
from tests.support.requests import Visitor
from tests.support.waiting import wait_until


@pytest.fixture
def labelled(project):
    """The project with one labelled action."""
    put(project, Label(action(project, "fall"), 1, 2), "a", "x")
    return project


@pytest.fixture
def learn(monkeypatch):
    """Run a Python program instead of `lstr learn`: learn(program) -> the list of commands that are started."""

    def replace(program: str) -> list[list[str]]:
        commands = []
        words = [sys.executable, "-c", f"import os, signal, sys, time\n{program}"]

        def start(command):
            commands.append(command)
            return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)

        monkeypatch.setattr(module, "start", start)
        return commands

    return replace


def wait(training: Training) -> dict:
    """Wait until a training has ended; return the state."""
    wait_until(lambda: training.describe()["progress"] is None)
    return training.describe()


def test_labelled_and_complete_videos_are_used(project, learn):
    commands = learn("sys.exit(1)")
    put(project, About(complete=True), "complete")
    with Training(project, ["my videos"]) as training:
        with pytest.raises(RequestError):
            training.begin()
        assert not training.folder.exists()
        fall = action(project, "fall")
        put(project, Label(fall, 1, 2), "labelled", "a")
        put(project, Label(fall, 1), "without an end", "b")
        put(project, About(comment="later"), "commented")
        put(project, Label(NOTHING, 1, 2), "nothing happens", "c")
        training.model(1).parent.mkdir(parents=True)
        training.model(1).write_bytes(b"no model")  # a damaged model is neither listed nor replaced
        training.begin(720)
        assert wait(training)["models"] == []
        assert training.report(2) == Workspace(training.model(2)).report
        ((*words, labels, _, model, _, seconds),) = commands
        parse(commands[0][1:])
        assert words == ["lstr", "learn", "my videos"] and model == str(training.model(2)) and seconds == "720s"
    database = json.loads(Path(labels).read_text())["database"]
    assert set(database) == {"labelled", "complete", "nothing happens"}


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ('sys.exit(print("error: Too few.\\nhint: label more.", file=sys.stderr) or 2)', "Too few."),
        ("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("sys.exit(1)", "1"),
    ],
)
def test_a_failure_is_an_error_with_a_hint(labelled, learn, program, error):
    learn(program)
    models = []
    with Training(labelled, ["videos"], on_trained=models.append) as training:
        training.begin()
        state = wait(training)
        assert error in state["error"] and state["hint"] and not state["models"] and not models
        training.begin()
        assert training.describe()["error"] == "" and training.describe()["progress"]["number"] == 1


@pytest.mark.long
def test_the_error_of_the_real_command_is_shown(labelled, monkeypatch):
    monkeypatch.setattr(module, "PRIORITY", 0)
    with Training(labelled, ["no-such-video.mp4"]) as training:
        training.begin()
        state = wait(training)
        assert "no-such-video.mp4" in state["error"] and state["hint"] and not state["models"]


def test_working_folders_of_old_models_are_removed(labelled, learn):
    learn("sys.exit(0)")
    with Training(labelled, ["videos"]) as training:
        for number in range(1, 9):
            training.report(number).mkdir(parents=True)
            training.model(number).write_bytes(b"a model")
        training.begin()
        wait(training)
        assert [number for number in range(1, 9) if training.report(number).exists()] == [4, 5, 6, 7, 8]
        assert all(training.model(number).exists() for number in range(1, 9))


def test_tabs_share_the_training(learn, tmp_path):
    progress = {"step": 2, "steps": 7, "name": "train", "share": 0.5}
    lines = [json.dumps({"warning": "one example"}), "a message of a library", "{no json", json.dumps(progress)]
    learn(f"print({chr(10).join(lines)!r}, file=sys.stderr, flush=True)\ntime.sleep(600)")
    (tmp_path / "a.mp4").write_bytes(b"no video")
    with label([str(tmp_path)]) as labelling:
        put(labelling.project, Label(action(labelling.project, "fall"), 1, 2), "a", "x")
        tab, other_tab = (Visitor(labelling.server.address) for _ in range(2))
        for body in ({"seconds": "x"}, {"seconds": True}, {"seconds": 59}, {"seconds": 1e9}):
            assert tab.ask("/training/begin", body).status == 400, body
        assert tab.ask("/training/begin", {"seconds": None}).json["progress"]["number"] == 1
        wait_until(lambda: labelling.training.describe()["progress"]["step"] == 2)
        state = labelling.training.describe()
        assert state["warnings"] == ["one example"] and state["progress"]["share"] == 0.5
        refused = other_tab.ask("/training/begin", {"seconds": None})
        assert refused.status == 400 and refused.json["error"]
        assert other_tab.ask("/training/stop", {}).json["progress"] is None
        folder = labelling.training.report(1)
        folder.mkdir(parents=True)
        (folder / "evaluation.json").write_text("{}")
        document = {"models": [{"videos": [{"id": "a", "video": None}]}]}
        page = f'<script type="application/json" id="data">{json.dumps(document)}</script>'
        (folder / "report.html").write_text(page)
        (folder.parent / "plan.json").write_text("{}")
        answer = tab.ask("/training/1/report/evaluation.json")
        assert answer.headers["content-security-policy"].startswith("default-src 'none'") and answer.body == b"{}"
        report = tab.ask("/training/1/report/report.html")
        assert b'"video":"/film/0?wait"' in report.body
        assert report.headers["content-security-policy"] == "frame-ancestors 'none'"
        for path in ("1/report/../plan.json", "1/report/%2e%2e/plan.json", "9/report/evaluation.json", "1/report/"):
            assert tab.ask(f"/training/{path}").status == 404, path

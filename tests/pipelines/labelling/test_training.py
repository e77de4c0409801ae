"""What a training is started with, its progress and failures, the models in the folder; and real ones (slow)."""

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
from lstr.pipelines.labelling.label import label
from lstr.pipelines.labelling.project import Project
from lstr.pipelines.labelling.training import Training
from lstr.pipelines.labelling.values import NOTHING, About, Label
from lstr.pipelines.learning.plan import Workspace
from tests.support.labelling import action, put
from tests.support.learning import SMALL, write_videos
from tests.support.patience import until
from tests.support.requests import Visitor

SETTINGS = {**SMALL, "draws": "24", "train.epochs": "2", "learn.folds": "2", "recipe.flow_algorithm": "dis"}
OPTIONS = ("--recipe", "fast", "--set", "recipe.stream=flow")
OPTIONS += tuple(word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}"))
LONG = 300.0  # seconds that a training may take on a machine with other work

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


def wait(training: Training) -> dict:
    """Wait until nothing is trained any more; the state."""
    until(lambda: training.describe()["progress"] is None, LONG)
    return training.describe()


def test_it_trains_on_labelled_and_complete_videos(project, learn):
    commands = learn("sys.exit(1)")
    put(project, About(complete=True), "complete")
    with Training(project, ["my videos"], ["--set", "recipe.flow_algorithm=dis"]) as training:
        with pytest.raises(RequestError):
            training.begin()
        assert not training.folder.exists()
        fall = action(project, "fall")
        put(project, Label(fall, 1, 2), "labelled", "a")
        put(project, Label(fall, 1), "begun", "b")
        put(project, About(comment="later"), "commented")
        put(project, Label(NOTHING, 1, 2), "nothing happens", "c")
        for seconds in (0.0, -60.0, 59.0, float("nan"), float("inf"), 1e9):
            with pytest.raises(RequestError):
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


@pytest.mark.parametrize(
    ("program", "error"),
    [
        ('say("error: Too few.")\nsay("hint: label more.")\nsys.exit(2)', "Too few."),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
        ("sys.exit(1)", "1"),
    ],
)
def test_a_failure_is_an_error_with_a_hint(project, learn, program, error):
    learn(program)
    put(project, Label(action(project, "fall"), 1, 2), "a", "x")
    trained = []
    with Training(project, ["videos"], on_trained=trained.append) as training:
        training.begin()
        state = wait(training)
        assert error in state["error"] and state["hint"] and not state["models"] and not trained
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


def test_tabs_see_one_training_and_the_files_of_its_report_alone(learn, tmp_path):
    learn(
        'say(json.dumps({"warning": "one example"}))\nsay("a library says something")\nsay("{no json")\n'
        'say(json.dumps({"step": 2, "steps": 7, "name": "train", "share": 0.5}))\ntime.sleep(600)'
    )
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "a.mp4").write_bytes(b"no video")
    with label([str(tmp_path / "videos")], tmp_path / "labels.json") as labelling:
        put(labelling.project, Label(action(labelling.project, "fall"), 1, 2), "a", "x")
        one, other = (Visitor(labelling.server.address) for _ in range(2))
        for body in ({"seconds": "x"}, {"seconds": True}, {"seconds": 1}):
            assert one.ask("/training/begin", body).status == 400, body
        assert one.ask("/training/begin", {"seconds": None}).json["progress"]["number"] == 1
        until(lambda: labelling.training.describe()["progress"]["step"] == 2)
        shown = labelling.training.describe()
        assert shown["warnings"] == ["one example"] and shown["progress"]["share"] == 0.5
        refused = other.ask("/training/begin", {"seconds": None})
        assert refused.status == 400 and refused.json["error"]
        assert other.ask("/training/stop", {}).json["progress"] is None
        folder = labelling.training.report(1)
        folder.mkdir(parents=True)
        (folder / "evaluation.json").write_text("{}")
        (folder.parent / "plan.json").write_text("{}")
        answer = one.ask("/training/1/report/evaluation.json")
        assert answer.headers["content-security-policy"].startswith("default-src 'none'") and answer.body == b"{}"
        for path in ("1/report/../plan.json", "1/report/%2e%2e/plan.json", "9/report/evaluation.json", "1/report/"):
            assert one.ask(f"/training/{path}").status == 404, path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with videos, and a project on which a model was trained."""
    root = tmp_path_factory.mktemp("drawn ones")
    write_videos(root)
    content = json.loads((root / "labels.json").read_text())
    for entry in content["database"].values():
        entry.pop("subset", None)
    (root / "labels.json").write_text(json.dumps(content))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSTR_HOME", str(root / "home"))
        patch.setenv("OMP_NUM_THREADS", "1")  # threads have a part in the bits
        with serve(root, root / "out" / "labels.json") as labelling:
            labelling.training.begin()
            state = wait(labelling.training)
            assert [one["number"] for one in state["models"]] == [1], state
    return root


def serve(root: Path, output: Path):
    """Serve a project in `output` that is resumed, or begins with the labels of `root`."""
    labels = () if output.exists() else (str(root / "labels.json"),)
    return label([str(root / "videos")], output, labels, training=OPTIONS)


@pytest.mark.slow
def test_the_model_is_the_one_that_the_command_makes_and_a_cancelled_one_resumes(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("LSTR_HOME", str(trained / "home"))
    folder, labels = trained / "out" / "labels.models", trained / "out" / "labels.json"
    with serve(trained, labels) as labelling:
        (described,) = labelling.training.describe()["models"]
        command = labelling.training.command(folder / "1" / "labels.json", tmp_path / "again" / "model-1.lstr")
    words = [sys.executable, "-m", "lstr_cli", *command[1:]]
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    model = folder / "1" / "model-1.lstr"
    assert (tmp_path / "again" / "model-1.lstr").read_bytes() == model.read_bytes(), "to the bit"
    assert all(line in out for line in described["result"]) and described["report"]
    with serve(trained, labels) as labelling:
        report = Visitor(labelling.server.address).ask("/training/1/report/report.html")
        assert b'"video":"/film/0?wait"' in report.body
        assert report.headers["content-security-policy"] == "frame-ancestors 'none'"
        labelling.training.begin()
        until(lambda: (labelling.training.describe()["progress"] or {"step": 99})["step"] >= 2, LONG)
    plan = folder / "2" / "model-2.learn" / "plan.json"
    before = plan.read_bytes()
    with serve(trained, labels) as labelling:
        labelling.training.begin()
        state = wait(labelling.training)
        assert [one["number"] for one in state["models"]] == [2, 1] and not state["error"], state
        assert state["models"][0]["result"] == state["models"][1]["result"], "the same labels make the same model"
    assert json.loads(plan.read_bytes()) == json.loads(before), "which was not planned again"

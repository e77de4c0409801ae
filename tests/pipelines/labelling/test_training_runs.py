"""Real trainings of drawn videos from a labels project: what the command makes, cancelled, killed, from two tabs."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from time import monotonic

import pytest

from lstr.pipelines.labelling.values import About
from tests.support import browser
from tests.support.labelling import put
from tests.support.processes import heed_interrupts
from tests.support.requests import Visitor
from tests.support.training_page import serve, until, wait, wait_for_step, write_labelled

pytestmark = pytest.mark.slow
VIDEOS = 6


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads have a part in the bits, and two trainings on a machine with other work may plan different numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def trained(one_thread, tmp_path_factory):
    """A folder with videos, and a project on which a model was trained; the models that were reported."""
    root = write_labelled(tmp_path_factory.mktemp("drawn ones"))
    reported: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSTR_HOME", str(root / "home"))
        with serve(root, root / "out" / "labels.json") as labelling:
            labelling.training.on_trained = reported.append
            labelling.training.begin()
            state = wait(labelling.training)
            assert [one["number"] for one in state["models"]] == [1], state
    return root, reported


@pytest.fixture
def root(trained, tmp_path, monkeypatch):
    """A copy of that project to go on with, and the cache of its frames."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "chunks").symlink_to(trained[0] / "home" / "chunks")
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))
    shutil.copytree(trained[0] / "out", tmp_path / "out")
    return trained[0], tmp_path / "out" / "labels.json"


def test_the_model_is_the_one_that_the_command_makes(trained, root, tmp_path):
    folder = trained[0] / "out" / "labels.models"
    model = folder / "1" / "model-1.lstr"
    assert trained[1] == [model], "who waits for it is told"
    with serve(*root) as labelling:
        (described,) = labelling.training.describe()["models"]
        command = labelling.training.command(folder / "1" / "labels.json", tmp_path / "again" / "model-1.lstr")
    words = [sys.executable, "-m", "lstr_cli", *command[1:]]
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert (tmp_path / "again" / "model-1.lstr").read_bytes() == model.read_bytes(), "to the bit"
    assert all(line in out for line in described["result"]) and f"of {VIDEOS} actions" in out
    assert described["report"]


def test_what_is_cancelled_resumes_after_a_restart(root):
    with serve(*root) as labelling:
        labelling.training.begin()
        wait_for_step(labelling.training, 2)
        begun = monotonic()
    assert monotonic() - begun < 15, "Ctrl-C ends it within seconds"
    plan = root[1].with_suffix(".models") / "2" / "model-2.learn" / "plan.json"
    before = plan.read_bytes()
    with serve(*root) as labelling:
        training = labelling.training
        assert [one["number"] for one in training.describe()["models"]] == [1]
        training.begin()
        state = wait(training)
        assert [one["number"] for one in state["models"]] == [2, 1] and not state["error"], state
        assert state["models"][0]["result"] == state["models"][1]["result"], "the same labels make the same model"
    assert json.loads(plan.read_bytes()) == json.loads(before), "which was not planned again"


def child_of(pid: int) -> int:
    """The process that trains, among those of a process."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            if b"learn" in Path(f"/proc/{child}/cmdline").read_bytes().split(b"\0"):
                return child
    raise AssertionError("nothing is trained")


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_labels_that_are_too_few_are_one_sentence(root, tmp_path):
    with serve(root[0], tmp_path / "few.json") as labelling:
        for video in list(labelling.project.state.labels)[1:]:
            put(labelling.project, About(), video)
            for key in list(labelling.project.state.labels[video]):
                put(labelling.project, None, video, key)
        labelling.training.begin()
        failed = wait(labelling.training)
        assert failed["error"].endswith(".") and failed["hint"] and "Traceback" not in failed["error"], failed


SERVE = """
import sys
from pathlib import Path
from tests.support.training_page import serve, wait_for_step

with serve(Path(sys.argv[1]), Path(sys.argv[2])) as labelling:
    labelling.training.begin()
    wait_for_step(labelling.training, 1)
    print("training", flush=True)
    labelling.server.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_server_that_ends_takes_its_training_with_it(root, number):
    words = [sys.executable, "-c", SERVE, *map(str, root)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts) as server:
        assert server.stdout.readline() == "training\n"
        child = child_of(server.pid)
        assert is_there(child)
        server.send_signal(number)
        begun = monotonic()
        server.wait(30)
        assert number == signal.SIGKILL or monotonic() - begun < 15
        until(lambda: not is_there(child), "the end of the process that trains")
    with serve(*root) as labelling:
        assert [one["number"] for one in labelling.training.describe()["models"]] == [1]


def events(labelling, visitor):
    connection = socket.create_connection(("127.0.0.1", labelling.server.port), 60)
    host = f"127.0.0.1:{labelling.server.port}"
    since = labelling.project.revision
    head = f"GET /events?since={since} HTTP/1.1\r\nhost: {host}\r\ncookie: {visitor.cookie}\r\n\r\n"
    connection.sendall(head.encode())
    return connection.makefile("r", encoding="utf-8", newline="\n")


def states(stream):
    for line in stream:
        if line.startswith("data: {") and '"progress"' in line:
            yield json.loads(line[6:])


def test_two_tabs_see_one_training_and_its_report(root):
    with serve(*root) as labelling:
        one, other = (Visitor(labelling.server.address) for _ in range(2))
        stream = states(events(labelling, other))
        first = next(stream)
        assert first["progress"] is None and shlex.split(first["command"])[:2] == ["lstr", "learn"]
        assert one.ask("/training/begin", {"seconds": None}).json["progress"]["number"] == 2
        refused = other.ask("/training/begin", {"seconds": None})
        assert refused.status == 400 and "already" in refused.json["error"]
        shown = next(state for state in stream if state["progress"] and state["progress"]["step"])
        assert shown["progress"]["steps"] == 7 and shown["progress"]["seconds_left"] > 0
        assert any("example" in text for text in shown["warnings"])
        assert other.ask("/training/stop", {}).json["progress"] is None
        report = one.ask("/training/1/report/report.html")
        assert report.status == 200 and b'"video":"/film/0?wait"' in report.body
        assert report.headers["content-security-policy"] == "frame-ancestors 'none'"
        evaluation = one.ask("/training/1/report/evaluation.json")
        assert evaluation.headers["content-security-policy"].startswith("default-src 'none'")
        for path in (
            "1/report/../plan.json",
            "1/report/%2e%2e/plan.json",
            "9/report/report.html",
            "1/report/",
            "1/report//etc/passwd",
        ):
            assert one.ask(f"/training/{path}").status == 404, path
        for body in ({"seconds": "x"}, {"seconds": True}, {"seconds": 1}):
            assert one.ask("/training/begin", body).status == 400, body
        assert os.path.exists(root[1])


@pytest.fixture
def labelling(tmp_path):
    root = write_labelled(tmp_path)
    with serve(root, root / "out" / "labels.json") as opened:
        yield opened


def test_a_model_is_trained_from_the_page(labelling, tab):
    """The button, the progress, a reload on the way, a label meanwhile, and the result, all in real."""
    page = tab()
    page.focus("#train")
    page.keyboard.press("Enter")
    browser.until(page, "!$('train-run').hidden")
    assert page.evaluate("document.activeElement.id") == "train-stop"
    page.wait_for_selector("#train-left:has-text('left in all')", timeout=300_000)
    page.reload()
    page.wait_for_selector("#train-left:has-text('left in all')", timeout=300_000)
    before = page.evaluate("Object.keys(labelsOf()).length")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("n")
    browser.until(page, f"Object.keys(labelsOf()).length === {before + 1} && !asked.length")
    page.wait_for_selector("#model-1", timeout=300_000)
    assert " ".join(page.locator("#model-1").inner_text().split()).startswith("Model 1 · Report Caught ")
    browser.until(page, "search.model === 'model-1.lstr'")
    with page.expect_popup() as opened:
        page.click("text=Report")
    report = opened.value
    browser.until(report, "document.querySelector('video') && document.querySelector('video').readyState > 0")

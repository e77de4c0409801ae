"""Real learnings of drawn videos from a labels project: what the command makes, stopped, killed, from two tabs."""

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest

from lstr.extractors.home import default_model
from lstr.pipelines.evaluation.held_out import read_held_out
from lstr.pipelines.labelling.job import label
from lstr.pipelines.labelling.lesson import FAILED, LEARNT, STOPPED
from lstr.pipelines.labelling.lesson_comparison import with_scores
from lstr.pipelines.labelling.values import About, Label
from tests.support.labelling import put
from tests.support.lessons import newest, options, until, wait, wait_for_step, write_labelled
from tests.support.processes import heed_interrupts
from tests.support.requests import Visitor

pytestmark = pytest.mark.slow
VIDEOS = 6


@pytest.fixture(scope="module", autouse=True)
def one_thread():
    """Threads have a part in the bits, and two learnings on a machine with other work may plan different numbers."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield


@pytest.fixture(scope="module")
def learnt(one_thread, tmp_path_factory):
    """A folder with videos, and a project of which a model was learnt; the models that were told of."""
    root = write_labelled(tmp_path_factory.mktemp("drawn ones"))
    told: list[Path] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LSTR_HOME", str(root / "home"))
        with label(options(root, root / "out" / "labels.json")) as labelling:
            labelling.lessons.on_learnt = told.append
            labelling.lessons.begin()
            assert wait(labelling.lessons).state == LEARNT
    return root, told


@pytest.fixture
def root(learnt, tmp_path, monkeypatch):
    """A copy of that project to go on with, and the cache of its frames."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "chunks").symlink_to(learnt[0] / "home" / "chunks")
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))
    shutil.copytree(learnt[0] / "out", tmp_path / "out")
    return learnt[0], tmp_path / "out" / "labels.json"


def test_the_model_is_the_one_that_the_command_makes(learnt, root, tmp_path):
    folder = learnt[0] / "out" / "labels.models"
    with label(options(*root)) as labelling:
        described = labelling.lessons.describe()["lessons"][0]
    model = folder / "1" / "model-1.lstr"
    assert learnt[1] == [model], "who waits for it is told"
    words = [sys.executable, "-m", "lstr_cli", *shlex.split(described["command"])[1:]]
    words[words.index("-o") + 1] = str(tmp_path / "again" / "model-1.lstr")
    out = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert (tmp_path / "again" / "model-1.lstr").read_bytes() == model.read_bytes(), "to the bit"
    measured = described["measured"]
    assert measured["sentence"] in out and measured["split"] in out.lower()
    assert measured["together"]["labels"] == sum(one["labels"] for one in measured["actions"].values()) == VIDEOS
    held_out = read_held_out(folder / "1" / "model-1.learn" / "report" / "held-out.npz")
    assert len(held_out.scores) == measured["videos"] == VIDEOS, "each by what lacked it"
    assert described["report"] and not described["used"] and described["labels"] == VIDEOS


def test_what_is_stopped_goes_on_after_a_restart_and_is_compared(root):
    with label(options(*root)) as labelling:
        lessons = labelling.lessons
        video = "day 1/scene_00"
        key, first = next(iter(labelling.project.state.labels[video].items()))
        put(labelling.project, Label(first.action, first.start, first.end, comment="looked at"), video, key)
        lessons.begin()
        with pytest.raises(Exception, match="learnt already"):
            lessons.begin()
        wait_for_step(lessons, 2)
        begun = monotonic()
    assert monotonic() - begun < 15, "Ctrl-C ends it within seconds"
    with label(options(*root)) as labelling:
        lessons = labelling.lessons
        assert newest(lessons).number == 2 and lessons.describe()["lessons"][0]["state"] == STOPPED
        lessons.go_on(2)
        second = wait(lessons)
        assert second.state == LEARNT and second.measured == lessons.files(1).read().measured
        differences = second.differences
        assert differences["old"] == 1 and len(differences["videos"]) == VIDEOS
        assert differences["verdict"]["mAP"]["difference"] == 0 and "model 2" in differences["verdict"]["sentence"]
        assert not differences["caught"] and not differences["come"], "the same labels make the same model"
        lessons.use(2)
        assert default_model().read_bytes() == lessons.files(2).model.read_bytes()
        assert [one["used"] for one in lessons.describe()["lessons"]] == [True, False]


def child_of(pid: int) -> int:
    """The process that learns, among those of a process."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            if b"lesson_process" in Path(f"/proc/{child}/cmdline").read_bytes():
                return child
    raise AssertionError("nothing learns")


def is_there(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_process_that_dies_is_one_sentence(root):
    with label(options(*root)) as labelling:
        labelling.lessons.begin()
        wait_for_step(labelling.lessons, 1)
        os.kill(child_of(os.getpid()), signal.SIGKILL)
        failed = wait(labelling.lessons)
        assert failed.state == FAILED and "SIGKILL" in failed.error and failed.hint
        labelling.lessons.remove(failed.number)
        assert newest(labelling.lessons).number == 1


def test_labels_that_cannot_teach_are_one_sentence(root, tmp_path):
    chosen = options(root[0], tmp_path / "few.json")
    with label(chosen) as labelling:
        for video in list(labelling.project.state.labels)[1:]:
            put(labelling.project, About(), video)
            for key in list(labelling.project.state.labels[video]):
                put(labelling.project, None, video, key)
        labelling.lessons.begin()
        failed = wait(labelling.lessons)
        assert failed.state == FAILED and failed.error.endswith(".") and failed.hint, failed


SERVE = """
import sys
from pathlib import Path
from lstr.pipelines.labelling.job import label
from tests.support.lessons import options, wait_for_step

with label(options(Path(sys.argv[1]), Path(sys.argv[2]))) as labelling:
    labelling.lessons.begin()
    wait_for_step(labelling.lessons, 1)
    print("learning", flush=True)
    labelling.server.wait()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_server_that_ends_takes_its_learning_with_it(root, number):
    words = [sys.executable, "-c", SERVE, *map(str, root)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, preexec_fn=heed_interrupts) as server:
        assert server.stdout.readline() == "learning\n"
        child = child_of(server.pid)
        assert is_there(child)
        server.send_signal(number)
        begun = monotonic()
        server.wait(30)
        assert number == signal.SIGKILL or monotonic() - begun < 15
        until(lambda: not is_there(child), "the end of the process that learns")
    with label(options(*root)) as labelling:
        assert newest(labelling.lessons).number == 2 and labelling.lessons.describe()["lessons"][0]["state"] == STOPPED


def events(labelling, visitor):
    connection = socket.create_connection(("127.0.0.1", labelling.server.port), 60)
    host = f"127.0.0.1:{labelling.server.port}"
    since = labelling.project.revision
    head = f"GET /events?since={since} HTTP/1.1\r\nhost: {host}\r\ncookie: {visitor.cookie}\r\n\r\n"
    connection.sendall(head.encode())
    return connection.makefile("r", encoding="utf-8", newline="\n")


def states(stream):
    for line in stream:
        if line.startswith("data: {") and '"version"' in line:
            yield json.loads(line[6:])


def test_two_tabs_see_one_learning_and_its_report(root):
    with label(options(*root)) as labelling:
        one, other = (Visitor(labelling.server.address) for _ in range(2))
        stream = states(events(labelling, other))
        assert next(stream)["run"] is None
        assert one.ask("/lessons/begin", {"seconds": None}).json["number"] == 2
        refused = other.ask("/lessons/begin", {"seconds": None})
        assert refused.status == 400 and "already" in refused.json["error"]
        shown = next(state for state in stream if state["run"] and state["run"]["number"])
        assert shown["number"] == 2 and len(shown["run"]["steps"]) == 7 and shown["run"]["left"] > 0
        assert any("example" in text for text in shown["run"]["warnings"])
        assert other.ask("/lessons/stop", {}).json["run"] is None
        assert one.ask("/lessons/remove", {"number": 2}).status == 200
        report = one.ask("/lessons/1/report/report.html")
        assert report.status == 200 and b'"video":"/film/0?wait"' in report.body
        assert report.headers["content-security-policy"] == "frame-ancestors 'none'"
        assert (
            one.ask("/lessons/1/report/evaluation.json")
            .headers["content-security-policy"]
            .startswith("default-src 'none'")
        )
        for path in (
            "1/report/../lesson.json",
            "1/report/%2e%2e/lesson.json",
            "9/report/report.html",
            "1/report/",
            "1/report//etc/passwd",
        ):
            assert one.ask(f"/lessons/{path}").status == 404, path
        for deed, body in (
            ("begin", {"seconds": "x"}),
            ("begin", {"seconds": True}),
            ("go-on", {}),
            ("x", {}),
            ("name", {"number": 1}),
        ):
            assert one.ask(f"/lessons/{deed}", body).status == 400, deed


def test_a_video_that_only_the_later_model_was_measured_on_is_compared_too(root, tmp_path):
    folder, content = root[0], json.loads((root[0] / "labels.json").read_text())
    later = sorted(content["database"])[-2:]
    (tmp_path / "some.json").write_text(
        json.dumps({**content, "database": {i: one for i, one in content["database"].items() if i not in later}})
    )
    given = replace(options(folder, tmp_path / "new" / "labels.json"), labels=[str(tmp_path / "some.json")])
    with label(given) as labelling:
        lessons, project = labelling.lessons, labelling.project
        lessons.begin()
        assert wait(lessons).state == LEARNT
        ids = {action.name: key for key, action in project.state.actions.items()}
        for video in later:
            for at, one in enumerate(content["database"][video]["annotations"]):
                put(project, Label(ids[one["label"]], *one["segment"]), video, f"label {at}")
            put(project, About(complete=True), video)
        lessons.begin()
        differences = wait(lessons).differences
    assert set(differences["videos"]) == content["database"].keys(), "the first model has seen none of them"
    measured = read_held_out(lessons.files(1).report / "held-out.npz")
    assert not measured.scores.keys() & set(later)
    model, videos = lessons.files(1).model, {i: folder / "videos" / f"{i}.mp4" for i in later}
    command = [sys.executable, "-m", "lstr_cli", "detect", *map(str, videos.values()), "-m", str(model)]
    subprocess.run([*command, "-o", str(tmp_path / "timeline"), "-f", "json"], check=True)
    scored = with_scores(measured, model, videos)
    for video in later:
        (file,) = (tmp_path / "timeline").rglob(f"{Path(video).name}.json")
        detected = [(one["label"], *one["segment"]) for one in json.loads(file.read_text())["segments"]]
        found = [(one.label, one.start, one.end) for one in scored.detections[video]]
        assert found == [tuple(one) for one in detected], "what lstr detect finds"

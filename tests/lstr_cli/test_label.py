"""`lstr label` as a person runs it: its address, its end, and its mistakes."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lstr.pipelines.labelling.project import Project
from tests.support.processes import heed_interrupts
from tests.support.requests import Visitor
from tests.support.videos import write_video


@pytest.fixture
def videos(tmp_path):
    (tmp_path / "videos").mkdir()
    write_video(tmp_path / "videos" / "a.mp4", range(0, 400, 20))
    return tmp_path / "videos"


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_serves_saves_and_ends(videos, tmp_path, number):
    words = [sys.executable, "-m", "lstr_cli", "label", str(videos), "--no-browser", "-o", str(tmp_path / "l.json")]
    own = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own, preexec_fn=heed_interrupts
    ) as labelling:
        address = labelling.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:") and "token=" in address
        visitor = Visitor(address)
        change = {"kind": "about", "video": "a", "key": "", "before": None, "after": {"complete": True}}
        assert visitor.ask("/change", {"id": "12345678", "changes": [change]}).status == 200
        began = time.monotonic()
        labelling.send_signal(number)
        out, err = labelling.communicate(timeout=60)
        took = time.monotonic() - began
    assert labelling.returncode == 0 and "Traceback" not in err
    assert f"next: lstr learn {videos} {tmp_path / 'l.json'}" in err and took < 60
    assert json.loads((tmp_path / "l.json").read_text())["database"]["a"]["complete"] is True


def test_a_table_of_unknown_columns_is_an_error_with_the_command(lstr, videos):
    """Its own files next to the videos are not reported as files that are no videos."""
    (videos / "ark.csv").write_text("aanvang;einde;gedrag\n0,5;1,5;vallen\n")
    (videos / "labels.json.journal").touch()
    code, _, err = lstr("label", videos, "--no-browser", "--labels", videos / "ark.csv", "-o", videos)
    assert code == 2 and "lstr labels convert" in err and "--columns" in err and ": skipped " not in err
    assert not (videos / "labels.json").exists()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_the_search_for_proposals_ends_with_it(small_set, tmp_path, number):
    """Before its end a proposal is decided: that is there when it is run again, and no process is left."""
    words = [sys.executable, "-m", "lstr_cli", "label", str(small_set.videos), "--no-browser", "-m"]
    words += [str(small_set.checkpoint), "-o", str(tmp_path / "l.json")]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, preexec_fn=heed_interrupts
    ) as labelling:
        visitor = Visitor(labelling.stdout.readline().strip())
        order = []
        for _ in range(1200):
            told = json.loads(visitor.ask("/proposals?order=in%20time").body)
            if order := told["order"]:
                break
            time.sleep(0.1)
        assert told["search"]["is_running"]
        (search,) = children_of(labelling.pid)
        decision = {"decision": "accept", "video": "scene_00", "key": order[0][1], "label_key": "12345678"}
        assert visitor.ask("/decide", {"id": "decision-1", **decision}).status == 200
        assert visitor.ask("/decide", {"id": "decision-1", **decision}).status == 200, "the same again"
        assert visitor.ask("/decide", {"id": "decision-2", **decision}).status == 400
        labelling.send_signal(number)
        labelling.wait(timeout=60)
    for _ in range(200):
        if not os.path.exists(f"/proc/{search}"):
            break
        time.sleep(0.1)
    assert not os.path.exists(f"/proc/{search}")
    with Project(tmp_path / "l.json") as project:
        states = [one.state for one in project.state.proposals["scene_00"].values()]
        assert "accepted" in states and len(project.state.labels["scene_00"]) == 1


def children_of(pid: int) -> list[int]:
    """The processes that a process has started, whichever of its threads did."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for text in lists for child in text.read_text().split()]


def test_ctrl_c_before_there_is_a_page_ends_as_everywhere(lstr, videos, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("lstr.pipelines.labelling.label.footage_of_files", interrupted)
    code, out, err = lstr("label", videos, "--no-browser")
    assert code == 130 and out == "" and "error: Interrupted." in err and "next:" not in err


@pytest.mark.parametrize(
    ("more", "sentence", "hint"),
    [
        (["-o", "labels.csv"], "labels.csv is not the name of a labels file", "ending in .json with -o"),
        (["--labels", "nowhere.csv"], "nowhere.csv", "path of the labels"),
        (["--port", "0"], "0 is not in the range", ""),
    ],
)
def test_mistakes_are_one_sentence(lstr, videos, tmp_path, monkeypatch, more, sentence, hint):
    monkeypatch.chdir(tmp_path)
    code, out, err = lstr("label", videos, "--no-browser", *more)
    assert code == 2 and out == "" and sentence in err and hint in err


def test_a_model_that_is_not_there_is_said_before_anything_begins(lstr, videos, tmp_path):
    code, out, err = lstr("label", videos, "--no-browser", "-m", tmp_path / "nowhere.lstr")
    assert code == 4 and out == "" and "Model file not found" in err and "hint: name a model file" in err
    assert "-m FILE" in err and not list(videos.glob("labels*"))


def test_labels_of_another_form_are_not_written_over(lstr, videos):
    (videos / "labels.json").write_text('{"format": "lstr-timeline/1"}')
    code, _, err = lstr("label", videos, "--no-browser")
    assert code == 2 and "labels.json has no object" in err
    assert (videos / "labels.json").read_text() == '{"format": "lstr-timeline/1"}'
    assert not (videos / "labels.json.journal").exists()

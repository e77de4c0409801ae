"""`lstr label` as a person runs it: its address, its end, and its mistakes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

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
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own) as labelling:
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


@pytest.mark.parametrize(
    ("more", "sentence", "hint"),
    [
        (["-o", "labels.csv"], "labels.csv is no name of a labels file", "let -o end in .json"),
        (["--labels", "nowhere.csv"], "nowhere.csv", "--labels"),
        (["--port", "0"], "0 is not in the range", ""),
    ],
)
def test_mistakes_are_one_sentence(lstr, videos, tmp_path, monkeypatch, more, sentence, hint):
    monkeypatch.chdir(tmp_path)
    code, out, err = lstr("label", videos, "--no-browser", *more)
    assert code == 2 and out == "" and sentence in err and hint in err


def test_labels_of_another_form_are_not_written_over(lstr, videos):
    (videos / "labels.json").write_text('{"format": "lstr-timeline/1"}')
    code, _, err = lstr("label", videos, "--no-browser")
    assert code == 2 and "labels.json has no object" in err
    assert (videos / "labels.json").read_text() == '{"format": "lstr-timeline/1"}'
    assert not (videos / "labels.json.journal").exists()


def test_a_folder_without_videos_is_said(lstr, tmp_path):
    code, _, err = lstr("label", tmp_path, "--no-browser")
    assert code == 2 and "holds no video" in err and not list(tmp_path.iterdir())

"""`lstr label` as a person runs it: its address, its end, and its mistakes."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

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

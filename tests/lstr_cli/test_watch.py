"""`lstr label`, `lstr watch` and `lstr events` in processes of their own."""

import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lstr.pipelines.watching.config import check, read_config
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History, lock_folder
from tests.support.errors import assert_error
from tests.support.processes import LSTR, restore_signals
from tests.support.requests import Visitor
from tests.support.served import TS_HEAD, served
from tests.support.videos import remux, write_video
from tests.support.waiting import TIMEOUT_S, wait_until
from tests.support.watching import always_active


@pytest.mark.long
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_label_saves_changes_and_ends_on_a_signal(tmp_path, number):
    videos = tmp_path / "videos"
    videos.mkdir()
    write_video(videos / "a.mp4", range(0, 400, 20))
    words = [*LSTR, "label", str(videos), "--no-browser", "-o", str(tmp_path / "l.json")]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, env=environment, preexec_fn=restore_signals, **pipes) as process:
        address = process.stdout.readline().strip()
        assert address.startswith("http://127.0.0.1:") and "token=" in address
        visitor = Visitor(address)
        change = {"kind": "about", "video": "a", "key": "", "before": None, "after": {"complete": True}}
        assert visitor.ask("/change", {"id": "12345678", "changes": [change]}).status == 200
        process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0 and "Traceback" not in err
    assert f"next: lstr learn {videos} {tmp_path / 'l.json'}" in err
    assert json.loads((tmp_path / "l.json").read_text())["database"]["a"]["complete"] is True


@pytest.fixture
def model(run, small_set, tmp_path):
    run("pack", small_set.checkpoint.parent, "-o", tmp_path / "small.lstr")
    return tmp_path / "small.lstr"


def test_init_writes_a_config_file(lstr, run, tmp_path):
    out, err = run("watch", tmp_path / "cameras.toml", "--init")
    assert not out and f"next: lstr watch {tmp_path / 'cameras.toml'} --check" in err
    assert_error(lstr("watch", tmp_path / "cameras.toml", "--init"), 2, "cameras.toml")
    (tmp_path / "fall.lstr").touch()
    assert read_config(tmp_path / "cameras.toml").sources.keys() == {"hall"}
    assert_error(lstr("watch", tmp_path / "cameras.toml", "--check"), 2, "cameras.toml: model: ")


WRONG = """model = "MODEL"
[sources.a]
address = "http://x/y"
[sources.hall]
address = "camera:63"
[actions.flying]
on = 0.5
[channels.hook]
kind = "webhook"
url = "http:// u:hunter2@host/x"
[channels.phone]
kind = "apprise"
url = "ntyf://hunter2"
[channels.light]
kind = "command"
command = ["/nowhere/light", "on"]
[page]
host = "0.0.0.0"
"""


@pytest.mark.skipif(sys.platform != "linux" or Path("/dev/video63").exists(), reason="cameras are Video4Linux's")
def test_check_reports_all_errors_without_secrets(lstr, run, model, tmp_path):
    path = tmp_path / "watch.toml"
    path.write_text(WRONG.replace("MODEL", str(model)))
    code, out, err = lstr("watch", path, "--check")
    assert code == 2 and "hint: " in err and "hunter2" not in out + err
    entries = ("sources.hall", "actions.flying", "channels.hook", "channels.phone", "channels.light", "page.host")
    assert all(f"watch.toml: {entry}" in err for entry in entries)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["small.lstr", "watch.toml"]
    # a service starts even if programs and cameras are missing
    text = WRONG.replace("MODEL", str(model)).split("[actions")[0] + "[channels.light]\nkind = 'command'\n"
    path.write_text(text + "command = ['/nowhere/light']\n")
    assert check(path, read_config(path)).keys() == {"a", "hall"}
    path.write_text(text.replace("camera:63", "http://x/z") + "command = ['true']\n")
    assert [line.split(":")[0] for line in run("watch", path, "--check")[0].splitlines()] == ["a", "hall"]


def test_a_service_that_cannot_start(lstr, model, tmp_path):
    path, source = tmp_path / "watch.toml", '[sources.a]\naddress = "http://x/y"\n'
    path.write_text(source)
    assert_error(lstr("events", path), 1)
    assert_error(lstr("watch", path), 2, "model")
    path.write_text(f'model = "{model}"\n{source}')
    with lock_folder(tmp_path / "watch.data"):  # another service's
        assert_error(lstr("watch", path), 2, str(os.getpid()))


def test_events_lists_an_active_and_two_ended_events(run, tmp_path):
    history = History(tmp_path / "history.sqlite")
    for hours, source, action in ((1, "hall", "falling"), (30, "hall", "lying"), (2, "door", "falling")):
        start = datetime.now().astimezone() - timedelta(hours=hours)
        event = WatchedEvent(new_id(start), source, action, start, start, 0.8, 0.9, start)
        history.begin(event, [])
        if hours > 1:
            history.update(replace(event, end=start + timedelta(seconds=4)))
    history.close()
    rows = [line.split("\t") for line in run("events", tmp_path)[0].splitlines()[2:]]
    assert [row[1] for row in rows] == ["hall", "door", "hall"]
    assert rows[0][3] == "active" and rows[1][3] == "4.0"
    rows = json.loads(run("events", tmp_path, "--since", "1d", "--json")[0])
    assert [(row["source"], row["action"]) for row in rows] == [("hall", "falling"), ("door", "falling")]
    rows = json.loads(run("events", tmp_path, "--json")[0])
    assert [row["seconds"] for row in rows if row["action"] == "lying"] == [4]
    assert not run("events", tmp_path, "--since", "1s")[0]


@pytest.mark.long
def test_watch_stores_events_and_ends_on_ctrl_c(launch, model, small_set, tmp_path):
    """Even after the reader of its log has ended, as in `lstr watch 2>&1 | tee`."""
    stream = remux(small_set.videos / "scene_00.mp4", tmp_path / "camera.ts").read_bytes()
    log_closed, interrupted = threading.Event(), threading.Event()
    # the camera stays connected for some time after Ctrl-C; the process waits for a silent one
    with served([TS_HEAD, log_closed.wait, stream, interrupted.wait, 0.5]) as port:
        text = f'model = "{model}"\n[sources.hall]\naddress = "http://user:secret@127.0.0.1:{port}/a"\n'
        (tmp_path / "watch.toml").write_text(text + always_active(small_set.checkpoint))
        os.mkfifo(tmp_path / "log")
        process = launch("watch", tmp_path / "watch.toml", log=tmp_path / "log")
        with (tmp_path / "log").open() as log:
            line = log.readline()
        assert "hall" in line and "secret" not in line
        log_closed.set()
        history = History(tmp_path / "watch.data" / "history.sqlite", readonly=True)
        wait_until(lambda: not process.is_alive() or len({e.action for e in history.events()}) > 1)
        os.kill(process.pid, signal.SIGINT)
        interrupted.set()
        process.join(TIMEOUT_S)
    assert process.exitcode == 0
    assert all(event.end for event in history.events())
    history.close()

"""`lstr watch` and `lstr events` as a person runs them."""

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lstr.pipelines.detection.model import load_checkpoint
from lstr.pipelines.watching.config import check, read_config
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History, lock_folder
from lstr_cli import watch
from tests.support.patience import until
from tests.support.processes import heed_interrupts
from tests.support.served import TS_HEAD, served
from tests.support.videos import remux


@pytest.fixture
def learnt(lstr, small_set, tmp_path):
    """A model file."""
    code, _, err = lstr("pack", small_set.checkpoint.parent, "-o", tmp_path / "small.lstr")
    assert code == 0, err
    return tmp_path / "small.lstr"


@pytest.fixture
def seen(tmp_path):
    """A folder of three events, one of which is on."""
    history = History(tmp_path / "watch.data" / "history.sqlite")
    now = datetime.now().astimezone()
    for hours, source, action in ((1, "hall", "falling"), (30, "hall", "lying"), (2, "door", "falling")):
        start = now - timedelta(hours=hours)
        event = WatchedEvent(new_id(start), source, action, start, start, 0.8, 0.9, start)
        history.begin(event, [], now)
        if hours > 1:
            history.update(replace(event, end=start + timedelta(seconds=4)), now)
    history.close()
    return tmp_path / "watch.data"


def test_a_file_to_begin_with(lstr, tmp_path):
    code, out, err = lstr("watch", tmp_path / "cameras.toml", "--init")
    assert code == 0 and not out and f"next: lstr watch {tmp_path / 'cameras.toml'} --check" in err
    code, _, err = lstr("watch", tmp_path / "cameras.toml", "--init")
    assert code == 2 and "exists already" in err
    (tmp_path / "fall.lstr").touch()
    assert read_config(tmp_path / "cameras.toml").sources.keys() == {"hall"}
    code, _, err = lstr("watch", tmp_path / "cameras.toml", "--check")
    assert code == 2 and "cameras.toml: model: " in err and "hint: fix the file" in err


def test_mistakes(lstr, tmp_path):
    code, _, err = lstr("watch", tmp_path / "nowhere.toml")
    assert code == 2 and "File not found" in err and "--init" in err
    code, _, err = lstr("events", tmp_path / "nowhere.toml")
    assert code == 2 and "File not found" in err
    (tmp_path / "watch.toml").write_text('[sources.a]\naddress = "http://x/y"\n')
    code, _, err = lstr("events", tmp_path / "watch.toml")
    assert code == 1 and "No service has run yet" in err
    code, _, err = lstr("watch", tmp_path / "watch.toml")
    assert code == 2 and "No model is named" in err


WRONG = """model = "MODEL"
[sources.a]
address = "http://x/y"
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


def test_what_would_fail_later(lstr, learnt, tmp_path):
    """All of it is said at once, and what addresses hold is not."""
    path = tmp_path / "watch.toml"
    path.write_text(WRONG.replace("MODEL", str(learnt)))
    code, out, err = lstr("watch", path, "--check")
    assert code == 2 and len(err.splitlines()) == 6 and "hint: fix the file" in err and "hunter2" not in out + err
    for said in (
        "actions.flying: no model knows it",
        "channels.hook: its address has no host, or contains a space.",
        "channels.phone: Apprise does not know its address",
        "channels.light: program not found: /nowhere/light.",
        "page.host: By which names is a server on 0.0.0.0 reached?",
    ):
        assert f"watch.toml: {said}" in err
    assert sorted(file.name for file in tmp_path.iterdir()) == ["small.lstr", "watch.toml"], "nothing is begun"
    text = WRONG.replace("MODEL", str(learnt)).split("[actions")[0] + "[channels.light]\nkind = 'command'\n"
    path.write_text(text + "command = ['/nowhere/light']\n")
    assert check(read_config(path)).keys() == {"a"}, "a service begins before all programs are there"
    path.write_text(text + "command = ['true']\n")
    code, out, err = lstr("watch", path, "--check")
    assert code == 0 and out.startswith("a: ") and "can be used: 1 sources, 1 channels" in err


@pytest.mark.skipif(sys.platform != "linux" or Path("/dev/video63").exists(), reason="cameras are Video4Linux's")
def test_a_camera_that_is_not_plugged_in(lstr, learnt, tmp_path):
    """A mistake for --check; a service that begins with the machine, before the camera does, waits for it."""
    (tmp_path / "watch.toml").write_text(f'model = "{learnt}"\n[sources.hall]\naddress = "camera:63"\n')
    code, _, err = lstr("watch", tmp_path / "watch.toml", "--check")
    assert code == 2 and "watch.toml: sources.hall.address: Camera /dev/video63 not found. connect it" in err
    assert check(read_config(tmp_path / "watch.toml")).keys() == {"hall"}


def test_a_folder_that_another_service_has(lstr, learnt, tmp_path):
    (tmp_path / "watch.toml").write_text(f'model = "{learnt}"\n[sources.a]\naddress = "http://x/y"\n')
    with lock_folder(tmp_path / "watch.data"):
        code, _, err = lstr("watch", tmp_path / "watch.toml")
    assert code == 2 and f"(process {os.getpid()}).\nhint: end that one first, or name another folder as `data`" in err


def test_what_was_seen(lstr, seen, tmp_path):
    code, out, err = lstr("events", seen)
    lines = out.splitlines()
    assert code == 0 and lines[0] == "3 events" and lines[1].startswith("began\tsource")
    assert [line.split("\t")[1] for line in lines[2:]] == ["hall", "door", "hall"]
    assert lines[2].split("\t")[3] == "active" and lines[3].split("\t")[3] == "4.0"
    rows = json.loads(lstr("events", seen, "--since", "1d", "--json")[1])
    assert [(row["source"], row["action"]) for row in rows] == [("hall", "falling"), ("door", "falling")]
    found = [event for event in json.loads(lstr("events", seen, "--json")[1]) if event["action"] == "lying"]
    assert found[0]["seconds"] == 4
    code, out, err = lstr("events", seen, "--since", "1s")
    assert code == 0 and not out and "no event in that time" in err


def message_of(line: str) -> str:
    """What a line of the log says, without its time."""
    return line[len("2026-01-01 00:00:00 ") :].strip()


@pytest.mark.long
def test_it_watches_hears_and_ends(learnt, small_set, tmp_path):
    """Ctrl-C ends it, with exit code 0 and all events stored.

    What read its log has gone by then, as a pipe of `lstr watch 2>&1 | tee`: that changes nothing.
    """
    stream = remux(small_set.videos / "scene_00.mp4", tmp_path / "camera.ts").read_bytes()
    gone = threading.Event()
    with served([TS_HEAD, gone.wait, stream, None]) as port:
        text = f'model = "{learnt}"\n[sources.hall]\naddress = "http://user:secret@127.0.0.1:{port}/a"\n'
        for action in load_checkpoint(small_set.checkpoint).classes[1:]:
            text += f'[actions."{action}"]\non = 0.0\noff = 0.0\n'
        (tmp_path / "watch.toml").write_text(text)
        words = [sys.executable, "-m", "lstr_cli", "watch", str(tmp_path / "watch.toml")]
        with subprocess.Popen(
            words, stderr=subprocess.PIPE, text=True, env={**os.environ}, preexec_fn=heed_interrupts
        ) as watching:
            said = [message_of(watching.stderr.readline())]
            assert said[0].startswith("watching hall")
            watching.stderr.close()
            gone.set()
            history = History(tmp_path / "watch.data" / "history.sqlite", readonly=True)
            try:
                until(lambda: watching.poll() is not None or len({one.action for one in history.events()}) > 1, 120)
                watching.send_signal(signal.SIGINT)
                until(lambda: watching.poll() is not None, 60)
            finally:
                watching.kill()
    assert watching.returncode == 0 and not any("secret" in text for text in said)
    assert all(event.end for event in history.events())
    history.close()


INTERRUPTED = """
import os, signal, sys, threading, time
from lstr_cli.main import main

def strike():
    while True:
        frame, names = sys._current_frames()[threading.main_thread().ident], []
        while frame:
            names.append(frame.f_code.co_qualname)
            frame = frame.f_back
        if "{where}" in names:
            break
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGTERM)
    print("struck", flush=True)

threading.Thread(target=strike, daemon=True).start()
sys.argv = ["lstr", "watch", "watch.toml"]
main()
"""
"""Watches, and gets SIGTERM in the function that is named."""


@pytest.mark.long
@pytest.mark.parametrize("where", [pytest.param("Service.__init__", marks=pytest.mark.slow), "Service.__enter__"])
def test_it_ends_while_it_begins(learnt, tmp_path, where):
    """It was an internal error. Another program holds the history, so that the service waits in that function."""
    (tmp_path / "watch.toml").write_text(f'model = "{learnt}"\n[sources.hall]\naddress = "http://127.0.0.1:1/a"\n')
    path = tmp_path / "watch.data" / "history.sqlite"
    path.parent.mkdir()
    if where == "Service.__enter__":
        history, now = History(path), datetime.now().astimezone()
        history.begin(WatchedEvent(new_id(now), "hall", "falling", now, now, 0.8, 0.9, now), [], now)
        history.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        words = [sys.executable, "-c", INTERRUPTED.format(where=where)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        with subprocess.Popen(words, cwd=tmp_path, text=True, preexec_fn=heed_interrupts, **pipes) as watching:
            assert watching.stdout.readline() == "struck\n"
            other.execute("ROLLBACK")
            _, err = watching.communicate(timeout=60)
    assert watching.returncode == 0 and err.endswith(" ended\n") and "error" not in err, err


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full, which takes no byte")
def test_a_log_on_a_full_disk_goes_on_when_there_is_room(tmp_path, monkeypatch):
    """Whoever had something to say ended for good: the thread of the decisions, and what stores the events."""
    with open("/dev/full", "w") as log, (tmp_path / "log").open("w") as room:
        monkeypatch.setattr("sys.stderr", log)
        watch._log("the disk is full")
        os.dup2(room.fileno(), log.fileno())
        watch._log("http://user:secret@camera is read again")
    written = (tmp_path / "log").read_text()
    assert "camera is read again" in written and written.count("\n") == 1 and "secret" not in written


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_the_unit_of_the_documentation(tmp_path):
    page = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "service.md").read_text()
    unit = page.split("```ini\n")[1].split("```")[0]
    # the program is not installed where the unit says
    (tmp_path / "lstr.service").write_text(unit.replace("/opt/lstr/bin/lstr", sys.executable))
    done = subprocess.run(["systemd-analyze", "verify", str(tmp_path / "lstr.service")], capture_output=True, text=True)
    assert done.returncode == 0 and "lstr.service" not in done.stderr, done.stderr


def test_what_was_marked_becomes_labels(lstr, seen, small_set, tmp_path):
    """Of an event that has a clip; the file is one that `lstr labels check` takes."""
    history = History(seen / "history.sqlite")
    for event, verdict in zip(history.events(), ("right", "wrong", ""), strict=True):
        history.judge(event.id, verdict)
    code, _, err = lstr("events", seen, "--as-labels", tmp_path / "labels.json")
    assert code != 0 and "nothing to learn" in err and not (tmp_path / "labels.json").exists()
    event = history.events()[0]
    (seen / "clips").mkdir()
    (seen / "clips" / f"{event.id}.mp4").write_bytes((small_set.videos / "scene_00.mp4").read_bytes())
    about = {"start": (event.start - timedelta(seconds=1)).isoformat(), "seconds": 5.0, "event": event.to_dict()}
    (seen / "clips" / f"{event.id}.json").write_text(json.dumps(about))
    history.attach(event.id, clip=f"{event.id}.mp4")
    history.close()
    code, _, err = lstr("events", seen, "--as-labels", tmp_path / "labels.json")
    assert code == 0 and "1 right events, 0 wrong ones" in err, err
    assert f"next: lstr learn {seen / 'clips'}" in err and "skipped 1 marked events" in err
    code, _, err = lstr("labels", "check", tmp_path / "labels.json", seen / "clips")
    assert code == 0, err

"""`lstr label` killed while a person labels in a real Chromium, and started again: the open tab goes on."""

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager, suppress

import pytest

from lstr.labels.label_set import read_labels
from tests.support.browser import until
from tests.support.labelling import labels_after
from tests.support.processes import heed_interrupts
from tests.support.videos import write_video

KILLS = 20
KEYS = ["i", "h", "n", *["ArrowRight"] * 2, "ArrowLeft", "ArrowUp", "Delete", "Control+z", "Control+Shift+Z", "]"]
LABELS = "inOrder().map(([key, l]) => [key, l.action, l.start, l.end])"


def free_port() -> int:
    """One below those that the system gives to others, which may come while the server is down."""
    for port in random.sample(range(20000, 30000), 100):
        with socket.socket() as tried, suppress(OSError):
            tried.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


@contextmanager
def running(words):
    own = {**os.environ, "PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=own, preexec_fn=heed_interrupts
    ) as labelling:
        try:
            yield labelling, labelling.stdout.readline().strip()
        finally:
            labelling.kill()


@pytest.mark.slow
def test_an_open_tab_goes_on_after_each_kill(chromium, tmp_path):
    (tmp_path / "videos").mkdir()
    write_video(tmp_path / "videos" / "a.mp4", range(0, 4000, 20))
    path, moments = tmp_path / "labels.json", random.Random(3)
    words = [sys.executable, "-m", "lstr_cli", "label", str(tmp_path / "videos"), "--no-browser", "-o", str(path)]
    words += ["--port", str(free_port())]  # another test may take the usual one while the server is down
    page, first, unsent = chromium.new_page(), "", 0
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(str(error)))
    for kill in range(KILLS + 1):
        with running(words) as (labelling, address):
            first = first or address
            assert address == first, "an open tab has this address"
            if not kill:
                page.goto(address)
                until(page, "!asked.length && !loading && duration > 3")
                for name in ("kick", "hug"):
                    page.evaluate(f"addAction({name!r})")
                until(page, "!asked.length && actionsInOrder().length === 2")
            until(page, "!asked.length && $('unsaved').hidden")
            if kill == KILLS:
                assert page.evaluate("$('saved').textContent") == "All saved in labels.json"
                break
            end = threading.Timer(moments.uniform(0.05, 1.0), labelling.send_signal, [signal.SIGKILL])
            end.start()
            while labelling.poll() is None:
                page.keyboard.press(moments.choice(KEYS))
                page.wait_for_timeout(moments.choice((0, 0, 5, 30)))
            page.keyboard.press("Home")
            page.keyboard.press("n")  # which nobody can save now
            page.keyboard.press("ArrowRight")
            page.keyboard.press("n")
            until(page, "asked.length > 1 && !$('unsaved').hidden")
            revision, shown = page.evaluate("revision"), page.evaluate(LABELS)
            lines = (path.parent / f"{path.name}.journal").read_text().splitlines()
            saved = labels_after([line for line in lines if json.loads(line).get("revision", 0) <= revision])
            assert {key: (start, end) for key, _, start, end in shown} == saved, "what is shown was saved"
            unsent += page.evaluate("asked.length")
    kept = page.evaluate(
        "inOrder().filter(([, l]) => l.end !== null).map(([, l]) => [nameOf(l.action), l.start, l.end])"
    )
    open_ones = page.evaluate("inOrder().filter(([, l]) => l.end === null).length")
    names = {"Nothing happens": "Background"}
    wanted = sorted((names.get(name, name), start, end) for name, start, end in kept)
    with running(words) as (labelling, _):
        until(page, "$('unsaved').hidden")
        labelling.send_signal(signal.SIGINT)
        began = time.monotonic()
        assert labelling.wait(60) == 0 and time.monotonic() - began < 60
    segments = read_labels(path).videos["a"].segments
    assert sorted((s.label, s.start, s.end) for s in segments if s.label != "Ambiguous") == wanted
    assert path.read_text().count('"open"') == bool(open_ones)
    assert unsent >= 2 * KILLS and not problems
    page.close()

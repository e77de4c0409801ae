"""A terminal that is stopped (Ctrl-S) under a camera: what is shown waits, what is decided does not."""

import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep

import pytest

from tests.support.served import served
from tests.support.videos import remux

CTRL_S, CTRL_Q = b"\x13", b"\x11"
PATIENCE = 300  # seconds; of no matter where nothing is wrong


def wait_until(holds: Callable[[], bool]) -> None:
    end = monotonic() + PATIENCE
    while not holds():
        assert monotonic() < end
        sleep(0.1)


@pytest.mark.slow
def test_decisions_go_on_while_the_terminal_is_stopped(small_set, tmp_path):
    stream = remux(small_set.videos / "scene_00.mp4", tmp_path / "live.ts").read_bytes()
    half, stopped, shown = len(stream) // 2 // 188 * 188, threading.Event(), bytearray()
    ours, theirs = pty.openpty()

    def read() -> None:
        with suppress(OSError):
            while some := os.read(ours, 65536):
                shown.extend(some)

    def decided() -> int:
        found = list((tmp_path / "out").glob("*.jsonl"))
        return found[0].read_text().count('"chunk"') if found else 0

    with served([stream[:half], stopped.wait, stream[half:]]) as port:
        words = [
            "detect",
            f"tcp://127.0.0.1:{port}",
            "-c",
            small_set.checkpoint,
            "-o",
            tmp_path / "out",
        ]
        words += ["-f", "json,jsonl", "--set", "on_lag=wait"]
        command = [sys.executable, "-m", "lstr_cli.main", *map(str, words)]
        environment = os.environ | {"TERM": "xterm-256color"}
        on_it = dict.fromkeys(("stdin", "stdout", "stderr"), theirs)
        process = subprocess.Popen(command, **on_it, start_new_session=True, env=environment)
        os.close(theirs)
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        wait_until(lambda: decided() > 0)
        os.write(ours, CTRL_S)
        stopped.set()
        before = decided()
        wait_until(lambda: decided() > before)
        silent = len(shown)
        wait_until(lambda: decided() >= before + 5)
        assert len(shown) == silent and process.poll() is None
        os.write(ours, CTRL_Q)
        assert process.wait(PATIENCE) == 0
    reader.join(10)
    os.close(ours)
    assert len(shown) > silent
    assert list((tmp_path / "out").glob("*.json"))

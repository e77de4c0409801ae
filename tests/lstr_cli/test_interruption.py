"""Ctrl-C, SIGTERM and SIGHUP, sent to a real process that runs a command of the tests."""

import os
import signal
import subprocess
import sys
from signal import SIGHUP, SIGINT, SIGTERM

import pytest

from lstr_cli.interruption import leave_terminals
from tests.support.processes import restore_signals

COMMAND = """
import ctypes, os, sys, threading, time
import click
from lstr_cli import interruption, main

@click.command("test")
def command():
{body}

main.LazyGroup.get_command = lambda *_: command
sys.argv = ["lstr", "test"]
main.main()
"""
TIDY = "try:\n    print('up', flush=True)\n    time.sleep(60)\nfinally:\n"


def run(body: str, *sent: signal.Signals, ready=restore_signals) -> tuple[int, str, str]:
    """Run a command, and send it signals, each after a line of its output; its code, the rest of output, errors."""
    code = COMMAND.format(body="".join(f"    {line}\n" for line in body.splitlines()))
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code], text=True, preexec_fn=ready, **pipes) as process:
        for number in sent:
            process.stdout.readline()
            process.send_signal(number)
        out, err = process.communicate(timeout=120)
    return process.returncode, out, err.strip()


@pytest.mark.parametrize("number, code", [(SIGINT, 130), (SIGTERM, 143), (SIGHUP, 129)])
def test_each_winds_down(number, code):
    left, out, err = run(TIDY + "    print('written')", number)
    assert (left, out) == (code, "written\n")
    assert err.startswith("error: ") and err.count("\nhint: ") == 1 == err.count("\n")


def tidying(seconds: int, then: str) -> str:
    """A command that tidies up; signals within so many seconds are one request."""
    lines = (f"interruption.SAME_REQUEST_S = {seconds}", "print('tidying', flush=True)", then, "print('written')")
    return TIDY + "\n".join(f"    {line}" for line in lines)


def test_two_at_once_are_one_and_a_second_one_ends_at_once():
    """`timeout` sends two."""
    assert run(tidying(60, "sys.stdin.read()"), SIGTERM, SIGTERM)[:2] == (143, "written\n")
    assert run(tidying(0, "time.sleep(60)"), SIGINT, SIGTERM)[:2] == (143, "")


ENDED = {
    "a call that never returns, as in a decoder that hangs": (
        "interruption.RESPONSE_TIMEOUT_S = 0.1\n"
        "threading.Timer(2, print, ('up',), {'flush': True}).start()\n"
        "lock = ctypes.create_string_buffer(64)\n"
        "for _ in range(2):\n"
        "    ctypes.CDLL(None).pthread_mutex_lock(lock)"
    ),
    "a thread that never ends": (
        "interruption.EXIT_TIMEOUT_S = 0.1\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "print('up', flush=True)\n"
        "time.sleep(60)"
    ),
    "a signal that a library swallows": (
        "interruption.POLL_S = 0.05\n"
        "try:\n"
        "    print('up', flush=True)\n"
        "    time.sleep(60)\n"
        "except BaseException:\n"
        "    pass\n"
        "time.sleep(60)"
    ),
    "a signal that falls into a destructor": (
        "class Reader:\n"
        "    def __del__(self):\n"
        "        print('up', flush=True)\n"
        "        time.sleep(60)\n"
        "Reader()\n"
        "time.sleep(60)"
    ),
}


@pytest.mark.parametrize("body", ENDED.values(), ids=ENDED)
def test_it_ends_in_spite_of(body):
    left, _, err = run(body, SIGTERM)
    assert left == 143 and err.startswith("error: ") and "\nhint: " in err


@pytest.mark.parametrize("number", [SIGHUP, SIGTERM])
def test_what_is_ignored_stays_ignored(number):
    """`nohup lstr …` outlives its terminal."""
    body = "print('up', flush=True)\nsys.stdin.read()\nprint('done')"
    assert run(body, number, ready=lambda: signal.signal(number, signal.SIG_IGN)) == (0, "done\n", "")


def test_output_to_a_closed_terminal_goes_nowhere(tmp_path):
    """Else the first line that is printed while results are written ends the writing."""
    with (tmp_path / "terminal").open("wb") as terminal, (tmp_path / "other").open("wb") as other:
        leave_terminals([terminal.fileno(), other.fileno()], lambda fd: fd == other.fileno())
        os.write(terminal.fileno(), b"lost")
        os.write(other.fileno(), b"kept")
    assert not (tmp_path / "terminal").read_bytes() and (tmp_path / "other").read_bytes() == b"kept"

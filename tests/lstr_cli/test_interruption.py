"""SIGINT, SIGTERM and SIGHUP, sent to a process that runs a command of these tests."""

import os
import signal
import subprocess
import sys
from signal import SIGHUP, SIGINT, SIGTERM

import pytest

from lstr_cli.interruption import leave_terminals
from tests.support.processes import restore_signals
from tests.support.waiting import TIMEOUT_S

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
CLEAN_UP = "try:\n    print('up', flush=True)\n    time.sleep(60)\nfinally:\n"


def run(body: str, *signals: signal.Signals, prepare=restore_signals) -> tuple[int, str, str]:
    """Run a command and send each signal after a line of output; return exit code, rest of output, and errors."""
    code = COMMAND.format(body="".join(f"    {line}\n" for line in body.splitlines()))
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen([sys.executable, "-c", code], text=True, preexec_fn=prepare, **pipes) as process:
        for number in signals:
            process.stdout.readline()
            process.send_signal(number)
        out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err.strip()


@pytest.mark.parametrize("number, code", [(SIGINT, 130), (SIGTERM, 143), (SIGHUP, 129)])
def test_signals_end_a_command_with_an_error(number, code):
    exit_code, out, err = run(CLEAN_UP + "    print('written')", number)
    assert (exit_code, out) == (code, "written\n")
    assert err.startswith("error: ") and err.count("\nhint: ") == 1 == err.count("\n")


@pytest.mark.parametrize(
    ("seconds", "clean_up", "first", "output"),
    [(60, "sys.stdin.read()", SIGTERM, "written\n"), (0, "time.sleep(60)", SIGINT, "")],
)
def test_a_second_signal_ends_the_clean_up_unless_it_comes_at_once(seconds, clean_up, first, output):
    """`timeout` sends two signals at once, which are one request."""
    lines = (f"interruption.SAME_REQUEST_S = {seconds}", "print('waiting', flush=True)", clean_up, "print('written')")
    assert run(CLEAN_UP + "\n".join(f"    {line}" for line in lines), first, SIGTERM)[:2] == (143, output)


HANGING = {
    "a call that never returns, such as a hanging decoder": (
        "interruption.RESPONSE_TIMEOUT_S = 0.1\n"
        "threading.Timer(0.5, print, ('up',), {'flush': True}).start()\n"
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
    "a library that catches the signal": (
        "interruption.POLL_S = 0.05\n"
        "try:\n"
        "    print('up', flush=True)\n"
        "    time.sleep(60)\n"
        "except BaseException:\n"
        "    pass\n"
        "time.sleep(60)"
    ),
    "a signal in a destructor": (
        "class Reader:\n"
        "    def __del__(self):\n"
        "        print('up', flush=True)\n"
        "        time.sleep(60)\n"
        "Reader()\n"
        "time.sleep(60)"
    ),
}


@pytest.mark.long
@pytest.mark.parametrize("body", HANGING.values(), ids=HANGING)
def test_hanging_commands_end(body):
    code, _, err = run(body, SIGTERM)
    assert code == 143 and err.startswith("error: ") and "\nhint: " in err


@pytest.mark.parametrize("number", [SIGHUP, SIGTERM])
def test_ignored_signals_stay_ignored_as_under_nohup(number):
    body = "print('up', flush=True)\nsys.stdin.read()\nprint('done')"
    assert run(body, number, prepare=lambda: signal.signal(number, signal.SIG_IGN)) == (0, "done\n", "")


def test_output_to_a_closed_terminal_is_discarded(tmp_path):
    """Otherwise a message that is printed while results are written ends the writing."""
    with (tmp_path / "terminal").open("wb") as terminal, (tmp_path / "other").open("wb") as other:
        leave_terminals([terminal.fileno(), other.fileno()], lambda fd: fd == other.fileno())
        os.write(terminal.fileno(), b"to the terminal")
        os.write(other.fileno(), b"to the file")
    assert not (tmp_path / "terminal").read_bytes() and (tmp_path / "other").read_bytes() == b"to the file"

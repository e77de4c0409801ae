"""The view on real terminals: a pseudo-terminal, and an emulator that says what a person would see on it."""

import fcntl
import io
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyte
import pytest
import torch
from rich.console import Console

from lstr import checkpoint
from lstr.kinds import configure, make_model
from lstr_cli import console
from tests.support.feature_set import TINY

CTRL_C = b"\x03"


@dataclass(frozen=True)
class Long:
    """A video of hours as features, and a model of a millisecond."""

    features: Path
    checkpoint: Path


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Long:
    folder = tmp_path_factory.mktemp("long")
    random = np.random.default_rng(0)
    for name, width in (("rgb_x", 6), ("flow_x", 2)):
        (folder / "features" / name).mkdir(parents=True)
        np.save(folder / "features" / name / "game.npy", random.normal(size=(200_000, width)).astype(np.float32))
    torch.manual_seed(0)
    model = make_model(configure(rgb_dim=6, flow_dim=2, **TINY), 4).eval()
    with torch.no_grad():
        model.classifier.weight *= 20  # so that scores rise and fall
    checkpoint.save(folder / "c.pt", model, ("Background", "kick", "wave", "dive"), None, {})
    return Long(folder / "features", folder / "c.pt")


@dataclass
class Terminal:
    """What a command left on a terminal: the emulated screen, every byte, its exit code, what stdout got if apart."""

    screen: pyte.Screen
    sent: bytes
    code: int
    out: str

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display)


def terminal(
    *arguments, columns=80, rows=24, until: Callable[[str], bool] = lambda text: False, apart=False, **environment
) -> Terminal:
    """Run lstr on a terminal; when `until` is true of what is on it, press Ctrl-C. `apart`: stdout is a pipe."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    keep = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}

    def own_terminal():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = subprocess.Popen(
        [sys.executable, "-m", "lstr_cli.main", *map(str, arguments)],
        stdin=theirs,
        stdout=subprocess.PIPE if apart else theirs,
        stderr=theirs,
        env={**keep, "TERM": "xterm-256color", **environment},
        preexec_fn=own_terminal,
    )
    os.close(theirs)
    screen = pyte.Screen(columns, rows)
    stream, sent, pressed, out = pyte.ByteStream(screen), b"", False, b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # the last who held it has gone
            break
        if not some:
            break
        sent += some
        stream.feed(some)
        if apart:
            os.set_blocking(process.stdout.fileno(), False)
            out += process.stdout.read() or b""
        if not pressed and until("\n".join(screen.display)):
            os.write(ours, CTRL_C)
            pressed = True
    if apart:
        os.set_blocking(process.stdout.fileno(), True)
        out += process.stdout.read()
    os.close(ours)
    return Terminal(screen, sent, process.wait(), out.decode())


def has_view(text: str) -> bool:
    return "decisions a second, latency" in text and "━" in text and "kick" in text


@pytest.mark.long
def test_a_view_and_what_ctrl_c_leaves_of_it(long):
    ended = terminal(
        "detect",
        long.features,
        "-c",
        long.checkpoint,
        until=lambda text: has_view(text) and re.search("game  (0:[1-9]|[1-9])", text),
        apart=True,
    )
    assert ended.code == 130
    assert has_view(ended.text), "the last state stays"
    assert re.search(r"^game: [\d:.]+ watched, \d+ decisions, actions: \d+$", ended.text, re.MULTILINE)
    assert "Interrupted." in ended.text and ended.text.index("watched,") < ended.text.index("Interrupted.")
    assert not ended.screen.cursor.hidden and b"\x1b[?25l" in ended.sent
    assert ended.screen.cursor.x == 0
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert len(lines) > 24 and all("chunk" in line or "event" in line for line in lines)
    assert b"\x1b[" in ended.sent and "\x1b" not in ended.out


@pytest.mark.long
def test_lines_on_a_terminal_that_is_dumb(long):
    ended = terminal(
        "detect",
        long.features,
        *("-c", long.checkpoint, "-o", long.features.parent / "o", "-f", "jsonl"),
        until=lambda text: len(re.findall("started", text)) > 3,
        TERM="dumb",
    )
    assert ended.code == 130 and b"\x1b[" not in ended.sent
    assert re.search(r"^ +\d+:\d\d\.\d\d  game  \w+ (started|ended), ", ended.text, re.MULTILINE)
    assert not has_view(ended.text)


@pytest.mark.long
def test_results_are_not_drawn_over(long):
    """Lines of the result on the very terminal: no view among them."""
    ended = terminal(
        "detect", long.features, "-c", long.checkpoint, "-f", "jsonl", until=lambda text: text.count('"chunk"') > 3
    )
    assert ended.code == 130 and b"\x1b[?25l" not in ended.sent
    written = ended.sent.decode().partition("^C")[0].split("\r\n")[:-1]  # Ctrl-C may cut the last line
    lines = [line for line in written if line.startswith("{")]
    assert len(lines) > 3 and all(json.loads(line) for line in lines)


@pytest.fixture
def short(long, tmp_path) -> Path:
    """Ten seconds of the long video, at a score a chunk."""
    for name in ("rgb_x", "flow_x"):
        (tmp_path / "features" / name).mkdir(parents=True)
        given = np.load(long.features / name / "game.npy", mmap_mode="r")
        np.save(tmp_path / "features" / name / "v.npy", given[:40])
    return tmp_path / "features"


@pytest.mark.parametrize(("columns", "drawn"), [(60, True), (40, False)])
def test_it_goes_by_the_width(lstr, long, short, monkeypatch, columns, drawn):
    sent = io.StringIO()
    monkeypatch.setattr(
        console, "_err", Console(file=sent, force_terminal=True, width=columns, height=24, highlight=False)
    )
    code, out, _ = lstr("detect", short, "-c", long.checkpoint, "-o", short.parent / "o", "-f", "json")
    assert code == 0 and "decisions" in out and "\x1b" not in out
    assert ("\x1b[?25l" in sent.getvalue()) is drawn
    assert (re.search("^ +0:0[^ ]+  v  .*started, ", sent.getvalue(), re.MULTILINE) is None) is drawn
    screen = pyte.Screen(columns, 24)
    pyte.Stream(screen).feed(sent.getvalue().replace("\n", "\r\n"))
    assert not has_view("\n".join(screen.display)), "nothing is left of a view that came to its end"


def test_nothing_when_piped(lstr, long, short):
    code, out, err = lstr("detect", short, "-c", long.checkpoint)
    assert code == 0 and len(re.findall('"chunk"', out)) == 40
    line = r"[\d.]+ decisions a second, [\d.]+ × real time, [\d.]+ processor seconds per second of video\n"
    assert re.fullmatch(line, err)

"""The display of detections and training on terminals, as lines, and as JSON lines."""

import fcntl
import io
import json
import os
import pty
import re
import struct
import subprocess
import termios
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyte
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from lstr.labels.check import Finding
from lstr.pipelines.detection.decision import Decision, Opened, Status
from lstr.pipelines.learning.plan import FEATURES, MODEL, PACK, LearnPlan
from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice
from lstr.timeline import Event
from lstr_cli import console
from lstr_cli.learn import follow_in_json
from lstr_cli.view import Progress, View
from tests.support.detections import tiny_checkpoint
from tests.support.processes import LSTR, restore_signals

HIDE_CURSOR = "\x1b[?25l"  # written by every display


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    """Features of a video of hours, and a model that takes a millisecond per step, c.pt."""
    folder = tmp_path_factory.mktemp("long")
    random = np.random.default_rng(0)
    for name, width in (("rgb_x", 6), ("flow_x", 2)):
        (folder / "features" / name).mkdir(parents=True)
        np.save(folder / "features" / name / "game.npy", random.normal(size=(200_000, width)).astype(np.float32))
    tiny_checkpoint(folder / "c.pt", ("Background", "kick", "wave", "dive"))
    return folder


def has_display(text: str) -> bool:
    return "━" in text and "kick" in text


@pytest.mark.long
def test_a_display_on_a_terminal_that_ctrl_c_interrupts(long):
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}

    def attach_terminal():
        os.setsid()
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)
        restore_signals()

    words = [*LSTR, "detect", str(long / "features"), "-c", str(long / "c.pt")]
    options = {"env": {**environment, "TERM": "xterm-256color"}, "preexec_fn": attach_terminal}
    with (long / "out").open("wb") as out:
        process = subprocess.Popen(words, stdin=terminal, stdout=out, stderr=terminal, **options)
    os.close(terminal)
    screen, output, pressed = pyte.Screen(80, 24), b"", False
    stream = pyte.ByteStream(screen)
    with suppress(OSError):  # when the process has closed the terminal
        while data := os.read(master, 65536):
            output += data
            stream.feed(data)
            text = "\n".join(line.rstrip() for line in screen.display)
            if not pressed and has_display(text) and re.search("game  (0:[1-9]|[1-9])", text):
                os.write(master, b"\x03")  # Ctrl-C
                pressed = True
    os.close(master)
    assert process.wait() == 130 and has_display(text), "the last state is still visible"
    assert "Interrupted." in text and re.search(r"^game: .*actions: \d+$", text, re.MULTILINE)
    assert not screen.cursor.hidden and screen.cursor.x == 0 and HIDE_CURSOR.encode() in output
    lines = [json.loads(line) for line in (long / "out").read_text().splitlines()]
    assert len(lines) > 24 and all("chunk" in line or "event" in line for line in lines)


@pytest.mark.parametrize(
    ("columns", "term", "results"),
    [(60, "xterm", False), (60, "xterm", True), (40, "xterm", False), (60, "dumb", False), (0, "", False)],
)
def test_the_display_depends_on_the_terminal(lstr, long, tmp_path, monkeypatch, columns, term, results):
    """None on a narrow or dumb terminal, or together with results; 0 columns mean no terminal."""
    for name in ("rgb_x", "flow_x"):
        (tmp_path / "features" / name).mkdir(parents=True)
        rows = np.load(long / "features" / name / "game.npy", mmap_mode="r")
        np.save(tmp_path / "features" / name / "v.npy", rows[:40])
    sent = io.StringIO()
    options = {"width": columns or 80, "height": 24, "_environ": {"TERM": term}}
    monkeypatch.setattr(console, "err", Console(file=sent, force_terminal=columns > 0, highlight=False, **options))
    monkeypatch.setattr(console, "out", Console(force_terminal=results, highlight=False))
    code, out, _ = lstr("detect", tmp_path / "features", "-c", long / "c.pt", "-f", "jsonl")
    assert code == 0 and len(re.findall('"chunk"', out)) == 40 and "\x1b" not in out
    assert (HIDE_CURSOR in sent.getvalue()) is ((columns, term, results) == (60, "xterm", False))
    assert term == "xterm" or "\x1b" not in sent.getvalue()
    screen = pyte.Screen(columns or 80, 24)
    pyte.Stream(screen).feed(sent.getvalue().replace("\n", "\r\n"))
    assert not has_display("\n".join(screen.display))


@settings(max_examples=40)
@given(
    st.lists(st.text(max_size=60), min_size=1, max_size=12),
    st.lists(st.text(max_size=40), unique=True, max_size=30),
    st.integers(50, 220),
    st.integers(3, 70),
)
def test_the_display_fits_and_contains_no_control_characters(names, classes, width, height):
    view = View()
    view._console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width, height=height)
    for name in names:
        status = Status(name, 40, decided=10, time=2.5, gaps=3, dropped=10**6)
        status.latencies_ms.extend([10.0] * 90 + [50.0] * 10)
        progress, events = Progress(view), [Event("started", "kick", 2.5, 2.25, 0.8)]
        progress.open(Opened(name, status, tuple(classes)))
        progress.take(Decision(9, 2.5, "kick", 0.6, [], 1.0, events, np.linspace(0, 1, len(classes))))
    with view._console.capture() as captured:
        view._console.print(view.draw())
    lines = captured.get().splitlines()
    assert len(lines) <= max(height - 1, len(names))
    assert all(line.isprintable() and cell_len(line) <= width for line in lines)


def test_progress_as_json_lines(capsys):
    plan = LearnPlan({}, {}, 1, "", {FEATURES: 60, MODEL: 30, PACK: 1}, {}, 1, (("flow",),), "rnn-small", 1)

    def events():
        yield Notice("no GPU")
        yield Notice("two videos", warning=False)
        yield LabelFindings("labels.json", [Finding("warning", "few examples", "", "jump has 1 example")])
        yield Failed("a", "a is damaged.", "repair it.")
        for done in range(11):
            yield plan.progress(FEATURES, done, 10)
        yield Finished("model")

    assert follow_in_json(events()) == "model"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [[*line] for line in lines[:4]] == [["warning"], ["notice"], ["warning"], ["warning"]]
    assert lines[0] == {"warning": "no GPU"} and "a is damaged." in lines[3]["warning"]
    assert [line["share"] for line in lines[4:]] == [0.0, 1.0], "the first and the last"
    assert lines[4].keys() == {"step", "steps", "name", "share", "seconds_left"} and lines[4]["seconds_left"] == 91

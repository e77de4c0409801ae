"""What a person sees while sources are watched or a model is learnt: terminals, lines, and JSON lines."""

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
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyte
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from lstr import checkpoint
from lstr.kinds import configure, make_model
from lstr.labels.check import Finding
from lstr.pipelines.detection.decision import Decision, Opened, Status
from lstr.pipelines.learning.plan import FEATURES, MODEL, PACK, LearnPlan, PlannedStep
from lstr.pipelines.progress import Failed, Finished, LabelFindings, Notice
from lstr.timeline import Event
from lstr_cli import console
from lstr_cli.learn import follow_in_json
from lstr_cli.view import Progress, View
from tests.support.feature_set import TINY

HIDDEN = "\x1b[?25l"
"""Hides the cursor, as whatever draws does."""


@pytest.fixture(scope="module")
def long(tmp_path_factory) -> Path:
    """A video of hours as features, and a model of a millisecond, c.pt."""
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
    return folder


def has_view(text: str) -> bool:
    return "━" in text and "kick" in text


@pytest.mark.long
def test_a_view_on_a_terminal_and_what_ctrl_c_leaves_of_it(long):
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    keep = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}

    def own_terminal():
        os.setsid()
        fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    words = [sys.executable, "-m", "lstr_cli.main", "detect", str(long / "features"), "-c", str(long / "c.pt")]
    with (long / "out").open("wb") as out:
        pipes = {"stdin": theirs, "stdout": out, "stderr": theirs}
        process = subprocess.Popen(words, env={**keep, "TERM": "xterm-256color"}, preexec_fn=own_terminal, **pipes)
    os.close(theirs)
    screen, sent, pressed = pyte.Screen(80, 24), b"", False
    stream = pyte.ByteStream(screen)
    with suppress(OSError):  # the last who held the terminal has gone
        while some := os.read(ours, 65536):
            sent += some
            stream.feed(some)
            text = "\n".join(line.rstrip() for line in screen.display)
            if not pressed and has_view(text) and re.search("game  (0:[1-9]|[1-9])", text):
                os.write(ours, b"\x03")  # Ctrl-C
                pressed = True
    os.close(ours)
    assert process.wait() == 130 and has_view(text), "the last state stays"
    assert "Interrupted." in text and re.search(r"^game: .*actions: \d+$", text, re.MULTILINE)
    assert not screen.cursor.hidden and screen.cursor.x == 0 and HIDDEN.encode() in sent
    lines = [json.loads(line) for line in (long / "out").read_text().splitlines()]
    assert len(lines) > 24 and all("chunk" in line or "event" in line for line in lines)


@pytest.mark.parametrize(
    ("columns", "term", "results", "drawn"),
    [
        (60, "xterm", False, True),
        (60, "xterm", True, False),
        (40, "xterm", False, False),
        (60, "dumb", False, False),
        (0, "", False, False),
    ],
)
def test_it_goes_by_the_terminal(lstr, long, tmp_path, monkeypatch, columns, term, results, drawn):
    """Nothing is drawn on a narrow or dumb terminal, or on the one of the results; 0 columns are no terminal."""
    for name in ("rgb_x", "flow_x"):
        (tmp_path / "features" / name).mkdir(parents=True)
        given = np.load(long / "features" / name / "game.npy", mmap_mode="r")
        np.save(tmp_path / "features" / name / "v.npy", given[:40])
    sent = io.StringIO()
    size = {"width": columns or 80, "height": 24}
    shown = Console(file=sent, force_terminal=columns > 0, highlight=False, _environ={"TERM": term}, **size)
    monkeypatch.setattr(console, "err", shown)
    monkeypatch.setattr(console, "out", Console(force_terminal=results, highlight=False))
    code, out, _ = lstr("detect", tmp_path / "features", "-c", long / "c.pt", "-f", "jsonl")
    assert code == 0 and len(re.findall('"chunk"', out)) == 40 and "\x1b" not in out
    assert (HIDDEN in sent.getvalue()) is drawn and (term == "xterm" or "\x1b" not in sent.getvalue())
    screen = pyte.Screen(columns or 80, 24)
    pyte.Stream(screen).feed(sent.getvalue().replace("\n", "\r\n"))
    assert not has_view("\n".join(screen.display))


def watch(view: View, name: str, classes, **status) -> None:
    """A source with ten decisions of which the newest began a kick."""
    stands = Status(name, 40, decided=10, time=2.5, **status)
    stands.latencies_ms.extend([10.0] * 90 + [50.0] * 10)
    one = Progress(view)
    one.open(Opened(name, stands, classes))
    events = [Event("started", "kick", 2.5, 2.25, 0.8)]
    one.take(Decision(9, 2.5, "kick", 0.6, [], 1.0, events, np.linspace(0, 1, len(classes))))


@settings(max_examples=40)
@given(
    st.lists(st.text(max_size=60), min_size=1, max_size=12),
    st.lists(st.text(max_size=40), unique=True, max_size=30),
    st.integers(50, 220),
    st.integers(3, 70),
)
def test_it_fits_and_steers_no_terminal(names, classes, width, height):
    view = View()
    view._console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width, height=height)
    for name in names:
        watch(view, name, tuple(classes), gaps=3, dropped=10**6)
    with view._console.capture() as shown:
        view._console.print(view.draw())
    lines = shown.get().splitlines()
    assert len(lines) <= max(height - 1, len(names))
    assert all(line.isprintable() and cell_len(line) <= width for line in lines)


STEPS = (PlannedStep(FEATURES, 60), PlannedStep(MODEL, 30), PlannedStep(PACK, 1))
PLAN = LearnPlan({}, {}, 1, "", STEPS, {}, 1, (("flow",),), "rnn-small", 1)


def test_progress_as_json_lines(capsys):
    def events():
        yield Notice("no GPU")
        yield Notice("two videos", warning=False)
        yield LabelFindings("labels.json", [Finding("warning", "few examples", "", "jump has 1 example")])
        yield Failed("a", "a is damaged.", "repair it.")
        for done in range(11):
            yield PLAN.progress(FEATURES, done, 10)
        yield Finished("model")

    assert follow_in_json(events()) == "model"
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [[*line] for line in lines[:4]] == [["warning"], ["notice"], ["warning"], ["warning"]]
    assert lines[0] == {"warning": "no GPU"} and "a is damaged." in lines[3]["warning"]
    assert [line["share"] for line in lines[4:]] == [0.0, 1.0], "not each chunk"
    assert lines[4].keys() == {"step", "steps", "name", "share", "seconds_left"} and lines[4]["seconds_left"] == 91

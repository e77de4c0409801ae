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
import threading
from collections.abc import Callable
from dataclasses import dataclass
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
from tests.support.patience import until
from tests.support.served import served
from tests.support.videos import remux

CTRL_C, CTRL_S, CTRL_Q = b"\x03", b"\x13", b"\x11"
HIDDEN = b"\x1b[?25l"
"""Hides the cursor, as whatever draws does."""
PATIENCE = 300  # seconds; of no matter where nothing is wrong


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
    *arguments, press_at: Callable[[str], object] = lambda text: False, apart=False, meanwhile=None, **environment
) -> Terminal:
    """Run lstr on a terminal; when `press_at` is true of what is on it, press Ctrl-C.

    With `apart` standard output is a pipe; `meanwhile` runs in a thread, with the terminal and what was read of it.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
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
    screen, sent, out = pyte.Screen(80, 24), [], b""
    stream, pressed = pyte.ByteStream(screen), False
    if meanwhile:
        threading.Thread(target=meanwhile, args=(ours, sent), daemon=True).start()
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # the last who held it has gone
            break
        sent.append(some)
        stream.feed(some)
        if apart:
            os.set_blocking(process.stdout.fileno(), False)
            out += process.stdout.read() or b""
        if not pressed and press_at("\n".join(screen.display)):
            os.write(ours, CTRL_C)
            pressed = True
    if apart:
        os.set_blocking(process.stdout.fileno(), True)
        out += process.stdout.read()
    os.close(ours)
    return Terminal(screen, b"".join(sent), process.wait(), out.decode())


def has_view(text: str) -> bool:
    return "━" in text and "kick" in text


@pytest.mark.long
def test_a_view_and_what_ctrl_c_leaves_of_it(long):
    ended = terminal(
        "detect",
        long.features,
        *("-c", long.checkpoint),
        press_at=lambda text: has_view(text) and re.search("game  (0:[1-9]|[1-9])", text),
        apart=True,
    )
    assert ended.code == 130
    assert has_view(ended.text), "the last state stays"
    assert "Interrupted." in ended.text and re.search(r"^game: .*actions: \d+$", ended.text, re.MULTILINE)
    assert not ended.screen.cursor.hidden and ended.screen.cursor.x == 0 and HIDDEN in ended.sent
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert len(lines) > 24 and all("chunk" in line or "event" in line for line in lines)


@pytest.mark.long
def test_results_are_not_drawn_over(long):
    """Lines of the result on the very terminal: no view among them."""
    ended = terminal(
        "detect", long.features, "-c", long.checkpoint, "-f", "jsonl", press_at=lambda text: text.count('"chunk"') > 3
    )
    assert ended.code == 130 and HIDDEN not in ended.sent
    written = ended.sent.decode().partition("^C")[0].split("\r\n")[:-1]  # Ctrl-C may cut the last line
    lines = [line for line in written if line.startswith("{")]
    assert len(lines) > 3 and all(json.loads(line) for line in lines)


@pytest.mark.parametrize(
    ("columns", "term", "drawn"), [(60, "xterm", True), (40, "xterm", False), (60, "dumb", False), (0, "", False)]
)
def test_it_goes_by_the_terminal(lstr, long, tmp_path, monkeypatch, columns, term, drawn):
    """Nothing is drawn on a narrow or dumb terminal, and nothing stays of a view after the end; 0: no terminal."""
    for name in ("rgb_x", "flow_x"):
        (tmp_path / "features" / name).mkdir(parents=True)
        given = np.load(long.features / name / "game.npy", mmap_mode="r")
        np.save(tmp_path / "features" / name / "v.npy", given[:40])
    sent = io.StringIO()
    size = {"width": columns or 80, "height": 24}
    shown = Console(file=sent, force_terminal=columns > 0, highlight=False, _environ={"TERM": term}, **size)
    monkeypatch.setattr(console, "err", shown)
    code, out, _ = lstr("detect", tmp_path / "features", "-c", long.checkpoint)
    assert code == 0 and len(re.findall('"chunk"', out)) == 40 and "\x1b" not in out
    assert (HIDDEN.decode() in sent.getvalue()) is drawn and (term == "xterm" or "\x1b" not in sent.getvalue())
    screen = pyte.Screen(columns or 80, 24)
    pyte.Stream(screen).feed(sent.getvalue().replace("\n", "\r\n"))
    assert not has_view("\n".join(screen.display))


@pytest.mark.slow
def test_decisions_go_on_while_the_terminal_is_stopped(small_set, tmp_path):
    """Ctrl-S under a camera: what is shown waits, what is decided does not."""
    stream = remux(small_set.videos / "scene_00.mp4", tmp_path / "live.ts").read_bytes()
    half, stopped, output = len(stream) // 2 // 188 * 188, threading.Event(), tmp_path / "out"

    def decided() -> int:
        found = list(output.glob("*.jsonl"))
        return found[0].read_text().count('"chunk"') if found else 0

    def stop(ours: int, sent: list[bytes]) -> None:
        until(decided, PATIENCE)
        os.write(ours, CTRL_S)
        stopped.set()
        before = decided()
        until(lambda: decided() > before, PATIENCE)
        silent = len(sent)
        until(lambda: decided() >= before + 5, PATIENCE)
        same.append(len(sent) == silent)
        os.write(ours, CTRL_Q)

    same: list[bool] = []
    with served([stream[:half], stopped.wait, stream[half:]]) as port:
        words = ("detect", f"tcp://127.0.0.1:{port}", "-c", small_set.checkpoint, "-o", output)
        ended = terminal(*words, "-f", "json,jsonl", "--set", "on_lag=wait", meanwhile=stop)
    assert ended.code == 0 and same == [True] and list(output.glob("*.json"))


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

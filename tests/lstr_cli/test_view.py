"""What a person sees while sources are watched: a view on a terminal, and lines elsewhere."""

import io
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from lstr.pipelines.detection.decision import Decision, End, Opened, Status
from lstr.timeline import Event
from lstr_cli.view import Progress, View

CLASSES = ("Background", "kick", "wave", "跳水", "Ambiguous")
NOW = [0.0]


def decision(chunk: int, scores=(0.1, 0.6, 0.2, np.nan, 0.0), events=()) -> Decision:
    return Decision(chunk, (chunk + 1) / 4, "kick", 0.6, [], 1.0, list(events), np.array(scores))


def watch(view: View, name: str = "game.mp4", classes=CLASSES, **status) -> Progress:
    """A source with ten decisions of which the newest began a kick."""
    stands = Status(name, 40, decided=10, time=2.5, **status)
    stands.latencies_ms.extend([10.0] * 90 + [50.0] * 10)
    one = Progress(view)
    one.open(Opened(name, stands, classes))
    events = [Event("started", "kick", 2.5, 2.25, 0.8)]
    one.take(decision(9, events=events) if "kick" in classes else decision(9, np.zeros(len(classes))))
    return one


def view_of(width: int = 80, height: int = 24) -> View:
    NOW[0] = 0.0
    view = View(clock=lambda: NOW[0])
    view._console = Console(file=io.StringIO(), force_terminal=True, color_system=None, width=width, height=height)
    return view


def text(view: View) -> list[str]:
    with view._console.capture() as shown:
        view._console.print(view.draw())
    return [line.rstrip() for line in shown.get().splitlines()]


def test_a_source_has_all_that_a_person_asks():
    view = view_of(120)
    one = watch(view)
    NOW[0], one.status.decided = 2.0, 20
    head, *actions, speed, event = text(view)
    assert "game.mp4" in head and "50%" in head
    assert [re.search(r"\w+", line)[0] for line in actions] == ["kick", "wave", "跳水"]
    assert "0.60" in actions[0] and actions[0].count("━") > actions[1].count("━")
    assert "5.0" in speed and "kick" in event and "0.80" in event
    one.refresh = lambda: setattr(one.status, "waiting", 3)
    one.status.link, one.status.dropped, one.status.gaps, one.status.decode_errors = "stalled", 7, 1, 5
    one.take(decision(11, events=[Event("ended", "kick", 3.0, 2.25, 0.7, 2.75)]))
    trouble = "\n".join(text(view))
    assert all(f"{what} {n}" in trouble for what, n in {"dropped": 7, "waiting": 3, "gaps": 1, "damaged": 5}.items())
    for said in (one.line(4.0), one.summary()):
        assert "game.mp4" in said and "\n" not in said


def test_what_is_active_at_the_end_counts(capsys):
    view = view_of()
    sink = Progress(view)
    sink.open(Opened("camera:0", Status("camera:0"), CLASSES, refresh=lambda: None))
    sink.close(End([Event("started", "kick", 3.0, 2.75, 0.9), Event("ended", "kick", 3.0, 2.75, 0.9, 3.0)]))
    with pytest.raises(KeyboardInterrupt), view:
        raise KeyboardInterrupt
    assert capsys.readouterr().err.endswith("actions: 1\n")


@settings(max_examples=40)
@given(
    st.lists(st.text(max_size=60), min_size=1, max_size=12),
    st.lists(st.text(max_size=40), unique=True, max_size=30),
    st.integers(50, 220),
    st.integers(3, 70),
)
def test_it_fits_and_steers_no_terminal(names, classes, width, height):
    view = view_of(width, height)
    for name in names:
        watch(view, name, tuple(classes), gaps=3, dropped=10**6)
    lines = text(view)
    assert len(lines) <= max(height - 1, len(names))
    assert all(line.isprintable() and cell_len(line) <= width for line in lines)

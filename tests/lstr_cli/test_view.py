"""What a person sees while sources are watched, as lines."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.events import Opened
from lstr.pipelines.detection.sink import End
from lstr.pipelines.detection.status import Status
from lstr.timeline import Event
from lstr_cli.view import (
    Progress,
    View,
    Watched,
    cells,
    clean,
    clock,
    fit,
    shorten,
    speed_text,
    status_text,
    summary_of,
)

CLASSES = ("Background", "kick", "wave", "跳水", "Ambiguous")


def decision(chunk: int, scores=(0.1, 0.6, 0.2, 0.1, 0.0), events=()) -> Decision:
    return Decision(chunk, (chunk + 1) / 4, "kick", 0.6, [], 1.0, list(events), np.array(scores))


def started(label: str, time: float) -> Event:
    return Event("started", label, time, time - 0.25, 0.8)


def watch(view: View, name: str = "game.mp4", classes=CLASSES, **status) -> Watched:
    """A source with ten decisions of which the newest began a kick."""
    stands = Status(name, 40, decided=10, time=2.5, work=(10, 32), long=(0, 2048), **status)
    stands.latencies_ms.extend([10.0] * 90 + [50.0] * 10)
    one = view.add(stands, classes)
    one.push(decision(9, events=[started("kick", 2.5)]) if "kick" in classes else decision(9, np.zeros(len(classes))))
    return one


def text(view: View, width: int = 80, height: int = 23) -> list[str]:
    return ["".join(part for part, _ in line) for line in view.lines(width, height)]


def test_a_source_has_all_that_a_person_asks():
    now = [0.0]
    view = View(lambda: now[0])
    one = watch(view, frames=50)
    now[0] = 2.0
    one.status.decided, one.status.frames = 20, 150
    head, *actions, memory, speed, event = text(view)
    assert head == "game.mp4  0:02.50 of 0:10.00  50%"
    assert [line.split()[0] for line in actions] == ["●", "wave", "跳水"]
    kick = actions[0]
    assert kick.startswith(" ● kick █") and kick.count("█") == int(0.6 * (80 - 20 - 4)) and "0.60" in kick
    assert "0.2 s" in kick, "how long it has been on"
    assert memory == "  memory work ███▏······ 2/8 s  long ·········· 0/512 s  dropped 0"
    assert speed == "  5.0 decisions/s  50 frames/s  1.25 × real time  latency p50 10, p95 50 ms"
    assert event.split() == ["0:02.50", "kick", "started,", "0.80"]


def test_trouble_is_said_and_only_then():
    view = View()
    one = watch(view)
    for word in ("waiting", "gaps", "reconnected", "damaged", "sends nothing"):
        assert word not in "\n".join(text(view))
    one.status.link, one.status.dropped, one.status.waiting, one.status.gaps = "stalled", 7, 3, 1
    one.status.reconnects, one.status.decode_errors = 2, 5
    told = "\n".join(text(view))
    for word in ("sends nothing", "dropped 7", "waiting 3", "gaps 1", "reconnected 2", "damaged 5"):
        assert word in told
    alerts = [part for line in view.lines(80, 23) for part, role in line if role == "alert"]
    assert "dropped 7" in alerts


def test_an_action_is_on_from_started_to_ended():
    view = View()
    one = watch(view)
    assert [role for part, role in view.lines(80, 23)[1]][0] == "on"
    ended = Event("ended", "kick", 3.0, 2.25, 0.7, 2.75)
    one.push(decision(11, events=[ended]))
    assert [role for part, role in view.lines(80, 23)[1]][0] == ""
    assert "kick ended, 0:02.25 to 0:02.75, 0.70" in "\n".join(text(view))
    one.push(decision(12, events=[Event("expected", "wave", 3.25, 4.0, 0.6)]))
    assert "wave expected for 0:04.00, 0.60" in text(view)[-3]
    assert summary_of(one) == "game.mp4: 0:02.50 watched, 10 decisions, actions: 1"


def test_what_is_on_at_the_end_counts():
    view = View()
    sink = Progress(view)
    sink.open(Opened("camera:0", Status("camera:0"), CLASSES, refresh=lambda: None))
    sink.close(End([Event("started", "kick", 3.0, 2.75, 0.9), Event("ended", "kick", 3.0, 2.75, 0.9, 3.0)]))
    assert view.summary()[0].endswith("actions: 1")


def test_a_source_that_is_silent_is_looked_at():
    view = View()
    status = Status("camera:0")
    view.add(status, CLASSES, lambda: setattr(status, "link", "stalled"))
    assert text(view)[0].endswith("sends nothing")


def test_many_sources_get_a_line_each():
    view = View()
    for i in range(9):
        watch(view, f"camera:{i}", dropped=i)
    lines = text(view)
    assert [line.split()[0] for line in lines[:9]] == [f"camera:{i}" for i in range(9)]
    assert lines[8].rstrip().endswith("dropped 8") and "0.60 kick" in lines[0]
    assert text(view, height=5)[4] == "and 5 more"
    assert "camera:3" in text(view)[-1], "events say whose they are"


def test_without_unicode():
    view = View(ascii_only=True)
    watch(view, classes=CLASSES[:3] + ("dive", "Ambiguous"))
    assert all(line.isascii() for line in text(view)[1:]) and "#" in text(view)[1]


@settings(max_examples=40)
@example([""], [""], 72, 3)  # one line, and a number of seven digits in it
@given(
    st.lists(st.text(max_size=60), min_size=1, max_size=12),
    st.lists(st.text(max_size=40), unique=True, max_size=30),
    st.integers(50, 220),
    st.integers(3, 70),
)
def test_it_fits_and_steers_no_terminal(names, classes, width, height):
    view = View()
    for name in names:
        watch(view, name, tuple(classes), gaps=3, dropped=10**6)
    lines = text(view, width, height)
    assert len(lines) <= height
    assert all(line.isprintable() for line in lines)
    if len(names) == 1 and width >= 72:
        assert all(cells(line) <= width for line in lines)


@given(st.text(max_size=30), st.integers(3, 20))
def test_names_fit(name, width):
    name = clean(name)
    assert cells(shorten(name, width)) <= width and cells(fit(name, width)) == width
    assert shorten(name, 60) == name


def test_a_line_for_who_watches_no_terminal():
    one = watch(View(lambda: 0.0))
    one.status.dropped, one.status.link = 2, "lost"
    said = status_text(one, 4.0)
    assert said == (
        "game.mp4: 10/40 decisions, 0.0 a second, latency p50 10, p95 50 ms, dropped 2, connection lost, kick 0.60"
    )


@pytest.mark.parametrize(
    ("seconds", "said"), [(0, "0:00.00"), (83.25, "1:23.25"), (3599.75, "59:59.75"), (3661.5, "1:01:01")]
)
def test_clock(seconds, said):
    assert clock(seconds) == said


def test_the_last_line_of_a_source():
    speed = {"decisions_per_second": 3.98, "realtime_factor": 0.995, "processor_seconds_per_video_second": 0.0889}
    words = "3.98 decisions a second, 0.995 × real time, 0.0889 processor seconds for a second of video"
    assert speed_text({"speed": speed}) == words
    live = {"speed": {**speed, "latency_ms": {"p50": 110.4, "p95": 432.2}}, "live": {"dropped": 7}}
    text = speed_text(live, "door\x1b")
    assert text.startswith("door\ufffd: 3.98 decisions") and "latency p50 110, p95 432 ms, dropped 7" in text
    assert "real time" not in text and "never sent" not in text
    live["live"]["unseen"] = 12
    assert "dropped 7, 3 s that it never sent" in speed_text(live)

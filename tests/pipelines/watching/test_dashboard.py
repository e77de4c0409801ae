"""What the page of a service shows, in bounded memory."""

import base64
import gc
import tracemalloc
from datetime import timedelta

import numpy as np
import pytest

from lstr.pipelines.detection.decision import End
from lstr.pipelines.watching import dashboard as module
from lstr.pipelines.watching.dashboard import MAX_CHANGES, MAX_COLUMNS, NO_SCORE
from lstr.pipelines.watching.recorder import Snooze
from tests.support.watching import ACTIONS, START, Camera, dashboard_of, decision_of, event_of


@pytest.fixture
def dashboard(tmp_path):
    return dashboard_of(tmp_path, ("hall", "kitchen"))


def source_of(dashboard, name: str = "hall") -> dict:
    return next(source for source in dashboard.state()["sources"] if source["name"] == name)


def codes_shown(source: dict) -> np.ndarray:
    """(C, n), as a browser reads them."""
    data = np.frombuffer(base64.b64decode(source["codes"]), np.uint8)
    return data.reshape(len(source["classes"]), source["columns"])


def test_a_browser_gets_the_whole_state_and_then_what_changes(dashboard):
    camera, browser = Camera(dashboard, "hall"), dashboard.messages()
    (first,) = next(browser)
    assert first["kind"] == "state" and len(first["state"]["sources"]) == 2 and next(browser) == []
    camera.show(0.2, 0.9, 0.1)
    camera.show(0.2, 0.8, 0.1)
    dashboard.show_event(event_of(), "new")
    dashboard.snoozes = [Snooze("hall", None, START)]
    scores, source, event, snoozes = next(browser)
    assert codes_shown(scores | {"classes": ACTIONS})[1].tolist() == [229, 203] and scores["first"] == 0
    assert source["state"]["decided"] == 2 and event["phase"] == "new" and snoozes["snoozes"][0]["source"] == "hall"
    for _ in range(MAX_CHANGES + 1):
        dashboard.show_event(event_of(), "update")
    assert [message["kind"] for message in next(browser)] == ["state"], "it missed some"
    Camera(dashboard, "hall")
    assert [message["kind"] for message in next(browser)] == ["state"], "its classes may have changed"


def test_memory_does_not_grow(tmp_path, monkeypatch):
    """Days of decisions, of events that never end, and of frames."""
    monkeypatch.setattr(module, "MAX_ACTIVE", 100)
    monkeypatch.setattr(module, "MAX_CHANGES", 100)
    dashboard = dashboard_of(tmp_path)
    camera = Camera(dashboard, "hall")

    def run(n: int) -> None:
        for k in range(n):
            camera.show(0.1, 0.2, 0.3)
            if not k % 4:
                dashboard.show_event(event_of(start=START + timedelta(seconds=k)), "update")

    def size() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    run(MAX_COLUMNS)
    before = size()
    run(1200)
    grown = size() - before
    tracemalloc.stop()
    assert len(dashboard.state()["on"]) == 100 and grown < 50_000, grown


def test_columns_continue_when_a_source_is_opened_again(dashboard, monkeypatch):
    """Its chunks begin with 0 again; the time between has no scores."""
    seconds = [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: seconds[0])
    first = Camera(dashboard, "hall")
    for _ in range(3):
        first.show(0.1, 0.5, 0.2)
    first.sink.take(decision_of(4, (0.1, 0.5, 0.2), START))
    first.sink.close(End(error=ValueError("rtsp://u:hunter2@hall/s sent no frame.")))
    assert source_of(dashboard)["trouble"] == "rtsp://hall/s sent no frame."
    seconds[0] += 2
    again = Camera(dashboard, "hall")
    again.show(0.1, 0.7, 0.2)
    source = source_of(dashboard)
    assert codes_shown(source)[1].tolist() == [127] * 3 + [NO_SCORE, 127] + [NO_SCORE] * 8 + [178]
    assert source["trouble"] == "" and source["first"] == 0
    again.sink.take(decision_of(3 * MAX_COLUMNS, (0.1, 0.5, 0.2), START))
    codes = codes_shown(source_of(dashboard))
    assert codes.shape == (3, MAX_COLUMNS) and codes[1, -1] == 127 and (codes[:, :-1] == NO_SCORE).all()

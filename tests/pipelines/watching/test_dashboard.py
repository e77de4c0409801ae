"""What the page of a service shows, in bounded memory."""

import base64
import gc
import tracemalloc
from datetime import timedelta

import numpy as np

from lstr.pipelines.detection.decision import End
from lstr.pipelines.watching import dashboard as module
from lstr.pipelines.watching.dashboard import MAX_COLUMNS, NO_SCORE
from tests.support.watching import START, Camera, dashboard_of, decision_of, event_of


def codes_shown(source: dict) -> np.ndarray:
    """(C, n), as a browser reads them."""
    data = np.frombuffer(base64.b64decode(source["codes"]), np.uint8)
    return data.reshape(len(source["classes"]), source["columns"])


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


def test_columns_continue_when_a_source_is_opened_again(tmp_path, monkeypatch):
    """Its chunks begin with 0 again; the time between has no scores."""
    dashboard, seconds = dashboard_of(tmp_path), [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: seconds[0])
    first = Camera(dashboard, "hall")
    for _ in range(3):
        first.show(0.1, 0.5, 0.2)
    first.sink.take(decision_of(4, (0.1, 0.5, 0.2), START))
    first.sink.close(End(error=ValueError("rtsp://u:hunter2@hall/s sent no frame.")))
    assert dashboard.state()["sources"][0]["trouble"] == "rtsp://hall/s sent no frame."
    seconds[0] += 2
    again = Camera(dashboard, "hall")
    again.show(0.1, 0.7, 0.2)
    source = dashboard.state()["sources"][0]
    assert codes_shown(source)[1].tolist() == [127] * 3 + [NO_SCORE, 127] + [NO_SCORE] * 8 + [178]
    assert source["trouble"] == "" and source["first"] == 0
    again.sink.take(decision_of(3 * MAX_COLUMNS, (0.1, 0.5, 0.2), START))
    codes = codes_shown(dashboard.state()["sources"][0])
    assert codes.shape == (3, MAX_COLUMNS) and codes[1, -1] == 127 and (codes[:, :-1] == NO_SCORE).all()

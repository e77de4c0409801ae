"""The state that the page of a service shows."""

import base64
import gc
import tracemalloc
from datetime import timedelta

import numpy as np

from lstr.pipelines.detection.decision import End
from lstr.pipelines.watching import dashboard as module
from lstr.pipelines.watching.dashboard import MAX_COLUMNS, NO_SCORE
from tests.support.watching import START, Camera, dashboard_of, decision_of, event_of


def decode_codes(source: dict) -> np.ndarray:
    """Return codes (C, n) as a browser reads them."""
    data = np.frombuffer(base64.b64decode(source["codes"]), np.uint8)
    return data.reshape(len(source["classes"]), source["columns"])


def test_memory_does_not_grow(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_ACTIVE", 100)
    monkeypatch.setattr(module, "MAX_CHANGES", 100)
    dashboard = dashboard_of(tmp_path)
    camera = Camera(dashboard, "hall")

    def run(n: int) -> None:
        for k in range(n):
            camera.show(0.1, 0.2, 0.3)
            if not k % 4:
                dashboard.show_event(event_of(start=START + timedelta(seconds=k)), "update")

    sizes = []
    tracemalloc.start()
    for n in (MAX_COLUMNS, 1200):
        run(n)
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert len(dashboard.state()["on"]) == 100 and sizes[1] < sizes[0] + 50_000


def test_columns_continue_after_a_reconnection(tmp_path, monkeypatch):
    """The chunks begin with 0 again, and the time between has no scores."""
    dashboard, seconds = dashboard_of(tmp_path), [100.0]
    monkeypatch.setattr(module, "monotonic", lambda: seconds[0])
    first = Camera(dashboard, "hall")
    for _ in range(3):
        first.show(0.1, 0.5, 0.2)
    first.sink.take(decision_of(4, (0.1, 0.5, 0.2), START))
    first.sink.close(End(error=ValueError("rtsp://u:hunter2@hall/s sent no frame.")))
    assert dashboard.state()["sources"][0]["trouble"] == "rtsp://hall/s sent no frame."
    seconds[0] += 2
    second = Camera(dashboard, "hall")
    second.show(0.1, 0.7, 0.2)
    source = dashboard.state()["sources"][0]
    assert decode_codes(source)[1].tolist() == [127] * 3 + [NO_SCORE, 127] + [NO_SCORE] * 8 + [178]
    assert source["trouble"] == "" and source["first"] == 0
    second.sink.take(decision_of(3 * MAX_COLUMNS, (0.1, 0.5, 0.2), START))
    codes = decode_codes(dashboard.state()["sources"][0])
    assert codes.shape == (3, MAX_COLUMNS) and codes[1, -1] == 127 and (codes[:, :-1] == NO_SCORE).all()

"""Health and numbers of a service, as programs read them."""

from starlette.applications import Starlette

from lstr.pipelines.pages.server import Server
from lstr.pipelines.watching import health
from lstr.pipelines.watching.health import PATHS, Health
from tests.support.requests import Visitor
from tests.support.watching import Camera, board_of, event_of


def health_of(board) -> Health:
    return Health(board, dict, None)


def test_its_numbers(tmp_path):
    board = board_of(tmp_path, ("hall", "door"))
    Camera(board, "hall").show(0.2, 0.7, 0.1)
    event = event_of()
    board.history.begin(event, [], event.start)
    with Server(Starlette(routes=health_of(board).routes()), port=0, open_paths=PATHS) as server:
        visitor = Visitor(server.address)
        text = visitor.ask("/metrics").body.decode()
    assert 'lstr_source_decided_total{source="hall"} 1.0' in text
    assert 'lstr_source_lag_seconds{source="hall"} 0.12' in text
    assert 'lstr_events{action="fall",source="hall"} 1.0' in text
    assert "hunter2" not in text and server.address.partition("token=")[2] not in text


def test_silence_is_no_health(tmp_path, monkeypatch):
    board = board_of(tmp_path, ("hall", "door"))
    assert not health_of(board).silent()
    monkeypatch.setattr(health, "SILENT_SECONDS", -1.0)
    with Server(Starlette(routes=health_of(board).routes()), port=0, open_paths=PATHS) as server:
        visitor = Visitor(server.address)
        assert visitor.ask("/healthz").status == 503
        for name in ("hall", "door"):
            board.source(name, paused=True)
        assert visitor.ask("/healthz").status == 200


def test_numbers_are_counted_once_a_second(tmp_path, monkeypatch):
    """Anybody may ask, without a pause."""
    board, counted = board_of(tmp_path, ("hall", "door")), []
    counts = board.history.counts
    monkeypatch.setattr(board.history, "counts", lambda: counted.append(1) or counts())
    monkeypatch.setattr(health, "TOLD_SECONDS", 60.0)
    with Server(Starlette(routes=health_of(board).routes()), port=0, open_paths=PATHS) as server:
        visitor = Visitor(server.address)
        assert len({visitor.ask("/metrics", cookie="").body for _ in range(5)}) == 1 and len(counted) == 1
        monkeypatch.setattr(health, "TOLD_SECONDS", 0.0)
        visitor.ask("/metrics", cookie="")
    assert len(counted) == 2

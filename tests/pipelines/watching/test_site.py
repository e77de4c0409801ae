"""The server of a watching service: what it shows, what may be done to it, and by whom."""

import socket
from datetime import timedelta
from urllib.parse import quote

import cv2
import numpy as np
import pytest

from lstr.errors import LstrError
from lstr.pipelines.pages.server import Server
from lstr.pipelines.watching import site
from lstr.pipelines.watching.site import WatchSite
from tests.support.requests import Visitor
from tests.support.watching import HOSTILE, START, Calls, Camera, dashboard_of, event_of


class Watched:
    """A served board with two cameras, and what the page has wanted of the service."""

    def __init__(self, folder):
        self.dashboard, self.calls, self.folder = dashboard_of(folder), Calls(), folder
        self.cameras = [Camera(self.dashboard, name) for name in ("hall", HOSTILE)]
        for camera in self.cameras:
            for _ in range(4):
                camera.show(0.2, 0.7, 0.1)
        self.events = [event_of(start=START - timedelta(hours=k), top_score=0.9 - k / 10) for k in range(4)]
        for event in self.events:
            self.dashboard.history.begin(event, (), START)
        self.site = WatchSite(self.dashboard, self.calls, lambda: self.server.ending)
        self.server = Server(self.site.app(), port=0, open_paths=site.OPEN_PATHS)


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    watched = Watched(tmp_path_factory.mktemp("watched"))
    with watched.server:
        yield watched


@pytest.fixture
def visitor(watched):
    watched.calls.done.clear()
    return Visitor(watched.server.address)


def stream_of(visitor) -> socket.socket:
    """A connection that has sent its request and has read nothing."""
    opened = socket.create_connection((visitor.host, visitor.port), timeout=10)
    request = f"GET /stream HTTP/1.1\r\nHost: {visitor.host}:{visitor.port}\r\nCookie: {visitor.cookie}\r\n\r\n"
    opened.sendall(request.encode())
    return opened


def read_until(opened: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        piece = opened.recv(65536)
        assert piece, data
        data += piece
    return data


def test_the_page_holds_no_markup_of_others(watched, visitor):
    page = visitor.ask("/").body.decode()
    assert HOSTILE not in page and "hunter2" not in page and "default-src 'none'" in page
    addresses = [part.partition('"')[0] for part in page.replace("src=", "href=").split('href="')[1:]]
    assert all(one.startswith("data:") for one in addresses), "nothing is fetched from another host or the root"


def test_the_state_a_picture_and_a_stream_of_changes(watched, visitor):
    state = visitor.ask("/state").json
    assert [source["name"] for source in state["sources"]] == ["hall", HOSTILE]
    for name in ("hall", HOSTILE):
        answer = visitor.ask(f"/picture/{quote(name)}?4")
        shown = cv2.imdecode(np.frombuffer(answer.body, np.uint8), cv2.IMREAD_COLOR)
        assert shown.shape == (48, 64, 3) and answer.headers["content-type"] == "image/jpeg"
    for name in ("nobody", "..%2f..%2fetc%2fpasswd", "%00"):
        assert visitor.ask(f"/picture/{name}").status == 404
    with stream_of(visitor) as opened:
        text = read_until(opened, b'"kind":"state"').decode()
        watched.cameras[0].show(0.2, 0.7, 0.1)
        read_until(opened, b'"kind":"scores"')
    assert "text/event-stream" in text and "no-store" in text


def test_events_by_what_is_wanted(watched, visitor):
    def ids(query: str) -> list[str]:
        return [event["id"] for event in visitor.ask(f"/events?{query}").json["events"]]

    every = [event.id for event in watched.events]
    assert ids("") == every and ids("limit=2") == every[:2] and ids(f"before={every[1]}") == every[2:]
    assert ids("score=0.75") == every[:2] and ids("action=wave") == [] == ids("source=kitchen")
    assert ids(f"day={START:%Y-%m-%d}&source=hall&action=fall") == every and ids("day=2020-01-01") == []
    for wrong in ("day=yesterday", "score=x", "limit=many", "before=../../x", "unknown=1", "day=9999-12-31"):
        assert visitor.ask(f"/events?{wrong}").status == 400


def test_a_verdict_is_kept(watched, visitor):
    event_id = watched.events[1].id
    for verdict in ("right", "wrong", ""):
        told = visitor.ask(f"/event/{event_id}/verdict", {"verdict": verdict})
        assert told.json["event"]["verdict"] == verdict == watched.dashboard.history.find(event_id).verdict
    assert visitor.ask(f"/event/{event_id}/verdict", {"verdict": "perhaps"}).status == 400
    assert visitor.ask("/event/20200101T000000-00000000/verdict", {"verdict": "right"}).status == 404


def test_clips_are_those_of_events_alone(watched, visitor):
    event_id = watched.events[0].id
    path = watched.folder / "clip.mp4"
    path.write_bytes(bytes(range(100)))
    watched.calls.files[event_id] = path
    part = visitor.ask(f"/clip/{event_id}", range="bytes=10-19")
    assert part.status == 206 and part.body == bytes(range(10, 20)) and part.headers["content-type"] == "video/mp4"
    path.unlink()
    assert visitor.ask(f"/clip/{event_id}").status == 404, "it was deleted while in use"
    odd = ["history.sqlite", "..%2fhistory.sqlite", "....//x", f"{event_id}%00", "%2e%2e", "..%5chistory.sqlite"]
    for name in (*odd, f"{event_id.upper()}x", "%252e%252e%252fhistory.sqlite", f"{event_id}/../history.sqlite"):
        watched.calls.files[name] = watched.folder / "history.sqlite"
        assert visitor.ask(f"/clip/{name}").status == 404 == visitor.ask(f"/thumb/{name}").status


def test_what_a_person_does_reaches_the_service(watched, visitor):
    hostile = "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E"
    asked = [
        ("/source/hall/pause", {}, ("pause", "hall", True)),
        (f"/source/{hostile}/resume", {}, ("pause", HOSTILE, False)),
        ("/source/hall/remove", {}, ("remove", "hall")),
        ("/sources", {"name": "garage", "address": "rtsp://garage/s"}, ("add", "garage", "rtsp://garage/s")),
        ("/snooze", {"source": "hall", "action": "fall", "seconds": 60}, ("snooze", "hall", "fall", 60.0)),
        ("/snooze", {}, ("snooze", None, None, 3600.0)),
        ("/snooze", {"source": "gone", "action": "fall", "seconds": 0}, ("snooze", "gone", "fall", 0.0)),
        ("/source/hall/zones", {"zones": [[[0, 0], [1, 0], [0, 1]]]}, ("draw", "hall", (((0, 0), (1, 0), (0, 1)),))),
        ("/source/hall/zones", {"zones": []}, ("draw", "hall", ())),
        (f"/source/{hostile}/zones", {"zones": None}, ("draw", HOSTILE, None)),
    ]
    for path, body, _ in asked:
        assert visitor.ask(path, body).status == 200
    assert watched.calls.done == [deed for _, _, deed in asked]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/source/nobody/pause", {}, 404),
        ("/source/hall/explode", {}, 404),
        ("/source/hall/pause", {"force": True}, 400),
        ("/source/hall/pause", b"{", 400),
        ("/source/hall/pause", b"[" * 10000, 400),
        ("/source/hall/pause", b" " * 20000, 413),
        ("/sources", {"name": "../x", "address": "rtsp://a"}, 400),
        ("/sources", {"name": HOSTILE, "address": "rtsp://a"}, 400),
        ("/sources", {"name": "x"}, 400),
        ("/sources", {"name": "x", "address": "a" * 3000}, 400),
        ("/snooze", {"source": "nobody"}, 400),
        ("/snooze", {"seconds": -1}, 400),
        ("/snooze", {"seconds": True}, 400),
        ("/snooze", b'{"seconds": NaN}', 400),
        ("/source/nobody/zones", {"zones": []}, 404),
        ("/source/hall/zones", {}, 400),
        ("/source/hall/zones", {"zones": [], "force": True}, 400),
        ("/source/hall/zones", {"zones": [[[0, 0], [1, 0], [0, 1.5]]]}, 400),
        ("/source/hall/zones", {"zones": [[[0, 0], [1, 0], [0, 1]]] * 17}, 400),
        ("/source/hall/zones", b'{"zones": [[[0, 0], [1, 0], [0, NaN]]]}', 400),
        ("/source/hall/zones", b'{"zones": [[[0, 0], [1, 0], [0, 1e999]]]}', 400),
    ],
)
def test_what_is_no_wish_changes_nothing(watched, visitor, path, body, status):
    assert visitor.ask(path, body).status == status and watched.calls.done == []
    assert visitor.ask(path, body, content_type="text/plain").status in (404, 413, 415)
    assert visitor.ask(path, body, sec_fetch_site="cross-site").status in (403, 404, 413)
    assert visitor.ask(path).status == 405 and watched.calls.done == []


def test_why_the_service_refuses(watched, visitor):
    watched.calls.refuse = LstrError("rtsp://u:hunter2@garage/s is no video.", "name another: rtsp://u:hunter2@hall/s.")
    told = visitor.ask("/source/hall/pause", {})
    watched.calls.refuse = None
    assert told.status == 400 and told.json == {
        "error": "rtsp://garage/s is no video.",
        "hint": "name another: rtsp://hall/s.",
    }


def test_silence_is_not_healthy(watched, visitor, monkeypatch):
    assert visitor.ask("/healthz", cookie="").status == 200
    monkeypatch.setattr(site, "SILENT_S", -1.0)
    assert visitor.ask("/healthz", cookie="").status == 503
    for name in watched.dashboard.names:
        watched.dashboard.update_source(name, paused=True)
    assert visitor.ask("/healthz", cookie="").status == 200
    for name in watched.dashboard.names:
        watched.dashboard.update_source(name, paused=False)

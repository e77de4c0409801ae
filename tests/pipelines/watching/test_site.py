"""The server of a watching service: its state in bounded memory, requests that change the service, and secrets."""

import base64
import gc
import logging
import tracemalloc
from contextlib import closing
from datetime import timedelta
from http.client import HTTPConnection
from urllib.parse import quote

import cv2
import numpy as np
import pytest

from lstr.pipelines.detection.decision import End
from lstr.pipelines.watching import dashboard as module
from lstr.pipelines.watching import service as service_module
from lstr.pipelines.watching import site
from lstr.pipelines.watching.dashboard import MAX_COLUMNS, NO_SCORE, Dashboard
from lstr.timeline import Person
from tests.support.requests import Visitor
from tests.support.waiting import TIMEOUT_S, wait_until
from tests.support.watching import HOSTILE, START, Camera, decision_of, event_of, recent_event


def decode_codes(source: dict) -> np.ndarray:
    data = np.frombuffer(base64.b64decode(source["codes"]), np.uint8)
    return data.reshape(len(source["classes"]), source["columns"])


def test_memory_does_not_grow(history, monkeypatch):
    for name in ("MAX_ACTIVE", "MAX_CHANGES", "MAX_COLUMNS"):
        monkeypatch.setattr(module, name, 100)
    dashboard, sizes = Dashboard(history), []
    dashboard.update_source("hall")
    camera = Camera(dashboard, "hall")
    tracemalloc.start()
    for _ in range(2):
        for k in range(500):
            camera.show(0.1, 0.2, 0.3)
            if not k % 4:
                dashboard.show_event(event_of(start=START + timedelta(seconds=k)), "update")
        gc.collect()
        sizes.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert len(dashboard.state()["on"]) == 100 and sizes[1] < sizes[0] + 50_000


def test_columns_continue_after_a_reconnection(history, monkeypatch):
    """The chunks begin with 0 again, and the time between has no scores."""
    dashboard, seconds = Dashboard(history), [100.0]
    dashboard.update_source("hall")
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


def test_people_are_drawn_on_frames_or_on_black(history):
    frame, person = np.full((60, 80, 3), 90, np.uint8), Person(1, (0.2, 0.2, 0.5, 0.8), np.zeros((17, 3), np.float32))
    for shows_images in (True, False):
        dashboard = Dashboard(history, shows_images)
        dashboard.update_source("hall", frame=frame, number=1, people=[person])
        image = cv2.imdecode(np.frombuffer(dashboard.image("hall"), np.uint8), cv2.IMREAD_COLOR)
        assert abs(int(image[30, 70].max()) - (90 if shows_images else 0)) < 5
        assert image[30, 14:18].max() > 200, "the left side of the box"


SECRETS = ("hunter2", "hunter3", "hunter4", "hunter5", "hunter6")
CHANNELS = """
hook = { kind = "webhook", url = "http://u:hunter2@127.0.0.1:9/x", secret = "hunter3" }
house = { kind = "mqtt", host = "127.0.0.1", port = 9, user = "u", password = "hunter4" }
phone = { kind = "apprise", url = "json://u:hunter5@127.0.0.1:9/x" }
"""
ADDRESS = "http://127.0.0.1:9/x"
ZONE = [[0, 0], [1, 0], [0, 1]]


@pytest.fixture
def service(start_service, idle):
    """A service without a model, with two cameras on its dashboard."""
    with start_service("[clips]") as running:
        running.dashboard.update_source(HOSTILE)
        for name in ("hall", HOSTILE):
            camera = Camera(running.dashboard, name)
            for _ in range(4):
                camera.show(0.2, 0.7, 0.1)
        yield running


@pytest.fixture
def visitor(service):
    return Visitor(service.server.address)


@pytest.fixture
def events(service):
    """Four events of an action, the latest first."""
    stored = [event_of(start=START - timedelta(hours=k), top_score=0.9 - k / 10) for k in range(4)]
    for event in stored:
        service.history.begin(event, ())
    return stored


def test_page_state_and_frames(visitor):
    page = visitor.ask("/").body.decode()
    assert HOSTILE not in page and "hunter2" not in page and "default-src 'none'" in page
    assert [source["name"] for source in visitor.ask("/state").json["sources"]] == ["hall", HOSTILE]
    for name in ("hall", HOSTILE):
        answer = visitor.ask(f"/frame/{quote(name)}?4")
        frame = cv2.imdecode(np.frombuffer(answer.body, np.uint8), cv2.IMREAD_COLOR)
        assert frame.shape == (48, 64, 3) and answer.headers["content-type"] == "image/jpeg"
    for name in ("unknown", "..%2f..%2fetc%2fpasswd", "%00"):
        assert visitor.ask(f"/frame/{name}").status == 404


def test_the_stream_has_the_state_and_its_changes(service, visitor):
    with closing(HTTPConnection(visitor.host, visitor.port, timeout=TIMEOUT_S)) as connection:
        connection.request("GET", "/stream", headers={"cookie": visitor.cookie})
        answer = connection.getresponse()
        assert "text/event-stream" in answer.headers["content-type"] and "no-store" in answer.headers["cache-control"]
        assert any(b'"kind":"state"' in line for line in answer)
        Camera(service.dashboard, "hall").show(0.2, 0.7, 0.1)
        assert any(b'"kind":"s' in line for line in answer)


def test_queries_of_events(events, visitor):
    def ids(query: str) -> list[str]:
        return [event["id"] for event in visitor.ask(f"/events?{query}").json["events"]]

    every = [event.id for event in events]
    assert ids("") == every and ids("limit=2") == every[:2] and ids(f"before={every[1]}") == every[2:]
    assert ids("score=0.75") == every[:2] and ids("action=wave") == [] == ids("source=kitchen")
    assert ids(f"day={START:%Y-%m-%d}&source=hall&action=fall") == every and ids("day=2020-01-01") == []
    for query in ("day=yesterday", "score=x", "limit=many", "before=../../x", "unknown=1", "day=9999-12-31"):
        assert visitor.ask(f"/events?{query}").status == 400


def test_clips_and_verdicts_need_the_id_of_an_event(service, events, visitor):
    event_id = events[0].id
    path = service.clips.folder / f"{event_id}.mp4"
    path.write_bytes(bytes(range(100)))
    part = visitor.ask(f"/clip/{event_id}", range="bytes=10-19")
    assert part.status == 206 and part.body == bytes(range(10, 20)) and part.headers["content-type"] == "video/mp4"
    path.unlink()
    assert visitor.ask(f"/clip/{event_id}").status == 404
    names = ["history.sqlite", "..%2fhistory.sqlite", "....//x", f"{event_id}%0a", "%2e%2e", "..%5chistory.sqlite"]
    for name in (*names, f"{event_id.upper()}x", "%252e%252e%252fhistory.sqlite", f"{event_id}/../history.sqlite"):
        assert visitor.ask(f"/clip/{name}").status == 404 == visitor.ask(f"/thumb/{name}").status
    for verdict in ("right", "wrong", ""):
        answer = visitor.ask(f"/event/{event_id}/verdict", {"verdict": verdict})
        assert answer.json["event"]["verdict"] == verdict == service.history.find(event_id).verdict
    assert visitor.ask(f"/event/{event_id}/verdict", {"verdict": "perhaps"}).status == 400
    assert visitor.ask("/event/20200101T000000-00000000/verdict", {"verdict": "right"}).status == 404


def test_invalid_requests_change_nothing(service, visitor):
    def state() -> tuple:
        return service.paused, {*service.sources}, service.policy.snoozes(), dict(service.zones)

    before, path, zones = state(), "/source/hall/pause", "/source/hall/zones"
    for request, status, *bodies in (
        ("/source/unknown/pause", 404, {}),
        ("/source/hall/explode", 404, {}),
        (path, 400, {"force": True}, b"{", b"[" * 10000),
        (path, 413, b" " * 20000),
        ("/sources", 400, {"name": "../x", "address": ADDRESS}, {"name": "x" * 65, "address": ADDRESS}),
        ("/sources", 400, {"name": "x"}, {"name": "x", "address": "a" * 3000}),
        ("/snooze", 400, {"source": "unknown"}, {"seconds": -1}, {"seconds": True}, b'{"seconds": NaN}'),
        ("/source/unknown/zones", 404, {"zones": []}),
        (zones, 400, {}, {"zones": [], "force": True}, {"zones": [[[0, 0], [1, 0], [0, 1.5]]]}, {"zones": [ZONE] * 17}),
        (zones, 400, *(b'{"zones": [[[0, 0], [1, 0], [0, %s]]]}' % value for value in (b"NaN", b"1e999"))),
    ):
        for body in bodies:
            assert visitor.ask(request, body).status == status, (request, body)
    assert visitor.ask(path, b"{}", content_type="text/plain").status == 415
    assert visitor.ask(path, {}, sec_fetch_site="cross-site").status == 403 and visitor.ask(path).status == 405
    assert state() == before
    for drawn, expected in (([ZONE], (((0, 0), (1, 0), (0, 1)),)), ([], ())):
        assert visitor.ask(zones, {"zones": drawn}).status == 200 and service.zones["hall"] == expected


def test_silent_sources_are_unhealthy_unless_paused(service, visitor, monkeypatch):
    assert visitor.ask("/healthz", cookie="").status == 200
    monkeypatch.setattr(site, "SILENT_S", -1.0)
    assert visitor.ask("/healthz", cookie="").status == 503
    for name in service.dashboard.names:
        service.dashboard.update_source(name, paused=True)
    assert visitor.ask("/healthz", cookie="").status == 200


def test_a_source_is_an_address_of_a_host_without_more_requests(service, visitor):
    for address in (
        *("file:///etc/passwd", "/etc/passwd", "etc/passwd", "-", "env:HOME", "file:secret", "file:/etc/passwd"),
        *("concat:/etc/passwd", "concat://x", "data://x", "subfile,,start,0,end,9,,:/etc/passwd", "pipe:0", "fd:"),
        *("unix:///run/x.sock", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x", "lavfi://testsrc", "crypto:http://x"),
        *("http://x:6379/\r\nFLUSHALL", "http://x/\nHost: y", "rtsp://x/ HTTP/1.1", "rtsp://x/\0", "http+file://x"),
    ):
        answer = visitor.ask("/sources", {"name": "x", "address": address})
        assert answer.status == 400 and answer.json["error"], address
    assert [*service.sources] == ["hall"]


def test_sources_and_snoozes_are_bounded(service, visitor, monkeypatch):
    monkeypatch.setattr(service_module, "MAX_SOURCES", 3)
    statuses = [visitor.ask("/sources", {"name": f"x{k}", "address": ADDRESS}).status for k in range(5)]
    assert statuses == [200, 200, 400, 400, 400] and len(service.sources) == 3
    visitor.ask("/source/x1/remove", {})
    for k in range(4):  # a new name each time
        assert visitor.ask("/sources", {"name": f"y{k}", "address": ADDRESS}).status == 200
        assert visitor.ask("/snooze", {"source": f"y{k}", "seconds": 3600}).status == 200
        assert len(service.policy.snoozes()) == 1
        assert visitor.ask(f"/source/y{k}/remove", {}).status == 200
    assert service.policy.snoozes() == [] == visitor.ask("/state").json["snoozes"]


@pytest.mark.long
def test_secrets_stay_hidden(start_service, small_set, tmp_path, fast_starts, caplog, capsys):
    """Passwords of a source and of channels that fail; the address of an added source is stored for its owner only."""
    caplog.set_level(logging.DEBUG)
    address = "http://u:hunter6@127.0.0.1:9/hall?token=hunter6"
    with start_service(f"[channels]{CHANNELS}", model=small_set.checkpoint, hall=address) as service:
        visitor, event = Visitor(service.server.address), recent_event()
        service.history.begin(event, ["hook", "house", "phone"])
        service.notifications.wake()
        wait_until(lambda: all(delivery.failed for delivery in service.notifications.deliveries.values()))
        wait_until(lambda: service.status().get("hall") or service.dashboard.state()["sources"][0]["trouble"])
        paths = ("/", "/state", "/events", "/healthz", "/missing", f"/clip/{event.id}")
        answers = [visitor.ask(path) for path in paths]
        answers.append(visitor.ask("/sources", {"name": "hall", "address": address}))
        answers.append(visitor.ask("/sources", {"name": "x", "address": address.replace("http:", "odd:")}))
        text = "".join(f"{answer.headers}{answer.body.decode()}" for answer in answers)
        text += f"{service.messages}{service.config}{service.status()}{service.sources}"
        text += caplog.text + "".join(capsys.readouterr())
        token = service.server.address.partition("token=")[2]
        assert not [secret for secret in (*SECRETS, token) if secret in text.replace(f"={token};", "")]
        added = {"name": "added", "address": address.replace("hunter6", "hunter7")}
        assert visitor.ask("/sources", added).status == 200
        assert "hunter7" not in visitor.ask("/state").body.decode()
    stored = {path: path.read_bytes() for path in (tmp_path / "watch.data").iterdir()}
    assert not [path for path, data in stored.items() if any(secret.encode() in data for secret in SECRETS)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in stored) and any(b"hunter7" in d for d in stored.values())

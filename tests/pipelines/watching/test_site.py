"""The server of a watching service: what it shows, what may be done to the service, by whom, and what stays secret."""

import logging
import socket
from datetime import timedelta
from urllib.parse import quote

import cv2
import numpy as np
import pytest

from lstr.pipelines.watching import service, site
from tests.pipelines.watching.test_history import event
from tests.support.requests import Visitor
from tests.support.waiting import wait_until
from tests.support.watching import HOSTILE, START, Camera, event_of

LONG = 60.0  # seconds that a busy machine may take
SECRETS = ("hunter2", "hunter3", "hunter4", "hunter5", "hunter6")


@pytest.fixture
def watching(unanswered, idle):
    """A service without a model, whose dashboard shows two cameras."""
    with unanswered("[clips]") as opened:
        opened.dashboard.update_source(HOSTILE)
        for name in ("hall", HOSTILE):
            camera = Camera(opened.dashboard, name)
            for _ in range(4):
                camera.show(0.2, 0.7, 0.1)
        yield opened


@pytest.fixture
def visitor(watching):
    return Visitor(watching.server.address)


@pytest.fixture
def events(watching):
    """Four events of an action, the latest first."""
    found = [event_of(start=START - timedelta(hours=k), top_score=0.9 - k / 10) for k in range(4)]
    for one in found:
        watching.history.begin(one, (), START)
    return found


def read_until(opened: socket.socket, wanted: bytes) -> bytes:
    data = b""
    while wanted not in data:
        piece = opened.recv(65536)
        assert piece, data
        data += piece
    return data


def test_the_page_the_state_a_picture_and_a_stream_of_changes(watching, visitor):
    page = visitor.ask("/").body.decode()
    assert HOSTILE not in page and "hunter2" not in page and "default-src 'none'" in page
    addresses = [part.partition('"')[0] for part in page.replace("src=", "href=").split('href="')[1:]]
    assert all(one.startswith("data:") for one in addresses), "nothing is fetched from another host or the root"
    assert [source["name"] for source in visitor.ask("/state").json["sources"]] == ["hall", HOSTILE]
    for name in ("hall", HOSTILE):
        answer = visitor.ask(f"/frame/{quote(name)}?4")
        shown = cv2.imdecode(np.frombuffer(answer.body, np.uint8), cv2.IMREAD_COLOR)
        assert shown.shape == (48, 64, 3) and answer.headers["content-type"] == "image/jpeg"
    for name in ("nobody", "..%2f..%2fetc%2fpasswd", "%00"):
        assert visitor.ask(f"/frame/{name}").status == 404
    with socket.create_connection((visitor.host, visitor.port), timeout=10) as opened:
        head = f"GET /stream HTTP/1.1\r\nHost: {visitor.host}:{visitor.port}\r\nCookie: {visitor.cookie}\r\n\r\n"
        opened.sendall(head.encode())
        text = read_until(opened, b'"kind":"state"').decode()
        Camera(watching.dashboard, "hall").show(0.2, 0.7, 0.1)
        read_until(opened, b'"kind":"s')
    assert "text/event-stream" in text and "no-store" in text


def test_events_by_what_is_wanted(events, visitor):
    def ids(query: str) -> list[str]:
        return [event["id"] for event in visitor.ask(f"/events?{query}").json["events"]]

    every = [event.id for event in events]
    assert ids("") == every and ids("limit=2") == every[:2] and ids(f"before={every[1]}") == every[2:]
    assert ids("score=0.75") == every[:2] and ids("action=wave") == [] == ids("source=kitchen")
    assert ids(f"day={START:%Y-%m-%d}&source=hall&action=fall") == every and ids("day=2020-01-01") == []
    for wrong in ("day=yesterday", "score=x", "limit=many", "before=../../x", "unknown=1", "day=9999-12-31"):
        assert visitor.ask(f"/events?{wrong}").status == 400


def test_clips_are_those_of_events_alone_and_a_verdict_is_kept(watching, events, visitor):
    event_id = events[0].id
    path = watching.clips.folder / f"{event_id}.mp4"
    path.write_bytes(bytes(range(100)))
    part = visitor.ask(f"/clip/{event_id}", range="bytes=10-19")
    assert part.status == 206 and part.body == bytes(range(10, 20)) and part.headers["content-type"] == "video/mp4"
    path.unlink()
    assert visitor.ask(f"/clip/{event_id}").status == 404, "it was deleted while in use"
    odd = ["history.sqlite", "..%2fhistory.sqlite", "....//x", f"{event_id}%00", "%2e%2e", "..%5chistory.sqlite"]
    for name in (*odd, f"{event_id.upper()}x", "%252e%252e%252fhistory.sqlite", f"{event_id}/../history.sqlite"):
        assert visitor.ask(f"/clip/{name}").status == 404 == visitor.ask(f"/thumb/{name}").status
    for verdict in ("right", "wrong", ""):
        told = visitor.ask(f"/event/{event_id}/verdict", {"verdict": verdict})
        assert told.json["event"]["verdict"] == verdict == watching.history.find(event_id).verdict
    assert visitor.ask(f"/event/{event_id}/verdict", {"verdict": "perhaps"}).status == 400
    assert visitor.ask("/event/20200101T000000-00000000/verdict", {"verdict": "right"}).status == 404


ZONE = [[0, 0], [1, 0], [0, 1]]


def changes_of(watching) -> tuple:
    return watching.paused, {*watching.sources}, watching.policy.snoozes(), watching.zones


def test_what_is_no_wish_changes_nothing(watching, visitor):
    before = changes_of(watching)
    for path, body, status in (
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
        ("/source/hall/zones", {"zones": [ZONE] * 17}, 400),
        ("/source/hall/zones", b'{"zones": [[[0, 0], [1, 0], [0, NaN]]]}', 400),
        ("/source/hall/zones", b'{"zones": [[[0, 0], [1, 0], [0, 1e999]]]}', 400),
    ):
        assert visitor.ask(path, body).status == status, (path, body)
    path = "/source/hall/pause"
    assert visitor.ask(path, b"{}", content_type="text/plain").status == 415
    assert visitor.ask(path, {}, sec_fetch_site="cross-site").status == 403 and visitor.ask(path).status == 405
    assert changes_of(watching) == before
    for zones, kept in (([ZONE], (((0, 0), (1, 0), (0, 1)),)), ([], ())):
        assert visitor.ask("/source/hall/zones", {"zones": zones}).status == 200 and watching.zones["hall"] == kept


def test_silence_is_not_healthy(watching, visitor, monkeypatch):
    assert visitor.ask("/healthz", cookie="").status == 200
    monkeypatch.setattr(site, "SILENT_S", -1.0)
    assert visitor.ask("/healthz", cookie="").status == 503
    for name in watching.dashboard.names:
        watching.dashboard.update_source(name, paused=True)
    assert visitor.ask("/healthz", cookie="").status == 200


def test_a_page_adds_no_file_and_no_request_of_its_own(watching, visitor):
    """Where a page's user may lead this machine: to hosts, for cameras are hosts; never to what lies on it."""
    local = ["file:///etc/passwd", "/etc/passwd", "etc/passwd", "-", "env:HOME", "file:secret", "file:/etc/passwd"]
    local += ["concat:/etc/passwd", "concat://x", "data://x", "subfile,,start,0,end,9,,:/etc/passwd", "pipe:0", "fd:"]
    local += ["unix:///run/x.sock", "ftp://127.0.0.1/x", "gopher://127.0.0.1/x", "lavfi://testsrc", "crypto:http://x"]
    local += [
        "http://127.0.0.1:6379/\r\nFLUSHALL",
        "http://x/\nHost: y",
        "rtsp://x/ HTTP/1.1",
        "rtsp://x/\0",
        "http+file://x",
    ]
    for address in local:
        told = visitor.ask("/sources", {"name": "x", "address": address})
        assert told.status == 400 and told.json["error"], address
    assert [*watching.sources] == ["hall"]


def test_sources_and_snoozes_are_bounded(watching, visitor, monkeypatch):
    monkeypatch.setattr(service, "MAX_SOURCES", 3)
    address = "http://127.0.0.1:9/x"
    statuses = [visitor.ask("/sources", {"name": f"x{k}", "address": address}).status for k in range(5)]
    assert statuses == [200, 200, 400, 400, 400] and len(watching.sources) == 3
    assert visitor.ask("/sources", {"name": "x" * 65536, "address": address}).status == 413
    assert visitor.ask("/sources", {"name": "x" * 65, "address": address}).status == 400
    visitor.ask("/source/x1/remove", {})
    for k in range(4):  # a name that is new each time
        assert visitor.ask("/sources", {"name": f"y{k}", "address": address}).status == 200
        assert visitor.ask("/snooze", {"source": f"y{k}", "seconds": 3600}).status == 200
        assert len(watching.policy.snoozes()) == 1
        assert visitor.ask(f"/source/y{k}/remove", {}).status == 200
    assert watching.policy.snoozes() == [] == visitor.ask("/state").json["snoozes"]


@pytest.mark.long
def test_no_secret_comes_out(unanswered, small_set, tmp_path, soon, caplog, capsys):
    """Passwords of a source, a webhook, a broker and Apprise; with tries to tell that fail."""
    caplog.set_level(logging.DEBUG)
    channels = '[channels.hook]\nkind = "webhook"\nurl = "http://u:hunter2@127.0.0.1:9/x"\nsecret = "hunter3"\n'
    channels += '[channels.house]\nkind = "mqtt"\nhost = "127.0.0.1"\nport = 9\nuser = "u"\npassword = "hunter4"\n'
    channels += '[channels.phone]\nkind = "apprise"\nurl = "json://u:hunter5@127.0.0.1:9/x"\n'
    source = "http://u:hunter6@127.0.0.1:9/hall?token=hunter6"
    with unanswered(channels, address=source, model=small_set.checkpoint) as watching:
        visitor, known = Visitor(watching.server.address), event()
        watching.history.begin(known, ["hook", "house", "phone"], known.start)
        watching.notifications.wake()
        wait_until(lambda: all(one.failed for one in watching.notifications.deliveries.values()), LONG)
        wait_until(lambda: watching.status().get("hall") or watching.dashboard.state()["sources"][0]["trouble"], LONG)
        paths = ("/", "/state", "/events", "/healthz", "/nowhere", f"/clip/{known.id}")
        answers = [visitor.ask(path) for path in paths]
        answers.append(visitor.ask("/sources", {"name": "hall", "address": source}))
        answers.append(visitor.ask("/sources", {"name": "x", "address": source.replace("http:", "odd:")}))
        shown = "".join(f"{answer.headers}{answer.body.decode()}" for answer in answers)
        shown += f"{watching.said}{watching.config}{watching.status()}{watching.sources}"
        shown += caplog.text + "".join(capsys.readouterr())
        token = watching.server.address.partition("token=")[2]
        assert not [secret for secret in (*SECRETS, token) if secret in shown.replace(f"={token};", "")]
        added = source.replace("hunter6", "hunter7")
        assert visitor.ask("/sources", {"name": "added", "address": added}).status == 200
        assert "hunter7" not in visitor.ask("/state").body.decode()
    stored = {path: path.read_bytes() for path in (tmp_path / "watch.data").iterdir()}
    assert not [path for path, data in stored.items() if any(secret.encode() in data for secret in SECRETS)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in stored), "the address of a source that was added is kept"
    assert any(b"hunter7" in data for data in stored.values())

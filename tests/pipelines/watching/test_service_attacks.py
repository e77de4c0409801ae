"""A running service, and those who try what its page lets them."""

import socket
from contextlib import contextmanager
from pathlib import Path

import pytest

from lstr.pipelines.watching import service
from lstr.pipelines.watching.config import read_config
from lstr.pipelines.watching.service import Service
from tests.pipelines.watching.test_history import event
from tests.support.patience import until
from tests.support.requests import Visitor

LONG = 60.0  # seconds that a busy machine may take
SECRETS = ("hunter2", "hunter3", "hunter4", "hunter5", "hunter6")


@pytest.fixture
def closed_port():
    """Where nobody answers."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        yield nobody.getsockname()[1]


@pytest.fixture
def run(tmp_path, closed_port, monkeypatch):
    """Run a service: run(more of its file, the address of its source, model) -> service, its visitor, what it has said.

    The model is none unless one is named.
    """
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "home"))

    @contextmanager
    def running(more: str = "", address: str = "", model: Path | str = "none.lstr"):
        (tmp_path / "none.lstr").touch()
        address = address or f"http://127.0.0.1:{closed_port}/hall"
        text = f'model = "{model}"\n{more}\n[sources.hall]\naddress = "{address}"\n'
        (tmp_path / "watch.toml").write_text(text)
        said: list[str] = []
        with Service(read_config(tmp_path / "watch.toml"), said.append) as watching:
            yield watching, Visitor(watching.server.address), said

    return running


def test_a_page_adds_no_file_and_no_request_of_its_own(run):
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
    with run() as (watching, visitor, _):
        for address in local:
            told = visitor.ask("/sources", {"name": "x", "address": address})
            assert told.status == 400 and told.json["error"], address
        assert [*watching.sources] == ["hall"]


def test_sources_and_snoozes_are_bounded(run, closed_port, monkeypatch):
    monkeypatch.setattr(service, "MAX_SOURCES", 3)
    with run() as (watching, visitor, _):
        address = f"http://127.0.0.1:{closed_port}/x"
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


def test_what_is_snoozed_is_shown_after_a_restart(run):
    with run() as (watching, visitor, _):
        visitor.ask("/snooze", {"source": "hall", "seconds": 3600})
        visitor.ask("/snooze", {})
        until(lambda: len(visitor.ask("/state").json["snoozes"]) == 2, LONG)
    with run() as (_, visitor, _):
        shown = visitor.ask("/state").json["snoozes"]
        assert {one["source"] for one in shown} == {"hall", None}
        visitor.ask("/snooze", {"seconds": 0})  # that of all, and no other
        assert [one["source"] for one in visitor.ask("/state").json["snoozes"]] == ["hall"]
        visitor.ask("/snooze", {"source": "hall", "seconds": 0})
        assert visitor.ask("/state").json["snoozes"] == []


@pytest.mark.long
def test_no_secret_comes_out(run, closed_port, small_set, tmp_path, soon):
    """Passwords of a source, a webhook, a broker and Apprise; with tries to tell that fail."""
    channels = (
        f'[channels.hook]\nkind = "webhook"\nurl = "http://u:hunter2@127.0.0.1:{closed_port}/x"\nsecret = "hunter3"\n'
    )
    channels += (
        f'[channels.house]\nkind = "mqtt"\nhost = "127.0.0.1"\nport = {closed_port}\nuser = "u"\npassword = "hunter4"\n'
    )
    channels += f'[channels.phone]\nkind = "apprise"\nurl = "json://u:hunter5@127.0.0.1:{closed_port}/x"\n'
    source = f"http://u:hunter6@127.0.0.1:{closed_port}/hall?token=hunter6"
    with run(channels, source, small_set.checkpoint) as (watching, visitor, said):
        known = event()
        watching.history.begin(known, ["hook", "house", "phone"], known.start)
        watching.notifications.wake()
        until(lambda: all(one.failed for one in watching.notifications.deliveries.values()), LONG)
        until(lambda: watching.status().get("hall") or watching.dashboard.states()[0]["trouble"], LONG)
        paths = ("/", "/state", "/events", "/healthz", "/nowhere", f"/clip/{known.id}")
        answers = [visitor.ask(path) for path in paths]
        answers.append(visitor.ask("/sources", {"name": "hall", "address": source}))
        answers.append(visitor.ask("/sources", {"name": "x", "address": source.replace("http:", "odd:")}))
        shown = "".join(f"{answer.headers}{answer.body.decode()}" for answer in answers)
        shown += f"{said}{watching.config}{watching.status()}{watching.sources}"
        token = watching.server.address.partition("token=")[2]
        assert not [secret for secret in (*SECRETS, token) if secret in shown.replace(f"={token};", "")]
        added = source.replace("hunter6", "hunter7")
        assert visitor.ask("/sources", {"name": "added", "address": added}).status == 200
        assert "hunter7" not in visitor.ask("/state").body.decode()
    stored = {path: path.read_bytes() for path in (tmp_path / "watch.data").iterdir()}
    assert not [path for path, data in stored.items() if any(secret.encode() in data for secret in SECRETS)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in stored), "the address of a source that was added is kept"
    assert any(b"hunter7" in data for data in stored.values())

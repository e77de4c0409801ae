"""A running service, and those who try what its page lets them."""

import logging
from contextlib import contextmanager

import pytest

from lstr.pipelines.watching import service
from tests.pipelines.watching.test_history import event
from tests.support.patience import until
from tests.support.requests import Visitor

LONG = 60.0  # seconds that a busy machine may take
SECRETS = ("hunter2", "hunter3", "hunter4", "hunter5", "hunter6")


@pytest.fixture
def run(unanswered):
    """A service and a visitor of its page: run(more of its file, …) -> service, visitor."""

    @contextmanager
    def running(more: str = "", **options):
        with unanswered(more, **options) as watching:
            yield watching, Visitor(watching.server.address)

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
    with run() as (watching, visitor):
        for address in local:
            told = visitor.ask("/sources", {"name": "x", "address": address})
            assert told.status == 400 and told.json["error"], address
        assert [*watching.sources] == ["hall"]


def test_sources_and_snoozes_are_bounded(run, monkeypatch):
    monkeypatch.setattr(service, "MAX_SOURCES", 3)
    with run() as (watching, visitor):
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
def test_no_secret_comes_out(run, small_set, tmp_path, soon, caplog, capsys):
    """Passwords of a source, a webhook, a broker and Apprise; with tries to tell that fail."""
    caplog.set_level(logging.DEBUG)
    channels = '[channels.hook]\nkind = "webhook"\nurl = "http://u:hunter2@127.0.0.1:9/x"\nsecret = "hunter3"\n'
    channels += '[channels.house]\nkind = "mqtt"\nhost = "127.0.0.1"\nport = 9\nuser = "u"\npassword = "hunter4"\n'
    channels += '[channels.phone]\nkind = "apprise"\nurl = "json://u:hunter5@127.0.0.1:9/x"\n'
    source = "http://u:hunter6@127.0.0.1:9/hall?token=hunter6"
    with run(channels, address=source, model=small_set.checkpoint) as (watching, visitor):
        known = event()
        watching.history.begin(known, ["hook", "house", "phone"], known.start)
        watching.notifications.wake()
        until(lambda: all(one.failed for one in watching.notifications.deliveries.values()), LONG)
        until(lambda: watching.status().get("hall") or watching.dashboard.state()["sources"][0]["trouble"], LONG)
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

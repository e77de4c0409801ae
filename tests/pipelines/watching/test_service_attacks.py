"""A running service, and those who try what its page lets them."""

import socket
from contextlib import contextmanager
from pathlib import Path

import pytest

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
        until(lambda: watching.status().get("hall") or watching.dashboard.state()["sources"][0]["trouble"], LONG)
        paths = ("/", "/state", "/events", "/healthz", "/nowhere", f"/clip/{known.id}")
        answers = [visitor.ask(path) for path in paths]
        shown = "".join(f"{answer.headers}{answer.body.decode()}" for answer in answers)
        shown += f"{said}{watching.config}{watching.status()}"
        token = watching.server.address.partition("token=")[2]
        assert not [secret for secret in (*SECRETS, token) if secret in shown.replace(f"={token};", "")]
    stored = {path: path.read_bytes() for path in (tmp_path / "watch.data").iterdir()}
    assert not [path for path, data in stored.items() if any(secret.encode() in data for secret in SECRETS)]
    assert all(path.stat().st_mode & 0o077 == 0 for path in stored)

"""Fixtures of the tests of `lstr watch`."""

from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from lstr.extractors.video import live
from lstr.pipelines.detection import session
from lstr.pipelines.detection.model import Networks, load_checkpoint
from lstr.pipelines.watching import worker
from lstr.pipelines.watching.config import read_config
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.service import Service
from tests.support.videos import remux


@pytest.fixture(scope="session")
def stream(small_set, tmp_path_factory) -> bytes:
    """A scene of the small set, as a camera sends it."""
    return remux(small_set.videos / "scene_00.mp4", tmp_path_factory.mktemp("stream") / "camera.ts").read_bytes()


@pytest.fixture(scope="session")
def shared_networks(small_set) -> Networks:
    """Networks that stay open for all tests."""
    networks = Networks(load_checkpoint(small_set.checkpoint))
    networks.close = lambda: None
    return networks


@pytest.fixture
def fast_starts(monkeypatch, shared_networks):
    """Share open networks, open sources that ended or failed again at once, and do not wait for silent ones."""
    monkeypatch.setattr("lstr.pipelines.watching.service.TICK_S", 0.05)
    monkeypatch.setattr(worker, "RETRY_S", (0.2,))
    monkeypatch.setattr(live, "DELAYS_S", (0.1,))
    monkeypatch.setattr(session, "STOP_S", 0.2)
    monkeypatch.setattr(worker, "Networks", lambda loaded: shared_networks)


@pytest.fixture
def idle(monkeypatch):
    """Never open a source, so that no networks are built."""
    monkeypatch.setattr(worker.Worker, "_due", lambda self: [])


@pytest.fixture
def history(tmp_path):
    with closing(History(tmp_path / "history.sqlite")) as history:
        yield history


@pytest.fixture
def start_service(tmp_path):
    """Start a service of sources by their ports or addresses, by default of `hall`, which cannot be reached.

    `settings` are of the first source. Its `messages` are the lines of the log.
    """

    @contextmanager
    def start(tables: str = "", settings: str = "", model: Path | str | None = "none.lstr", **sources: int | str):
        (tmp_path / "none.lstr").touch()
        text = f'model = "{model}"\n{tables}\n' if model else tables
        for name, address in (sources or {"hall": 9}).items():
            address = f"http://127.0.0.1:{address}/{name}" if isinstance(address, int) else address
            text += f'[sources.{name}]\naddress = "{address}"\n{settings}\n'
            settings = ""
        path = tmp_path / "watch.toml"
        path.write_text(text)
        messages: list[str] = []
        with Service(path, read_config(path), messages.append) as service:
            service.messages = messages
            yield service

    return start

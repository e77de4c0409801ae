"""What the tests of the watching service share."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lstr.pipelines.detection.model import Networks, load_checkpoint
from lstr.pipelines.watching import notifications, worker
from lstr.pipelines.watching.config import WatchConfig, read_config
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.service import Service
from tests.support.videos import remux

NOBODY = "http://127.0.0.1:9/hall"


@pytest.fixture(scope="session")
def stream(small_set, tmp_path_factory) -> bytes:
    """A scene of the small set, as a camera sends it."""
    return remux(small_set.videos / "scene_00.mp4", tmp_path_factory.mktemp("stream") / "camera.ts").read_bytes()


class Kept(Networks):
    """Networks that are made once for all tests."""

    def close(self) -> None: ...


@pytest.fixture(scope="session")
def kept_networks(small_set) -> Networks:
    return Kept(load_checkpoint(small_set.checkpoint))


@pytest.fixture
def soon(monkeypatch, kept_networks):
    """Networks exist at once, and sources that ended or failed are opened again at once."""
    monkeypatch.setattr(worker, "RETRY_S", (0.2,))
    monkeypatch.setattr(worker, "Networks", lambda loaded: kept_networks)


@pytest.fixture
def idle(monkeypatch):
    """No source is ever opened, so that no networks are made."""
    monkeypatch.setattr(worker.Worker, "_due", lambda self: [])


@pytest.fixture
def history(tmp_path) -> Iterator[History]:
    history = History(tmp_path / "history.sqlite")
    yield history
    history.close()


@pytest.fixture
def quick(monkeypatch):
    """A failed notification is sent again almost at once."""
    monkeypatch.setattr(notifications, "FIRST_PAUSE_S", 0.02)


@pytest.fixture
def event_of() -> Callable[..., WatchedEvent]:
    """An event that began some seconds ago: event_of(source=…, action=…, ago=…)."""

    def make(source: str = "hall", action: str = "falling", ago: float = 4, **values) -> WatchedEvent:
        seen = datetime.now().astimezone()
        start = seen - timedelta(seconds=ago)
        known = {"id": new_id(start), "decided": start, "seen": seen, "score": 0.9, "top_score": 0.91}
        return WatchedEvent(source=source, action=action, start=start, **known | values)

    return make


@pytest.fixture
def watch_config(tmp_path) -> Callable[..., WatchConfig]:
    """A configuration with channels, by their names: watch_config(phone=(kind, table))."""

    def make(**channels) -> WatchConfig:
        return WatchConfig(Path("watch.toml"), None, tmp_path, {}, channels=channels)

    return make


@pytest.fixture
def unanswered(tmp_path):
    """A service whose source nobody answers for: unanswered(more, last=…, model=…); what it logs in `said`."""

    @contextmanager
    def running(more: str = "", last: str = "", model: Path | str = "none.lstr", address: str = NOBODY):
        (tmp_path / "none.lstr").touch()
        text = f'model = "{model}"\n{more}\n[sources.hall]\naddress = "{address}"\n{last}'
        (tmp_path / "watch.toml").write_text(text)
        said: list[str] = []
        with Service(read_config(tmp_path / "watch.toml"), said.append) as watching:
            watching.said = said
            yield watching

    return running

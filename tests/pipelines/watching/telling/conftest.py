"""Histories, events and configurations that the tests of telling share."""

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from lstr.pipelines.watching import delivery
from lstr.pipelines.watching.config import ChannelConfig, WatchConfig
from lstr.pipelines.watching.event import WatchedEvent, new_id
from lstr.pipelines.watching.history import History


@pytest.fixture
def history(tmp_path) -> Iterator[History]:
    history = History(tmp_path / "history.sqlite")
    yield history
    history.close()


@pytest.fixture
def quick(monkeypatch):
    """What fails is tried again without much of a pause."""
    monkeypatch.setattr(delivery, "FIRST", 0.02)


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
    """A configuration with channels, by their names: watch_config(phone=ChannelConfig(…))."""

    def make(**channels: ChannelConfig) -> WatchConfig:
        return WatchConfig(Path("watch.toml"), None, tmp_path, {}, channels=channels)

    return make

"""What the tests of services and deciders share."""

import pytest

from lstr.pipelines.detection.checkpoint import load_checkpoint
from lstr.pipelines.detection.networks import Networks
from lstr.pipelines.watching import decider
from tests.support.videos import remux


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
    """Networks are there at once, and what has ended or failed is tried again at once."""
    monkeypatch.setattr(decider, "AGAIN", (0.2,))
    monkeypatch.setattr(decider, "Networks", lambda loaded: kept_networks)


@pytest.fixture
def idle(monkeypatch):
    """No source is ever opened, so that no networks are made."""
    monkeypatch.setattr(decider.Decider, "_due", lambda self: [])

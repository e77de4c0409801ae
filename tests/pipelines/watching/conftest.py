"""What the tests of services and deciders share."""

import pytest

from lstr.pipelines.watching import decider
from tests.support.videos import remux


@pytest.fixture(scope="session")
def stream(small_set, tmp_path_factory) -> bytes:
    """A scene of the small set, as a camera sends it."""
    return remux(small_set.videos / "scene_00.mp4", tmp_path_factory.mktemp("stream") / "camera.ts").read_bytes()


@pytest.fixture
def soon(monkeypatch):
    """What has ended or failed is tried again at once."""
    monkeypatch.setattr(decider, "AGAIN", (0.2,))


@pytest.fixture
def idle(monkeypatch):
    """No source is ever opened, so that no networks are made."""
    monkeypatch.setattr(decider.Decider, "_due", lambda self: [])

"""A decider: the sources of one model, which come and go while it runs."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.watching import decider
from lstr.pipelines.watching.config import ActionConfig, SourceConfig
from lstr.pipelines.watching.decider import Decider, Hearing
from lstr.timeline import Thresholds
from tests.support.patience import until
from tests.support.served import TS_HEAD, served
from tests.support.videos import remux

pytestmark = pytest.mark.long

LONG = 120.0  # seconds that a busy machine may take


@pytest.fixture(scope="module")
def stream(small_set, tmp_path_factory) -> bytes:
    return remux(small_set.videos / "scene_00.mp4", tmp_path_factory.mktemp("stream") / "camera.ts").read_bytes()


@pytest.fixture
def model(small_set, tmp_path) -> Path:
    return write_model(tmp_path / "small.lstr", small_set.checkpoint, None, {}).path


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    monkeypatch.setattr(decider, "AGAIN", (0.2,))


@contextmanager
def deciding(model: Path, said: list[str]) -> Iterator[Decider]:
    """A decider of whose sources nobody else hears."""
    hear = Hearing(None, lambda *seen: None, lambda *rules: None, lambda *trouble: None, lambda *share: None)
    with Decider(model, {}, 300.0, lambda loaded: [], said.append, hear, lambda name: ()) as made:
        yield made


def source(port: int) -> SourceConfig:
    return SourceConfig(f"http://127.0.0.1:{port}/a")


def test_a_source_that_was_never_decided_comes_back(model, stream):
    """One that was paused before its first decision was never read again while another one was decided."""
    with (
        served([TS_HEAD, stream, None], [TS_HEAD, stream, None]) as one,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        hall, door = source(one), source(silent.getsockname()[1])
        with deciding(model, []) as made:
            made.want({"hall": hall, "door": door})
            until(lambda: made.status().keys() == {"hall", "door"} and made.status()["hall"].decided, LONG)
            made.want({"hall": hall})
            until(lambda: made.status().keys() == {"hall"}, LONG)
            made.want({"hall": hall, "door": door})
            until(lambda: made.status().keys() == {"hall", "door"}, LONG)
            before = made.status()
            made.rule({action: ActionConfig(Thresholds(0.5, 0.4)) for action in made.actions})
            until(lambda: made.status().keys() == before.keys() and made.status()["door"] is not before["door"], LONG)
            until(lambda: made.status().keys() == before.keys() and made.status()["hall"] is not before["hall"], LONG)

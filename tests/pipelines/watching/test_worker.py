"""A worker: detection on the sources of one model, which come and go while it runs."""

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from lstr.pipelines.detection import outputs
from lstr.pipelines.detection.decision import Decision, MakeSink, Sink
from lstr.pipelines.detection.model import Networks
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.watching import worker
from lstr.pipelines.watching.config import SourceConfig
from lstr.pipelines.watching.dashboard import Dashboard
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.worker import Worker
from tests.support.exportable import write_exportable
from tests.support.patience import until
from tests.support.served import TS_HEAD, served

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("soon")]

LONG = 120.0  # seconds that a busy machine may take


@pytest.fixture
def model(small_set, tmp_path) -> Path:
    return write_model(tmp_path / "small.lstr", small_set.checkpoint, None, {}).path


@contextmanager
def running(model: Path, log: list[str], sinks: Sequence[MakeSink] = ()) -> Iterator[Worker]:
    """A worker whose sources are shown on a dashboard, `made.dashboard`; it ticks as in a service."""
    with TemporaryDirectory() as folder, closing(History(Path(folder) / "history.sqlite")) as history:
        dashboard, ended = Dashboard(history), threading.Event()
        with Worker(model, {}, 300.0, lambda loaded: sinks, log.append, dashboard, None, lambda name: ()) as made:
            made.dashboard = dashboard

            def tick() -> None:
                while not ended.wait(0.2):
                    made.tick()

            threading.Thread(target=tick, daemon=True).start()
            yield made
            ended.set()


def decided(made: Worker) -> set[str]:
    """The sources on which there are decisions now."""
    return {name for name, status in made.status().items() if status.decided}


def source(port: int) -> SourceConfig:
    return SourceConfig(f"http://127.0.0.1:{port}/a")


def test_a_source_that_was_never_decided_comes_back(model, stream, monkeypatch):
    """One that was paused before its first decision; and what is decided for weeks is kept nowhere."""
    kept: list[tuple] = []
    monkeypatch.setattr(outputs.TimelineFiles, "open", lambda *what: kept.append(what))
    with (
        served([TS_HEAD, stream, None], [TS_HEAD, stream, None]) as one,
        socket.create_server(("127.0.0.1", 0)) as silent,
    ):
        hall, door = source(one), source(silent.getsockname()[1])
        with running(model, []) as made:
            made.set_sources({"hall": hall, "door": door})
            until(lambda: made.status().keys() == {"hall", "door"} and made.status()["hall"].decided, LONG)
            made.set_sources({"hall": hall})
            until(lambda: made.status().keys() == {"hall"}, LONG)
            made.set_sources({"hall": hall, "door": door})
            until(lambda: made.status().keys() == {"hall", "door"}, LONG)
    assert not kept


@pytest.mark.skipif(Path("/dev/video63").exists(), reason="this machine has 64 cameras")
def test_an_unplugged_camera_stops_no_other_and_is_logged_once(model, stream):
    log: list[str] = []
    gone = SourceConfig("/dev/video63")
    with served([TS_HEAD, stream, None]) as one, served([TS_HEAD, stream, None]) as other:
        hall, door = source(one), source(other)
        with running(model, log) as made:
            made.set_sources({"cam": gone, "hall": hall})
            until(lambda: decided(made) == {"hall"}, LONG)
            made.set_sources({"cam": gone, "also": gone, "hall": hall, "door": door})
            until(lambda: decided(made) == {"hall", "door"}, LONG)
            before = made.status()
            until(lambda: all(made._attempts[name].failures > 4 for name in ("cam", "also")), LONG)
            assert all(made.status()[name] is status for name, status in before.items()), "the same streams"
    missing = [text for text in log if "/dev/video63" in text]
    assert [text.partition(":")[0] for text in missing] == ["cam", "also"], log


@pytest.mark.slow
def test_a_model_file_may_be_replaced_while_it_runs(model, stream, tmp_path, monkeypatch):
    log: list[str] = []
    monkeypatch.setattr(worker, "Networks", Networks)
    with served(*[[TS_HEAD, stream, None]] * 4) as port, running(model, log) as made:
        made.set_sources({"hall": source(port)})
        until(lambda: decided(made) == {"hall"}, LONG)
        before = made.actions
        (tmp_path / "new").mkdir()
        new = write_exportable(tmp_path / "new")
        new.path.replace(model)
        made.set_sources({})
        until(lambda: not made.status() and not made._session, LONG)
        made.set_sources({"hall": source(port)})
        until(lambda: decided(made) == {"hall"}, LONG)
        assert made.actions == new.about["classes"][1:] != before


def test_what_has_ended_is_decided_once(model, stream):
    """As an event by HLS, which is a recording when it is over."""
    log: list[str] = []
    seen: list[int] = []

    class Seen(Sink):
        def take(self, decision: Decision) -> None:
            seen.append(decision.chunk)

    whole = b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\nContent-Length: %d\r\n\r\n" % len(stream)
    with served([whole, stream], [whole, stream], [TS_HEAD, stream, None]) as port:
        with running(model, log, [Seen]) as made:
            made.set_sources({"hall": source(port)})
            until(lambda: any("recording" in text for text in log), LONG)
            once = [*seen]
            until(lambda: decided(made) == {"hall"}, LONG)  # the third time it is sent live
    assert once == sorted({*once}) != [] and len(seen) > len(once)


def test_it_is_alive_while_a_camera_is_silent_and_while_its_model_cannot_be_loaded(model, tmp_path, monkeypatch):
    log: list[str] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        with running(model, log) as made:
            made.set_sources({"door": source(silent.getsockname()[1])})
            until(lambda: made.status().keys() == {"door"}, LONG)
            before = made.alive
            until(lambda: made.alive > before + 1.0, LONG)
            assert not made.status()["door"].decided
        monkeypatch.setattr(worker, "RETRY_S", (300.0,))
        with running(tmp_path / "none.lstr", log) as made:
            made.set_sources({"door": source(silent.getsockname()[1])})
            until(lambda: any(state["trouble"] for state in made.dashboard.state()["sources"]), LONG)
            before = made.alive
            until(lambda: made.alive > before + 1.0, LONG)
            (state,) = made.dashboard.state()["sources"]
    assert state["name"] == "door" and "none.lstr" in state["trouble"] and "none.lstr" in log[-1]

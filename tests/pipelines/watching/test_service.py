"""The service: its sources come and go, and what they do is stored."""

import json
import socket
import threading
from dataclasses import replace
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest

from lstr.errors import HistoryError, LstrError
from lstr.pipelines.detection import outputs
from lstr.pipelines.detection.model import Networks, load_checkpoint
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.watching import service
from lstr.pipelines.watching import worker as worker_module
from lstr.pipelines.watching.config import read_config
from lstr.pipelines.watching.history import EventFilter, History
from lstr.pipelines.watching.recorder import Recorder, RecorderSink
from lstr.pipelines.watching.service import Service, notify_supervisor
from tests.pipelines.watching.test_history import event
from tests.support.exportable import write_exportable
from tests.support.served import TS_HEAD, served
from tests.support.waiting import wait_until

pytestmark = pytest.mark.usefixtures("soon")

LEFT = (((0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)),)
TOP = (((0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (0.0, 0.5)),)
LONG = 120.0  # seconds that a busy machine may take


@pytest.fixture
def packed(small_set, tmp_path):
    """The small set with a model file, which is what `lstr watch` takes."""
    return replace(small_set, checkpoint=write_model(tmp_path / "small.lstr", small_set.checkpoint, None, {}).path)


def write(folder: Path, small_set, addresses: dict[str, int | str], more: str = "") -> Path:
    """A configuration of sources by address or port, in which each class is active from a score of 0."""
    text = f'model = "{small_set.checkpoint}"\ntimeout = "5m"\n{more}\n'
    for name, address in addresses.items():
        address = f"http://127.0.0.1:{address}/{name}" if isinstance(address, int) else address
        text += f'[sources.{name}]\naddress = "{address}"\n'
    for action in load_checkpoint(small_set.checkpoint).classes[1:]:
        text += f'[actions."{action}"]\non = 0.0\noff = 0.0\nhighest = false\n'
    (folder / "watch.toml").write_text(text)
    return folder / "watch.toml"


def decided(watching: Service) -> set[str]:
    """The sources on which there are decisions now."""
    return {name for name, status in watching.status().items() if status.decided}


@pytest.fixture
def silent():
    """The port of a camera that sends nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.long
def test_a_source_that_ends_is_read_again_and_both_are_stored(small_set, stream, tmp_path):
    with served([TS_HEAD, stream], [TS_HEAD, stream], [TS_HEAD, stream, None]) as port:
        path = write(tmp_path, small_set, {"hall": port}, "[clips]")
        with Service(read_config(path), [].append) as watching:
            history = watching.history
            wait_until(lambda: len({event.start for event in history.events()}) > 1, LONG)
            wait_until(lambda: history.events()[-1].end is not None, LONG)
            (shown,) = watching.dashboard.state()["sources"]
            assert shown["decided"] > 1 and shown["columns"] >= shown["decided"] and shown["lag_ms"] is not None
            picture = cv2.imdecode(np.frombuffer(watching.dashboard.image("hall"), np.uint8), cv2.IMREAD_COLOR)
            assert picture.std() > 10, "the frame that the networks have"
            assert {*watching.clips._delays} == {"hall"}, "clips know how late the rules let an action be told"
    again = History(tmp_path / "watch.data" / "history.sqlite", readonly=True)
    events = again.events(EventFilter(source="hall"))
    assert events and all(event.end and event.top_score >= event.score for event in events)
    assert {event.model for event in events} == {small_set.checkpoint.name}
    newest = [event for event in events if event.start == events[0].start]
    assert all(event.still_on for event in newest), "its end ended what was on"
    assert len({event.id for event in events}) == len(events)
    again.close()


@pytest.mark.long
def test_sources_are_paused_added_and_removed_and_that_is_kept(small_set, stream, tmp_path, silent, monkeypatch):
    """Also one that was never decided; and what is decided for weeks is kept nowhere."""
    kept: list[tuple] = []
    monkeypatch.setattr(outputs.TimelineFiles, "open", lambda *what: kept.append(what))
    with served([TS_HEAD, stream, None]) as one, served([TS_HEAD, stream, None]) as other:
        path = write(tmp_path, small_set, {"hall": one, "quiet": silent})
        with Service(read_config(path), [].append) as watching:
            wait_until(lambda: watching.status().keys() == {"hall", "quiet"} and decided(watching), LONG)
            watching.pause("quiet")
            wait_until(lambda: watching.status().keys() == {"hall"}, LONG)
            watching.pause("quiet", False)
            wait_until(lambda: watching.status().keys() == {"hall", "quiet"}, LONG)
            watching.add("door", f"http://127.0.0.1:{other}/door")
            wait_until(lambda: decided(watching) == {"hall", "door"}, LONG)
            watching.pause("hall")
            wait_until(lambda: watching.status().keys() == {"door", "quiet"}, LONG)
            for wrong in (
                lambda: watching.add("door", watching.sources["hall"].address),
                lambda: watching.pause("x"),
                lambda: watching.remove("hall"),
            ):
                with pytest.raises(LstrError):
                    wrong()
        with Service(read_config(path), [].append) as watching:
            assert watching.paused == ["hall"] and watching.sources.keys() == {"hall", "quiet", "door"}
            watching.pause("door")
            watching.remove("door")
            assert watching.paused == ["hall"], "one that is added again is not paused"
    assert not kept


@pytest.mark.long
@pytest.mark.skipif(Path("/dev/video63").exists(), reason="this machine has 64 cameras")
def test_an_unplugged_camera_stops_no_other_and_is_logged_once(small_set, stream, tmp_path):
    log: list[str] = []
    with served([TS_HEAD, stream, None]) as one:
        path = write(tmp_path, small_set, {"cam": "/dev/video63", "hall": one})
        with Service(read_config(path), log.append) as watching:
            wait_until(lambda: decided(watching) == {"hall"}, LONG)
            before, (worker,) = watching.status()["hall"], watching.workers.values()
            wait_until(lambda: worker._attempts["cam"].failures > 4, LONG)
            assert watching.status()["hall"] is before, "the same stream"
    assert [text.partition(":")[0] for text in log if "/dev/video63" in text] == ["cam"], log


@pytest.mark.long
def test_an_outage_is_logged_once_and_so_is_its_end(small_set, stream, tmp_path):
    log: list[str] = []
    with served([TS_HEAD, stream, None], [b""], [b""], [TS_HEAD, stream, None]) as port:
        path = write(tmp_path, small_set, {"hall": port})
        path.write_text(path.read_text().replace("5m", "1s"))
        with Service(read_config(path), log.append) as watching:
            wait_until(lambda: any("again" in text for text in log), LONG)
            assert decided(watching) == {"hall"}
    ours = [text for text in log if f":{port}/" in text or "again" in text]
    assert ours and all(one != other for one, other in pairwise(ours)) and "again" in ours[-1], log


@pytest.mark.slow
def test_a_model_file_may_be_replaced_while_it_runs(packed, stream, tmp_path, monkeypatch):
    closed = threading.Event()

    class Watched(Networks):
        def close(self) -> None:
            super().close()
            closed.set()

    monkeypatch.setattr(worker_module, "Networks", Watched)
    (tmp_path / "new").mkdir()
    new = write_exportable(tmp_path / "new")
    with served(*[[TS_HEAD, stream, None]] * 4) as port:
        (tmp_path / "watch.toml").write_text(
            f'model = "{packed.checkpoint}"\n[sources.hall]\naddress = "http://127.0.0.1:{port}/a"\n'
        )
        with Service(read_config(tmp_path / "watch.toml"), [].append) as watching:
            wait_until(lambda: decided(watching) == {"hall"}, LONG)
            (worker,) = watching.workers.values()
            before = worker.actions
            new.path.replace(packed.checkpoint)
            watching.pause("hall")
            assert closed.wait(LONG)
            watching.pause("hall", False)
            wait_until(lambda: decided(watching) == {"hall"}, LONG)
            assert worker.actions == new.about["classes"][1:] != before


@pytest.mark.long
def test_what_has_ended_is_decided_once(small_set, stream, tmp_path, monkeypatch):
    """As an event by HLS, which is a recording when it is over."""
    log: list[str] = []
    seen: list[int] = []
    monkeypatch.setattr(RecorderSink, "take", lambda self, decision: seen.append(decision.chunk))
    whole = b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\nContent-Length: %d\r\n\r\n" % len(stream)
    with served([whole, stream], [whole, stream], [TS_HEAD, stream, None]) as port:
        with Service(read_config(write(tmp_path, small_set, {"hall": port})), log.append) as watching:
            wait_until(lambda: any("recording" in text for text in log), LONG)
            once = [*seen]
            wait_until(lambda: decided(watching) == {"hall"}, LONG)  # the third time it is sent live
    assert once == sorted({*once}) != [] and len(seen) > len(once)


@pytest.mark.long
def test_it_is_alive_while_a_camera_is_silent_and_while_its_model_cannot_be_loaded(
    small_set, unanswered, tmp_path, silent, monkeypatch
):
    with Service(read_config(write(tmp_path, small_set, {"door": silent}, 'data = "other"')), [].append) as watching:
        wait_until(lambda: watching.status().keys() == {"door"}, LONG)
        check_alive(watching)
        assert not watching.status()["door"].decided
    monkeypatch.setattr(worker_module, "RETRY_S", (300.0,))
    with unanswered() as watching:
        wait_until(lambda: watching.dashboard.state()["sources"][0]["trouble"], LONG)
        check_alive(watching)
        assert "none.lstr" in watching.dashboard.state()["sources"][0]["trouble"]


def check_alive(watching: Service) -> None:
    (worker,) = watching.workers.values()
    before = worker.alive
    wait_until(lambda: worker.alive > before + 1.0, LONG)


def test_what_is_old_is_forgotten_and_what_waited_for_the_disk_is_stored(unanswered, monkeypatch):
    """Though its source has ended."""
    monkeypatch.setattr(service, "CLEAN_INTERVAL_S", 0.1)
    with unanswered("[keeping]\ndays = 1\n") as watching:
        old = event(-3 * 86400.0)
        watching.history.begin(old, [], old.start)
        watching.history.update(replace(old, end=old.start), datetime.now().astimezone())
        wait_until(lambda: watching.history.find(old.id) is None, LONG)
        begun = event()
        watching.recorder.add(begun, "new")
        watching.history._connection.execute("PRAGMA query_only=ON")  # as a full disk: every write fails
        watching.recorder.add(replace(begun, end=begun.start), "end")
        assert watching.history.events()[0].end is None
        watching.history._connection.execute("PRAGMA query_only=OFF")
        wait_until(lambda: watching.history.events()[0].end, LONG)


def test_a_supervisor_is_told(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify_supervisor("READY=1")
        assert systemd.recv(100) == b"READY=1"
    notify_supervisor("STOPPING=1")  # nobody listens any more


def test_a_source_without_a_model_is_not_added(packed, idle, tmp_path):
    path = tmp_path / "watch.toml"
    path.write_text(f'[sources.hall]\naddress = "http://127.0.0.1:9/hall"\nmodel = "{packed.checkpoint}"\n')
    with Service(read_config(path), [].append) as watching:
        with pytest.raises(LstrError) as caught:
            watching.add("door", "http://127.0.0.1:9/door")
        assert "model = " in caught.value.hint and watching.sources.keys() == {"hall"}


def test_an_error_of_a_tick_ends_nothing_and_is_logged_once(unanswered, monkeypatch):
    ticks: list[int] = []

    def tick(self: Recorder) -> None:
        ticks.append(1)
        raise OverflowError("date value out of range") if len(ticks) < 3 else HistoryError("no room")

    monkeypatch.setattr(Recorder, "flush", tick)
    with unanswered() as watching:
        wait_until(lambda: len(ticks) > 3, LONG)
    said = [text for text in watching.said if "OverflowError" in text or "no room" in text]
    assert len(said) == 2


def shown(watching: Service, name: str = "hall") -> tuple:
    state = next(one for one in watching.dashboard.state()["sources"] if one["name"] == name)
    assert state["zones"] == watching.zones[name]
    return state["zones"], state["drawn"]


def test_what_is_drawn_stands_before_the_file_and_is_kept(unanswered):
    more = f"zones = {json.dumps(TOP)}\n"
    with unanswered(last=more) as watching:
        assert shown(watching) == (TOP, False)
        browser = watching.dashboard.messages()
        next(browser)
        watching.draw("hall", LEFT)
        assert shown(watching) == (LEFT, True)
        assert [message["kind"] for message in next(browser)] == ["state"]
        with pytest.raises(LstrError):
            watching.draw("x", LEFT)
        watching.add("garage", "http://127.0.0.1:9/garage")
        watching.draw("garage", LEFT)
        watching.remove("garage")
        watching.add("garage", "http://127.0.0.1:9/other")
        assert shown(watching, "garage") == ((), False), "one that is removed takes its zones along"
    with unanswered(last=more) as watching:
        assert shown(watching) == (LEFT, True)
        watching.draw("hall", ())
        assert shown(watching) == ((), True), "everywhere, whatever the file says"
        watching.draw("hall", None)
        assert shown(watching) == (TOP, False)

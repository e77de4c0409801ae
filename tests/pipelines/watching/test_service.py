"""The service: its sources come and go, and what they do is stored."""

import socket
import threading
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import cv2
import numpy as np
import pytest

from lstr.errors import HistoryError, LstrError
from lstr.extractors.video import zones
from lstr.extractors.video.zones import Backdrop
from lstr.pipelines.detection.decision import Decision, End, Opened, Status
from lstr.pipelines.detection.model import load_checkpoint
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.watching import service
from lstr.pipelines.watching.config import read_config
from lstr.pipelines.watching.history import EventFilter, History
from lstr.pipelines.watching.notifications import Notifications
from lstr.pipelines.watching.recorder import RecorderSink
from lstr.pipelines.watching.service import Service, notify_supervisor
from lstr.timeline import Event
from tests.pipelines.watching.test_clips import Camera, film
from tests.pipelines.watching.test_history import event
from tests.support.patience import until
from tests.support.served import TS_HEAD, served

pytestmark = pytest.mark.usefixtures("soon")

LONG = 120.0  # seconds that a busy machine may take


@pytest.fixture
def packed(small_set, tmp_path):
    """The small set with a model file, which is what `lstr watch` takes."""
    return replace(small_set, checkpoint=write_model(tmp_path / "small.lstr", small_set.checkpoint, None, {}).path)


def write(folder: Path, small_set, ports: dict[str, int], more: str = "", on: float = 0.0) -> Path:
    """A configuration in which each class is on from a score of `on`."""
    text = f'model = "{small_set.checkpoint}"\ntimeout = "2s"\n{more}\n'
    for name, port in ports.items():
        text += f'[sources.{name}]\naddress = "http://127.0.0.1:{port}/{name}"\n'
    for action in load_checkpoint(small_set.checkpoint).classes[1:]:
        text += f'[actions."{action}"]\non = {on}\noff = 0.0\nhighest = false\n'
    (folder / "watch.toml").write_text(text)
    return folder / "watch.toml"


@pytest.mark.long
def test_a_source_that_ends_is_read_again_and_both_are_stored(small_set, stream, tmp_path):
    said: list[str] = []
    with served([TS_HEAD, stream], [TS_HEAD, stream], [TS_HEAD, stream, None]) as port:
        path = write(tmp_path, small_set, {"hall": port}, "[clips]")
        with Service(read_config(path), said.append) as watching:
            history = watching.history
            until(lambda: len({event.start for event in history.events()}) > 1, LONG)
            until(lambda: history.events()[-1].end is not None, LONG)
            (shown,) = watching.dashboard.state()["sources"]
            assert shown["decided"] > 1 and shown["columns"] >= shown["decided"] and shown["lag_ms"] is not None
            picture = cv2.imdecode(np.frombuffer(watching.dashboard.image("hall"), np.uint8), cv2.IMREAD_COLOR)
            assert picture.std() > 10, "the frame that the networks have"
            assert {*watching.clips._delays} == {"hall"}, "clips know how late the rules let an action be told"
    again = History(tmp_path / "watch.data" / "history.sqlite", readonly=True)
    events = again.events(EventFilter(source="hall"))
    assert events and all(event.end for event in events)
    newest = [event for event in events if event.start == events[0].start]
    assert all(event.still_on for event in newest), "its end ended what was on"
    assert len({event.id for event in events}) == len(events)
    again.close()


@pytest.mark.long
def test_sources_are_paused_added_and_removed_and_that_is_kept(small_set, stream, tmp_path):
    said: list[str] = []
    with served([TS_HEAD, stream, None]) as one, served([TS_HEAD, stream, None]) as other:
        path = write(tmp_path, small_set, {"hall": one})
        with Service(read_config(path), said.append) as watching:
            until(lambda: "hall" in watching.status(), LONG)
            watching.add("door", f"http://127.0.0.1:{other}/door")
            until(lambda: watching.status().keys() == {"hall", "door"}, LONG)
            watching.pause("hall")
            until(lambda: watching.status().keys() == {"door"}, LONG)
            with pytest.raises(LstrError, match="already"):
                watching.add("door", watching.sources["hall"].address)
            with pytest.raises(LstrError, match="Unknown source: 'x'"):
                watching.pause("x")
            with pytest.raises(LstrError, match="is in"):
                watching.remove("hall")
        with Service(read_config(path), said.append) as watching:
            assert watching.paused == ["hall"] and watching.sources.keys() == {"hall", "door"}
            watching.pause("door")
            watching.remove("door")
            assert watching.sources.keys() == {"hall"} == {*watching.paused}, "one that is added again is not paused"


@pytest.mark.long
def test_zones_are_swapped_while_a_stream_goes_on(small_set, stream, tmp_path, monkeypatch):
    seen, drawn = [], threading.Event()
    left = (((0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)),)

    class Seen(Backdrop):
        def behind(self, chunk, zones):
            seen.append(zones)
            if len(seen) == 4:
                drawn.wait(LONG)
            return super().behind(chunk, zones)

    monkeypatch.setattr(zones, "Backdrop", Seen)
    with served([TS_HEAD, stream, None]) as port:
        with Service(read_config(write(tmp_path, small_set, {"hall": port})), lambda text: None) as watching:
            until(lambda: len(seen) == 4 and "hall" in watching.status(), LONG)
            status = watching.status()["hall"]
            watching.draw("hall", left)
            drawn.set()
            until(lambda: len(seen) > 8, LONG)
            assert watching.status()["hall"] is status, "the same stream as before"
    assert seen[:9] == [()] * 4 + [left] * 5


def test_what_is_old_is_forgotten(small_set, tmp_path, monkeypatch, idle):
    monkeypatch.setattr(service, "CLEAN_INTERVAL_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        path = write(tmp_path, small_set, {"hall": nobody.getsockname()[1]}, "[keeping]\ndays = 1\n")
    with Service(read_config(path), lambda text: None) as watching:
        old = event(-3 * 86400.0)
        watching.history.begin(old, [], old.start)
        watching.history.end(old.id, old.start, False, datetime.now().astimezone())
        until(lambda: watching.history.find(old.id) is None, LONG)


def test_what_waits_for_room_on_the_disk_is_stored_though_its_source_has_ended(small_set, tmp_path, idle):
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        path = write(tmp_path, small_set, {"hall": nobody.getsockname()[1]})
    with Service(read_config(path), lambda text: None) as watching:
        sink, now = RecorderSink(watching.recorder), datetime.now().astimezone()
        sink.open(Opened("gone", Status("gone"), ("other", "falling")))
        begun = Event("started", "falling", 1.0, 0.0, 0.9, at=now, start_at=now)
        sink.take(Decision(4, 1.0, "falling", 0.9, [], 1.0, [begun], np.ones(2), at=now, source="gone"))
        watching.history._connection.execute("PRAGMA query_only=ON")  # as a full disk: every write fails
        sink.close(End())
        assert watching.history.events()[0].end is None
        watching.history._connection.execute("PRAGMA query_only=OFF")
        until(lambda: watching.history.events()[0].end, LONG)


def test_an_open_page_learns_of_a_film_that_is_whole_after_the_end(small_set, tmp_path, idle):
    """It showed no clip of an event that it had seen begin and end, until it was loaded again."""
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        more = '[clips]\nbefore = "2s"\nafter = "1s"\n'
        path = write(tmp_path, small_set, {"hall": nobody.getsockname()[1]}, more)
    with Service(read_config(path), lambda text: None) as watching:
        camera = Camera(watching.clips, film(tmp_path / "film.ts"), "door").send(0, 9.5)
        begun = camera.event(5.2, 6.0)
        for one, phase in ((begun, "new"), (camera.ended(begun, 7.0), "end")):
            browser = watching.dashboard.messages()
            next(browser)
            watching.recorder.add(one, phase)

        def told() -> list[dict]:
            return [one["event"] for one in next(browser) if one["kind"] == "event" and one["phase"] == "update"]

        found: list[dict] = []
        until(lambda: found.extend(told()) or any(one["clip"] for one in found), 30)
        for whole in [one for one in found if one["clip"]]:  # sent again if its image comes later
            assert whole["clip"] == f"{begun.id}.mp4" and whole["end"]
        assert not watching.dashboard.state()["on"]


def test_a_supervisor_is_told(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify_supervisor("READY=1")
        assert systemd.recv(100) == b"READY=1"
    notify_supervisor("STOPPING=1")  # nobody listens any more


def test_channels_know_a_source_that_is_paused_from_the_start(packed, tmp_path, monkeypatch, idle):
    """Its model is not loaded, and so nobody could resume it by MQTT, nor any other one while it was paused."""
    shown: list[dict] = []
    monkeypatch.setattr(Notifications, "show_sources", lambda self, actions: shown.append(actions))
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        config = read_config(write(tmp_path, packed, {"hall": nobody.getsockname()[1]}))
        with Service(config, lambda text: None) as watching:
            watching.pause("hall")
        shown.clear()
        with Service(config, lambda text: None) as watching:
            until(lambda: shown, LONG)
            assert not any(worker.loaded for worker in watching.workers.values())
    assert shown[0] == {"hall": [*load_checkpoint(packed.checkpoint).classes[1:]]}


def test_a_source_without_a_model_is_not_added(packed, tmp_path, monkeypatch, idle):
    """It was, and stayed as it was for ever without a word."""
    monkeypatch.setenv("LSTR_HOME", str(tmp_path / "empty"))
    path = tmp_path / "watch.toml"
    path.write_text(f'[sources.hall]\naddress = "http://127.0.0.1:9/hall"\nmodel = "{packed.checkpoint}"\n')
    with Service(read_config(path), lambda text: None) as watching:
        with pytest.raises(LstrError, match="No model") as caught:
            watching.add("door", "http://127.0.0.1:9/door")
        assert "model = " in caught.value.hint and watching.sources.keys() == {"hall"}


def test_what_goes_wrong_on_the_way_ends_nothing(packed, tmp_path, monkeypatch, idle):
    """What was to be done each second was done no more: a supervisor heard nothing, and ended the service."""
    said: list[str] = []
    looked: list[int] = []

    def tick(self: Service) -> None:
        looked.append(1)
        raise OverflowError("date value out of range") if len(looked) < 3 else HistoryError("no room")

    monkeypatch.setattr(Service, "_tick", tick)
    with socket.create_server(("127.0.0.1", 0)) as nobody:
        path = write(tmp_path, packed, {"hall": nobody.getsockname()[1]})
        with Service(read_config(path), said.append):
            until(lambda: len(looked) > 3, LONG)
    wrong = [text for text in said if "continues after OverflowError: date value out of range" in text]
    assert len(wrong) == 1 and said.count("no room") == 1

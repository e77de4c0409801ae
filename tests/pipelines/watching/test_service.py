"""The service: its sources come and go, and what they do is stored."""

import json
import socket
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import cv2
import numpy as np
import pytest

from lstr.errors import HistoryError, LstrError
from lstr.pipelines.detection.model import load_checkpoint
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.watching import service
from lstr.pipelines.watching.config import read_config
from lstr.pipelines.watching.history import EventFilter, History
from lstr.pipelines.watching.recorder import Recorder
from lstr.pipelines.watching.service import Service, notify_supervisor
from tests.pipelines.watching.test_history import event
from tests.support.patience import until
from tests.support.served import TS_HEAD, served

pytestmark = pytest.mark.usefixtures("soon")

LEFT = (((0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)),)
TOP = (((0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (0.0, 0.5)),)
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
    with served([TS_HEAD, stream], [TS_HEAD, stream], [TS_HEAD, stream, None]) as port:
        path = write(tmp_path, small_set, {"hall": port}, "[clips]")
        with Service(read_config(path), [].append) as watching:
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
    assert events and all(event.end and event.top_score >= event.score for event in events)
    assert {event.model for event in events} == {small_set.checkpoint.name}
    newest = [event for event in events if event.start == events[0].start]
    assert all(event.still_on for event in newest), "its end ended what was on"
    assert len({event.id for event in events}) == len(events)
    again.close()


@pytest.mark.long
def test_sources_are_paused_added_and_removed_and_that_is_kept(small_set, stream, tmp_path):
    with served([TS_HEAD, stream, None]) as one, served([TS_HEAD, stream, None]) as other:
        path = write(tmp_path, small_set, {"hall": one})
        with Service(read_config(path), [].append) as watching:
            until(lambda: "hall" in watching.status(), LONG)
            watching.add("door", f"http://127.0.0.1:{other}/door")
            until(lambda: watching.status().keys() == {"hall", "door"}, LONG)
            watching.pause("hall")
            until(lambda: watching.status().keys() == {"door"}, LONG)
            with pytest.raises(LstrError):
                watching.add("door", watching.sources["hall"].address)
            with pytest.raises(LstrError):
                watching.pause("x")
            with pytest.raises(LstrError):
                watching.remove("hall")
        with Service(read_config(path), [].append) as watching:
            assert watching.paused == ["hall"] and watching.sources.keys() == {"hall", "door"}
            watching.pause("door")
            watching.remove("door")
            assert watching.sources.keys() == {"hall"} == {*watching.paused}, "one that is added again is not paused"


def test_what_is_old_is_forgotten_and_what_waited_for_the_disk_is_stored(unanswered, monkeypatch):
    """Though its source has ended."""
    monkeypatch.setattr(service, "CLEAN_INTERVAL_S", 0.1)
    with unanswered("[keeping]\ndays = 1\n") as watching:
        old = event(-3 * 86400.0)
        watching.history.begin(old, [], old.start)
        watching.history.update(replace(old, end=old.start), datetime.now().astimezone())
        until(lambda: watching.history.find(old.id) is None, LONG)
        begun = event()
        watching.recorder.add(begun, "new")
        watching.history._connection.execute("PRAGMA query_only=ON")  # as a full disk: every write fails
        watching.recorder.add(replace(begun, end=begun.start), "end")
        assert watching.history.events()[0].end is None
        watching.history._connection.execute("PRAGMA query_only=OFF")
        until(lambda: watching.history.events()[0].end, LONG)


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
        until(lambda: len(ticks) > 3, LONG)
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

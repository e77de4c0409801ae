"""The service: sources that come and go, and the events that it stores and announces."""

import json
import random
import socket
import sys
import threading
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from time import sleep

import cv2
import numpy as np
import pytest

from lstr.errors import HistoryError, LstrError
from lstr.pipelines.detection.model import Networks
from lstr.pipelines.model_files.packing import write_model
from lstr.pipelines.watching import clips
from lstr.pipelines.watching import service as service_module
from lstr.pipelines.watching import worker as worker_module
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.recorder import Recorder, RecorderSink
from lstr.pipelines.watching.service import Service, notify_supervisor
from tests.support.model_files import write_exportable
from tests.support.served import TS_HEAD, served
from tests.support.waiting import TIMEOUT_S, wait_until
from tests.support.watching import always_active, count_pending, recent_event

pytestmark = pytest.mark.usefixtures("fast_starts")

DRAWN = (((0.0, 0.0), (0.5, 0.0), (0.5, 1.0), (0.0, 1.0)),)
TOP = (((0.0, 0.0), (1.0, 0.0), (1.0, 0.5), (0.0, 0.5)),)


@pytest.fixture
def start(small_set, start_service):
    """Start a service of sources by their ports or addresses, in which every class is always active."""

    def start(tables: str = "", model=small_set.checkpoint, **sources: int | str):
        return start_service(f"{tables}\n{always_active(model)}", model=model, **sources)

    return start


def decided(service: Service) -> set[str]:
    return {name for name, status in service.status().items() if status.decided}


@pytest.fixture
def silent_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.mark.long
def test_sources_are_reopened(small_set, start, stream, tmp_path):
    with served([TS_HEAD, stream], [TS_HEAD, stream], [TS_HEAD, stream, None]) as port:
        with start("[clips]", hall=port) as service:
            history = service.history
            wait_until(lambda: len({event.start for event in history.events()}) > 1)
            wait_until(lambda: history.events()[-1].end is not None)
            (state,) = service.dashboard.state()["sources"]
            assert state["decided"] > 1 and state["columns"] >= state["decided"] and state["lag_ms"] is not None
            image = cv2.imdecode(np.frombuffer(service.dashboard.image("hall"), np.uint8), cv2.IMREAD_COLOR)
            assert image.std() > 10, "a frame of the camera"
            seconds = service.config.clips.before + clips.LATE_S + 0.25
            assert service.clips._rings["hall"].most_seconds == seconds, "clips know the delay of the thresholds"
    with closing(History(tmp_path / "watch.data" / "history.sqlite", readonly=True)) as history:
        events = history.events()
    assert events and all(event.end and event.top_score >= event.score for event in events)
    assert {event.model for event in events} == {small_set.checkpoint.name}
    assert all(event.still_active for event in events if event.start == events[0].start), (
        "the source ended, not the action"
    )


@pytest.mark.long
def test_sources_are_paused_added_and_removed_also_after_a_restart(start, stream, silent_port):
    with served([TS_HEAD, stream, None]) as hall, served([TS_HEAD, stream, None]) as door:
        sources = {"hall": hall, "quiet": silent_port}
        with start(**sources) as service:

            def wait_for(*names: str) -> None:
                wait_until(lambda: service.status().keys() == {*names})

            wait_for("hall", "quiet")
            wait_until(lambda: decided(service))
            service.pause("quiet")
            wait_for("hall")
            service.pause("quiet", False)
            wait_for("hall", "quiet")
            service.add("door", f"http://127.0.0.1:{door}/door")
            wait_until(lambda: decided(service) == {"hall", "door"})
            service.pause("hall")
            wait_for("door", "quiet")
            for method, *arguments in (
                (service.add, "door", service.sources["hall"].address),
                (service.pause, "x"),
                (service.remove, "hall"),
            ):
                with pytest.raises(LstrError):
                    method(*arguments)
        with start(**sources) as service:
            assert service.paused == ["hall"] and [*service.sources] == ["hall", "quiet", "door"]
            service.pause("door")
            service.remove("door")
            assert service.paused == ["hall"], "a source that is added again is not paused"


@pytest.mark.long
@pytest.mark.skipif(Path("/dev/video63").exists(), reason="this machine has 64 cameras")
def test_an_unplugged_camera_stops_no_other_source_and_is_logged_once(start, stream):
    with served([TS_HEAD, stream, None]) as port, start(cam="/dev/video63", hall=port) as service:
        wait_until(lambda: decided(service) == {"hall"})
        before, (worker,) = service.status()["hall"], service.workers.values()
        wait_until(lambda: worker._attempts["cam"].failures > 4)
        assert service.status()["hall"] is before, "the same connection"
    assert [text.partition(":")[0] for text in service.messages if "/dev/video63" in text] == ["cam"], service.messages


@pytest.mark.long
def test_start_and_end_of_an_outage_are_logged_once(start, stream):
    with served([TS_HEAD, stream, None], [b""], [b""], [TS_HEAD, stream, None]) as port:
        with start('timeout = "1s"', hall=port) as service:
            wait_until(lambda: any("again" in text for text in service.messages))
            assert decided(service) == {"hall"}
    lines = [text for text in service.messages if f":{port}/" in text or "again" in text]
    end = next(at for at, line in enumerate(lines) if "again" in line)  # the next outage may follow
    assert end and all(line != following for line, following in pairwise(lines[: end + 1])), lines


@pytest.mark.slow
def test_a_replaced_model_file_is_reloaded(small_set, start, stream, tmp_path, monkeypatch):
    closed = threading.Event()

    class ObservedNetworks(Networks):
        def close(self) -> None:
            super().close()
            closed.set()

    monkeypatch.setattr(worker_module, "Networks", ObservedNetworks)
    model = write_model(tmp_path / "small.lstr", small_set.checkpoint, None, {}).path
    (tmp_path / "new").mkdir()
    new = write_exportable(tmp_path / "new")
    with served(*[[TS_HEAD, stream, None]] * 4) as port, start(model=model, hall=port) as service:
        wait_until(lambda: decided(service) == {"hall"})
        (worker,) = service.workers.values()
        before = worker.actions
        new.path.replace(model)
        service.pause("hall")
        assert closed.wait(TIMEOUT_S)
        service.pause("hall", False)
        wait_until(lambda: decided(service) == {"hall"})
        assert worker.actions == new.about["classes"][1:] != before


@pytest.mark.long
def test_a_recording_is_decided_once(start, stream, monkeypatch):
    """An HLS stream of an event is a recording when the event is over."""
    chunks: list[int] = []
    monkeypatch.setattr(RecorderSink, "take", lambda self, decision: chunks.append(decision.chunk))
    head = b"HTTP/1.0 200 OK\r\nContent-Type: video/mp2t\r\nContent-Length: %d\r\n\r\n" % len(stream)
    with served([head, stream], [head, stream], [TS_HEAD, stream, None]) as port, start(hall=port) as service:
        wait_until(lambda: any("recording" in text for text in service.messages))
        recorded = [*chunks]
        wait_until(lambda: decided(service) == {"hall"})  # the third time it is live
    assert recorded == sorted({*recorded}) != [] and len(chunks) > len(recorded)


def check_alive(service: Service) -> None:
    (worker,) = service.workers.values()
    wait_until(lambda before=worker.alive: worker.alive > before + 1.0)


@pytest.mark.long
def test_a_service_is_alive_without_frames(start, silent_port):
    with start(door=silent_port) as service:
        wait_until(lambda: service.status().keys() == {"door"})
        check_alive(service)
        assert not service.status()["door"].decided


@pytest.mark.long
def test_a_service_is_alive_without_a_model(start_service, monkeypatch):
    monkeypatch.setattr(worker_module, "RETRY_S", (300.0,))
    with start_service() as service:
        wait_until(lambda: service.dashboard.state()["sources"][0]["link"] == "ended")
        check_alive(service)
        assert "none.lstr" in service.dashboard.state()["sources"][0]["trouble"]


def test_old_events_are_deleted_and_delayed_ones_stored(start_service, monkeypatch):
    """An event waits for the disk also after its source has ended."""
    monkeypatch.setattr(service_module, "CLEAN_INTERVAL_S", 0.1)
    with start_service("[history]\ndays = 1\n") as service:
        old, new = recent_event(3 * 86400.0), recent_event()
        service.history.begin(old, [])
        service.history.update(replace(old, end=old.start))
        wait_until(lambda: service.history.find(old.id) is None)
        service.recorder.add(new, "new")
        service.history._connection.execute("PRAGMA query_only=ON")  # every write fails, as on a full disk
        service.recorder.add(replace(new, end=new.seen), "end")
        assert service.history.events()[0].end is None
        service.history._connection.execute("PRAGMA query_only=OFF")
        wait_until(lambda: service.history.events()[0].end)


def test_systemd_is_notified(tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        notify_supervisor("READY=1")
        assert systemd.recv(100) == b"READY=1"
    notify_supervisor("STOPPING=1")  # the socket is closed


def test_a_source_without_a_model_is_not_added(start_service, idle):
    with start_service(settings='model = "none.lstr"', model=None) as service:
        with pytest.raises(LstrError) as caught:
            service.add("door", "http://127.0.0.1:9/door")
        assert "model = " in caught.value.hint and service.sources.keys() == {"hall"}


def test_errors_of_the_service_thread_are_logged_once(start_service, monkeypatch):
    ticks: list[int] = []

    def flush(self: Recorder) -> None:
        ticks.append(1)
        raise OverflowError("date value out of range") if len(ticks) < 3 else HistoryError("no room", "delete files.")

    monkeypatch.setattr(Recorder, "flush", flush)
    with start_service() as service:
        wait_until(lambda: len(ticks) > 3)
    assert len([text for text in service.messages if "OverflowError" in text or "no room" in text]) == 2


def zones_of(service: Service, name: str = "hall") -> tuple:
    """Return the zones of a source on the page, and whether they were drawn there."""
    state = next(source for source in service.dashboard.state()["sources"] if source["name"] == name)
    assert state["zones"] == service.zones[name]
    return state["zones"], state["drawn"]


def test_drawn_zones_override_the_file_also_after_a_restart(start_service):
    settings = f"zones = {json.dumps(TOP)}\n"
    with start_service(settings=settings) as service:
        assert zones_of(service) == (TOP, False)
        messages = service.dashboard.messages()
        next(messages)
        service.draw("hall", DRAWN)
        assert zones_of(service) == (DRAWN, True)
        assert [message["kind"] for message in next(messages)] == ["state"]
        with pytest.raises(LstrError):
            service.draw("x", DRAWN)
        service.add("garage", "http://127.0.0.1:9/garage")
        service.draw("garage", DRAWN)
        service.remove("garage")
        service.add("garage", "http://127.0.0.1:9/other")
        assert zones_of(service, "garage") == ((), False), "a removed source loses its zones"
    with start_service(settings=settings) as service:
        assert zones_of(service) == (DRAWN, True)
        service.draw("hall", ())
        assert zones_of(service) == ((), True), "everywhere, though the file has zones"
        service.draw("hall", None)
        assert zones_of(service) == (TOP, False)


def read_notes(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("kills", [pytest.param(1, marks=pytest.mark.long), pytest.param(20, marks=pytest.mark.slow)])
def test_a_killed_service_loses_no_event(launch, run, small_set, stream, tmp_path, kills):
    """Each start sees every action once. Killed between sending and storing that, it sends again, with the same id."""
    notes, delays = tmp_path / "notes.jsonl", random.Random(0)
    program = "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n')"
    channel = f'kind = "command"\ncommand = {json.dumps([sys.executable, "-S", "-c", program, str(notes)])}'
    run("pack", small_set.checkpoint.parent, "-o", tmp_path / "small.lstr")
    ended = threading.Event()  # the last process waits for a silent camera
    with served(*[[TS_HEAD, stream, None]] * kills, [TS_HEAD, stream, ended.wait]) as port:
        text = f'model = "small.lstr"\n[sources.hall]\naddress = "http://127.0.0.1:{port}/hall"\n'
        text += f"{always_active(small_set.checkpoint)}[channels.notes]\n{channel}\n"
        (tmp_path / "watch.toml").write_text(text)
        for kill in range(kills + 1):
            count = len(read_notes(notes))
            service = launch("watch", tmp_path / "watch.toml")
            wait_until(lambda n=count, process=service: not process.is_alive() or len(read_notes(notes)) > n)
            assert service.is_alive(), "it ended by itself"
            if kill < kills:
                sleep(delays.uniform(0, 0.3))
                service.kill()
            else:
                history = History(tmp_path / "watch.data" / "history.sqlite", readonly=True)
                wait_until(lambda stored=history: not any(count_pending(stored).values()))
                service.terminate()
                ended.set()
            service.join()
    events, lines = history.events(), read_notes(notes)
    history.close()
    assert {line["event"]["id"] for line in lines if line["phase"] == "new"} == {event.id for event in events}
    assert all(event.end for event in events) and len(events) > kills
    assert len({(event.action, event.start) for event in events}) == len(events), "each is stored once"
    notices = [line["notice"] for line in lines]
    assert len(notices) - len(set(notices)) <= kills

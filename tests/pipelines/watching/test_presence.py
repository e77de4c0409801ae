"""Who is before a camera: what a stand-in for Frigate publishes at a real broker, not Frigate itself."""

import json
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from time import monotonic

import paho.mqtt.client as paho
import pytest

from lstr.extractors.video.gaps import RESTING
from lstr.pipelines.watching import presence
from lstr.pipelines.watching.config import ChannelConfig, GateConfig, SourceConfig, WatchConfig
from lstr.pipelines.watching.config_file import read_config
from lstr.pipelines.watching.health import Health
from lstr.pipelines.watching.history import History
from lstr.pipelines.watching.presence import Presence
from lstr.pipelines.watching.service import Service
from lstr.pipelines.watching.telling.telling import Telling
from tests.extractors.video.test_packet_gate import film
from tests.pipelines.watching.test_service import write
from tests.support.broker import Broker
from tests.support.patience import until
from tests.support.served import TS_HEAD, served

GATE = GateConfig("person/active", "house", linger=0.2)
HALL, AVAILABLE = "frigate/hall/person/active", "frigate/available"
LONG = 120.0  # seconds that a busy machine may take


def config_of(tmp_path: Path, port: int = 1883, **gate) -> WatchConfig:
    sources = {
        "corridor": SourceConfig("rtsp://x/", camera="hall", gate=replace(GATE, **gate)),
        "yard": SourceConfig("rtsp://y/"),
    }
    house = ChannelConfig("mqtt", host="127.0.0.1", port=port)
    return WatchConfig(Path("watch.toml"), None, tmp_path, sources, channels={"house": house})


@pytest.fixture
def broker(tmp_path) -> Iterator[Broker]:
    broker = Broker(tmp_path)
    yield broker
    broker.stop()


class Frigate:
    """Publishes as Frigate does."""

    def __init__(self, broker: Broker):
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.connect("127.0.0.1", broker.port)
        self.client.loop_start()

    def say(self, topic: str, payload: str, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos=1, retain=retain).wait_for_publish(60)

    def __enter__(self) -> "Frigate":
        return self

    def __exit__(self, *_) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def test_what_is_not_known_is_decided_and_said_once(tmp_path):
    said: list[str] = []
    known = Presence(config_of(tmp_path), said.append)
    assert known.topics("house") == [AVAILABLE, HALL] and known.topics("other") == []
    assert known.is_wanted("corridor") and known.is_wanted("corridor") and known.is_wanted("yard")
    assert said == [f"corridor: nothing is known of {HALL} now, so that everything is decided."]
    assert known.gate("yard") is None and known.gate("added later") is None
    for nonsense in (b"", b"-1", b"two", b"1" * 1000, "²".encode(), b"\xff"):
        assert known.hear("house", HALL, nonsense) and known.is_wanted("corridor")
    assert known.hear("house", HALL, b"0") and not known.hear("house", "frigate/hall/person", b"9")
    until(lambda: not known.is_wanted("corridor"), 10)
    assert not known.hear("other", HALL, b"1") and not known.is_wanted("corridor"), "another broker says nothing of it"
    known.hear("house", HALL, b"2")
    assert known.is_wanted("corridor")
    known.hear("house", HALL, b"0")
    until(lambda: not known.is_wanted("corridor"), 10)
    for lost in (lambda: known.lose("house"), lambda: known.hear("house", AVAILABLE, b"offline")):
        lost()
        assert known.is_wanted("corridor") and known.is_wanted("corridor")
        known.hear("house", HALL, b"0")
        until(lambda: not known.is_wanted("corridor"), 10)
    known.hear("house", AVAILABLE, b"online")
    assert not known.is_wanted("corridor") and len(said) == 3
    known.configure(config_of(tmp_path))
    assert known.is_wanted("corridor") and len(said) == 4


def test_it_lingers_after_the_last_one_has_left(tmp_path, monkeypatch):
    now = [monotonic()]
    monkeypatch.setattr(presence, "monotonic", lambda: now[0])
    known = Presence(config_of(tmp_path, linger=10.0), print)
    known.hear("house", HALL, b"1")
    now[0] += 100
    known.hear("house", HALL, b"0")
    now[0] += 9
    known.hear("house", HALL, b"0")  # said again: it is not anew that they have left
    assert known.is_wanted("corridor")
    now[0] += 2
    assert not known.is_wanted("corridor")


def test_a_broker_that_says_it_and_goes_away(tmp_path, broker, history, monkeypatch):
    said: list[str] = []
    config = config_of(tmp_path, broker.port)
    known = Presence(config, said.append)
    with Telling(config, history, said.append, presence=known) as telling:
        until(lambda: telling.status()["house"].connected, 60)
        with Frigate(broker) as frigate:
            frigate.say(HALL, "0", retain=True)
            until(lambda: not known.is_wanted("corridor"), 60)
            frigate.say(HALL, "1")
            until(lambda: known.is_wanted("corridor"), 60)
            frigate.say(HALL, "0")
            until(lambda: not known.is_wanted("corridor"), 60)
        broker.stop()
        until(lambda: known.is_wanted("corridor"), 60)
        assert said[-1] == f"corridor: nothing is known of {HALL} now, so that everything is decided."
    broker.start()
    with Frigate(broker) as frigate:  # what is retained is known at once
        frigate.say(HALL, "0", retain=True)
        known = Presence(config, said.append)
        with Telling(config, history, said.append, presence=known):
            until(lambda: not known.is_wanted("corridor"), 60)


@pytest.fixture
def history(tmp_path) -> Iterator[History]:
    history = History(tmp_path / "history.sqlite")
    yield history
    history.close()


@pytest.mark.long
def test_a_service_waits_for_a_person(small_set, tmp_path, broker):
    """Nothing is decoded, and all is well; then what came before is decided too, and what is on ends as they leave."""
    data, said = film(tmp_path / "film.ts", seconds=4), []
    path = write(tmp_path, small_set, {})
    beats = [part for at in range(0, len(data), 188 * 7) for part in (data[at : at + 188 * 7], 0.01)]
    with served([TS_HEAD, *beats * 60, None]) as port, Frigate(broker) as frigate:
        frigate.say(HALL, "0", retain=True)
        path.write_text(
            f'{path.read_text()}\n[sources.hall]\naddress = "http://127.0.0.1:{port}/a.ts"\n'
            'only_while = "person/active"\nlinger = 0\nlead = "5s"\n'
            f'[channels.house]\nkind = "mqtt"\nhost = "127.0.0.1"\nport = {broker.port}\n'
        )
        with Service(read_config(path), said.append) as watching:
            until(lambda: not watching.presence.is_wanted("hall"), LONG)
            until(lambda: watching.status().get("hall") and watching.status()["hall"].link == RESTING, LONG)
            frames, (decider,) = watching.status()["hall"].frames, watching.deciders.values()
            alive = decider.alive
            time.sleep(1.0)
            until(lambda: decider.alive > alive, LONG)  # else a supervisor would end it
            assert watching.status()["hall"].frames == frames, "nothing is decoded"
            assert Health(watching).silent() == {} and watching.board.states()[0]["link"] == RESTING
            assert watching.board.states()[0]["lag_ms"] is None and watching.board.silences() == {"hall": 0.0}
            before = {event.id for event in watching.history.events()}
            opened = datetime.now().astimezone()
            frigate.say(HALL, "1", retain=True)
            until(lambda: {event.id for event in watching.history.events()} - before, LONG)
            event = [event for event in watching.history.events() if event.id not in before][-1]
            assert event.start < opened and opened - event.start < timedelta(seconds=LONG)
            assert event.decided < opened, "by frames that came before"
            until(lambda: watching.status()["hall"].link == "reading", LONG)
            frigate.say(HALL, "0", retain=True)
            until(lambda: watching.history.find(event.id).end, LONG)
            ended = watching.history.find(event.id)
            assert ended.still_on and ended.end >= ended.start
            until(lambda: watching.status()["hall"].link == RESTING, LONG)
            assert watching.status()["hall"].unseen == 0 and json.dumps(watching.board.states())

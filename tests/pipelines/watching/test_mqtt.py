"""A real MQTT broker: what is retained, the last will, orders, and what Home Assistant gets."""

import json
import socket
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

import paho.mqtt.client as paho
import pytest

from lstr.pipelines.watching import mqtt
from lstr.pipelines.watching.mqtt import MqttConfig, MqttNotifier, identifier, safe_level
from lstr.pipelines.watching.notifications import Notifications
from tests.support.broker import Broker
from tests.support.waiting import wait_until
from tests.support.watching import count_pending


@pytest.fixture(scope="module")
def broker(tmp_path_factory) -> Iterator[Broker]:
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.stop()


class Listener:
    """A client of the broker that notes all it hears; `last` is what came last, by topic."""

    def __init__(self, port: int):
        for seconds in (2, 4, 8, 16, 60):  # amqtt leaves a client unanswered that connects while another one subscribes
            if self._subscribe(port, seconds):
                return
            self.__exit__()
        raise AssertionError("the broker answers no subscription")

    def _subscribe(self, port: int, seconds: float) -> bool:
        """Connect and subscribe to all topics; whether the broker has answered in time."""
        self.heard: dict[str, list[str]] = defaultdict(list)
        subscribed = threading.Event()
        self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
        self.client.on_message = lambda _client, _data, m: self.heard[m.topic].append(m.payload.decode())
        self.client.on_subscribe = lambda *_: subscribed.set()
        self.client.connect("127.0.0.1", port)
        self.client.loop_start()
        self.client.subscribe("#", qos=1)
        return subscribed.wait(seconds)

    def last(self, topic: str) -> str:
        return self.heard[topic][-1] if self.heard[topic] else ""

    def send(self, topic: str, payload: str, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos=1, retain=retain).wait_for_publish(60)

    def __enter__(self) -> "Listener":
        return self

    def __exit__(self, *_) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def prefix(request) -> str:
    """Topics of one test alone."""
    return f"home/{identifier(request.node.name)}"


@pytest.fixture
def home(broker, prefix, watch_config):
    """A configuration with the broker as its channel."""
    return watch_config(home=(MqttNotifier, MqttConfig("127.0.0.1", broker.port, prefix=prefix, discovery="ha")))


@pytest.fixture
def listener(broker) -> Iterator[Listener]:
    with Listener(broker.port) as opened:
        yield opened


ACTIONS = {"hall": ["falling", "running"], "front/door +#": ["falling"]}


def test_an_event_from_its_beginning_to_its_end(history, home, prefix, event_of, listener):
    """Also where the file is read again meanwhile: what is active stays ON, and what was not announced is OFF."""
    event, state = event_of(), f"{prefix}/hall/falling/state"
    untold = event_of(action="running")
    history.begin(untold, ["phone"], untold.decided)
    with Notifications(home.channels, history, print) as running:
        running.show_sources(ACTIONS)
        running.show_source("hall", True, True)
        wait_until(lambda: listener.last(f"{prefix}/available") == "online" and listener.last(state) == "OFF")
        history.begin(event, ["home"], event.decided)
        running.wake()
        wait_until(lambda: "home" not in count_pending(history) and listener.last(f"{prefix}/hall/event"))
        assert listener.last(state) == "ON" and listener.last(f"{prefix}/hall/last") == "falling"
        assert json.loads(listener.last(f"{prefix}/hall/event"))["event"] == history.find(event.id).to_dict()
        known = len(listener.heard[state])
    wait_until(lambda: listener.last(f"{prefix}/available") == "offline")
    with Notifications(home.channels, history, print) as running:
        running.show_sources(ACTIONS)
        wait_until(lambda: listener.last(f"{prefix}/hall/running/state") == "OFF")
        wait_until(lambda: len(listener.heard[state]) > known)
        assert {*listener.heard[state][known:]} == {"ON"}
        history.update(replace(event, end=event.seen), event.seen)
        running.wake()
        wait_until(lambda: len(listener.heard[f"{prefix}/hall/event"]) == 2 and listener.last(state) == "OFF")
        assert listener.last(f"{prefix}/hall/health") == listener.last(f"{prefix}/hall/state") == "ON"
    new, end = (json.loads(text) for text in listener.heard[f"{prefix}/hall/event"])
    assert (new["phase"], end["phase"]) == ("new", "end") and new["event"]["end"] is None
    assert new["event"]["id"] == end["event"]["id"] == event.id
    assert datetime.fromisoformat(end["event"]["end"]).timestamp() == pytest.approx(event.seen.timestamp(), abs=0.001)


def test_what_home_assistant_discovers_is_retained(history, home, broker, prefix):
    with Notifications(home.channels, history, print) as running:
        running.show_sources(ACTIONS)
        with Listener(broker.port) as listener:  # later than what it hears

            def entities() -> list[dict]:
                ours = [texts[-1] for topic, texts in [*listener.heard.items()] if topic.endswith("/config")]
                found = [json.loads(text) for text in ours if text]
                return [entity for entity in found if entity["availability"][0]["topic"] == f"{prefix}/available"]

            wait_until(lambda: len(entities()) == 3 + 2 * 3)
            assert len({entity["unique_id"] for entity in entities()}) == 9
            assert {entity["device"]["name"] for entity in entities()} == set(ACTIONS)
            states = {entity["name"]: entity["state_topic"] for entity in entities() if "hall" in entity["unique_id"]}
            assert states["falling"] == f"{prefix}/hall/falling/state" and states["Camera"] == f"{prefix}/hall/health"
            running.show_sources({"hall": ["falling"]})
            wait_until(lambda: len(entities()) == 4)
            heard = len(listener.heard[f"{prefix}/available"])
            listener.send("ha/status", "online")
            wait_until(lambda: len(listener.heard[f"{prefix}/available"]) > heard)
            assert len(entities()) == 4 and len(listener.heard[f"{prefix}/hall/falling/state"]) >= 2


def test_what_was_removed_while_it_was_down_is_forgotten(history, home, broker, prefix):
    with Listener(broker.port) as listener:
        with Notifications(home.channels, history, print) as running:
            running.show_sources({"hall": ["falling"], "attic": ["falling"]})
            running.show_source("attic", True, True)
            wait_until(lambda: listener.last(f"{prefix}/attic/health") == "ON")
        ours = {topic for topic in listener.heard if topic.startswith(("ha/", f"{prefix}/attic/"))}
        ours = {topic for topic in ours if identifier(prefix, "attic") in topic or "/attic/" in topic}
        assert len(ours) == 4 + 3 and ours <= {*history.value("retained home")}
        with Notifications(home.channels, history, print) as running:
            running.show_sources({"hall": ["falling"]})
            wait_until(lambda: running.deliveries["home"].notifier.connected)
            wait_until(lambda: all(listener.last(topic) == "" for topic in ours))
            running.show_source("hall", True, True)
        assert not ours & {*history.value("retained home")}, "the broker has confirmed it"
        assert listener.last(f"{prefix}/hall/falling/state") == "OFF"
    with Listener(broker.port) as listener:  # hears what is retained
        wait_until(lambda: listener.last(f"{prefix}/hall/health") == "ON")
        assert not ours & {*listener.heard}


def test_a_switch_is_obeyed_and_the_last_will_is_of_one_that_is_cut_off(history, home, prefix, listener):
    switched = []
    listener.send(f"{prefix}/hall/set", "OFF", retain=True)  # an old order, which is not obeyed
    wait_until(lambda: listener.last(f"{prefix}/hall/set"))
    with Notifications(home.channels, history, print, watch_source=lambda *order: switched.append(order)) as running:
        running.show_sources(ACTIONS)
        notifier = running.deliveries["home"].notifier
        wait_until(lambda: notifier.connected)
        door = notifier.topic("front/door +#", "set")
        for topic, text in ((door, "OFF"), (door, "maybe"), (f"{prefix}/nobody/set", "ON"), (door, "ON")):
            listener.send(topic, text)
        wait_until(lambda: len(switched) == 2)
        notifier._client.socket().shutdown(socket.SHUT_RDWR)
        wait_until(lambda: "offline" in listener.heard[f"{prefix}/available"])
    assert switched == [("front/door +#", False), ("front/door +#", True)]


def test_a_broker_that_restarts_is_told_all_again(history, watch_config, event_of, tmp_path, monkeypatch):
    monkeypatch.setattr(mqtt, "MIN_RECONNECT_S", 0.1)
    broker = Broker(tmp_path)
    broker.stop()
    config = watch_config(home=(MqttNotifier, MqttConfig("127.0.0.1", broker.port)))
    history.set_value("retained home", ["ha/old/config"])  # which the broker is to forget, once it can be told
    late, event = event_of(), event_of(source="yard")
    history.begin(late, ["home"], late.decided)
    history.update(replace(late, end=late.seen), late.seen)
    history.begin(event, ["home"], event.decided)
    with Notifications(config.channels, history, print) as running:
        running.show_sources({"hall": ["falling"], "yard": ["falling"]})
        wait_until(lambda: running.deliveries["home"].failed)
        assert running.deliveries["home"].notifier.connected is False
        assert {"ha/old/config", "lstr/hall/last"} <= {*history.value("retained home")}
        broker.start()
        try:
            wait_until(lambda: not count_pending(history))
            broker.stop()
            wait_until(lambda: not running.deliveries["home"].notifier.connected)
            broker.start()
            with Listener(broker.port) as listener:
                wait_until(lambda: listener.last("lstr/available") == "online")
                wait_until(lambda: listener.last("lstr/yard/falling/state") == "ON")
                assert listener.last("lstr/hall/falling/state") == "OFF"
        finally:
            broker.stop()


def test_names_are_safe_in_topics():
    names = ["hall", "a/b", "a_b", "a+b", "#", "", "a\0b", "x" * 300, "x" * 301, "küche", "\ud800"]
    levels = [safe_level(name) for name in names]
    assert levels[0] == "hall" and levels[9] == "küche" and len({*levels}) == len(names)
    assert not [level for level in levels if not level or len(level) > 120 or {*level} & {*"+#/\0\ud800"}]
    for given, prefix in (("a/$x/#/", "a/$x/_"), ("", "lstr")):
        assert MqttNotifier("home", MqttConfig("broker", prefix=given)).topic("available") == f"{prefix}/available"
    assert len({identifier(name) for name in names}) == len(names) and identifier("küche").isascii()

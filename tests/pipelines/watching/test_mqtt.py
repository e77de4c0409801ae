"""MQTT by a real broker: retained messages, the last will, switches, and what Home Assistant discovers."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

import paho.mqtt.client as paho
import pytest

from lstr.pipelines.watching import mqtt
from lstr.pipelines.watching.mqtt import MqttNotifier, identifier, safe_level
from lstr.pipelines.watching.notifications import Notifications
from tests.support.waiting import wait_until
from tests.support.watching import count_pending, recent_event

ACTIONS = {"hall": ["falling", "running"], "front/door +#": ["falling"]}
STATES = dict.fromkeys([*ACTIONS, "attic", "yard"], (True, True))
MOSQUITTO = "listener {port} 127.0.0.1\nallow_anonymous true\n"
AMQTT = """
listeners: {{default: {{type: tcp, bind: "127.0.0.1:{port}"}}}}
plugins: {{amqtt.plugins.authentication.AnonymousAuthPlugin: {{allow_anonymous: true}}}}
"""


class Broker:
    """mosquitto if it is installed, otherwise amqtt, on loopback; it can be stopped and started on the same port."""

    def __init__(self, folder: Path):
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
        # Debian installs it to a folder of root's PATH only
        program = shutil.which("mosquitto", path=f"{os.environ['PATH']}:/usr/sbin:/usr/local/sbin")
        (folder / "broker.conf").write_text((MOSQUITTO if program else AMQTT).format(port=self.port))
        command = [program] if program else [sys.executable, "-m", "amqtt.scripts.broker_script"]
        self._command = [*command, "-c", str(folder / "broker.conf")]
        self.start()

    def start(self) -> None:
        def listens() -> bool:
            assert self._process.poll() is None, "the broker ended"
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", self.port)) == 0

        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(listens)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    broker = Broker(tmp_path_factory.mktemp("broker"))
    yield broker
    broker.stop()


class Listener(AbstractContextManager):
    """A client that subscribes to all topics of a broker; `messages` are the payloads by topic."""

    def __init__(self, port: int):
        for seconds in (2, 4, 8, 16, 60):  # amqtt does not answer a client that connects while another one subscribes
            self.messages: dict[str, list[str]] = defaultdict(list)
            subscribed = threading.Event()
            self.client = paho.Client(paho.CallbackAPIVersion.VERSION2)
            self.client.on_message = lambda _client, _data, m: self.messages[m.topic].append(m.payload.decode())
            self.client.on_subscribe = lambda *_, subscribed=subscribed: subscribed.set()
            self.client.connect("127.0.0.1", port)
            self.client.loop_start()
            self.client.subscribe("#", qos=1)
            if subscribed.wait(seconds):
                return
            self.__exit__()
        raise AssertionError("the broker answers no subscription")

    def last(self, topic: str) -> str:
        return self.messages[topic][-1] if self.messages[topic] else ""

    def send(self, topic: str, payload: str, retain: bool = False) -> None:
        self.client.publish(topic, payload, qos=1, retain=retain).wait_for_publish(60)

    def __exit__(self, *_) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def prefix(request) -> str:
    return f"home/{identifier(request.node.name)}"


@pytest.fixture
def connect(broker, prefix, history):
    """Open a channel `home` of the broker: connect(**callbacks) -> notifications."""
    config = MqttNotifier.Config("127.0.0.1", broker.port, prefix=prefix, discovery="ha")
    return lambda **callbacks: Notifications({"home": (MqttNotifier, config)}, history, print, **callbacks)


@pytest.fixture
def listener(broker):
    with Listener(broker.port) as opened:
        yield opened


def test_messages_of_an_event(history, connect, prefix, listener):
    """After a restart during the event its state stays ON; the state of an action that was not announced is OFF."""
    event, state, silent = recent_event(), f"{prefix}/hall/falling/state", recent_event(action="running")
    history.begin(silent, ["phone"])
    with connect() as running:
        running.show_sources(ACTIONS, STATES)
        wait_until(lambda: listener.last(f"{prefix}/available") == "online" and listener.last(state) == "OFF")
        history.begin(event, ["home"])
        running.wake()
        wait_until(lambda: "home" not in count_pending(history) and listener.last(f"{prefix}/hall/event"))
        assert listener.last(state) == "ON" and listener.last(f"{prefix}/hall/last") == "falling"
        assert json.loads(listener.last(f"{prefix}/hall/event"))["event"] == history.find(event.id).to_dict()
        count = len(listener.messages[state])
    wait_until(lambda: listener.last(f"{prefix}/available") == "offline")
    with connect() as running:
        running.show_sources(ACTIONS, STATES)
        wait_until(lambda: listener.last(f"{prefix}/hall/running/state") == "OFF")
        wait_until(lambda: len(listener.messages[state]) > count)
        assert {*listener.messages[state][count:]} == {"ON"}
        history.update(replace(event, end=event.seen))
        running.wake()
        wait_until(lambda: len(listener.messages[f"{prefix}/hall/event"]) == 2 and listener.last(state) == "OFF")
        assert listener.last(f"{prefix}/hall/health") == listener.last(f"{prefix}/hall/state") == "ON"
    new, end = (json.loads(text) for text in listener.messages[f"{prefix}/hall/event"])
    assert (new["phase"], end["phase"]) == ("new", "end") and end["event"] == history.find(event.id).to_dict()


def test_home_assistant_discovery_is_retained(connect, broker, prefix):
    with connect() as running:
        running.show_sources(ACTIONS, STATES)
        with Listener(broker.port) as listener:  # connects after the messages

            def entities() -> list[dict]:
                texts = [texts[-1] for topic, texts in [*listener.messages.items()] if topic.endswith("/config")]
                values = [json.loads(text) for text in texts if text]
                return [entity for entity in values if entity["availability"][0]["topic"] == f"{prefix}/available"]

            wait_until(lambda: len(entities()) == 3 + 2 * 3)
            assert len({entity["unique_id"] for entity in entities()}) == 9
            assert {entity["device"]["name"] for entity in entities()} == set(ACTIONS)
            states = {entity["name"]: entity["state_topic"] for entity in entities() if "hall" in entity["unique_id"]}
            assert states["falling"] == f"{prefix}/hall/falling/state" and states["Camera"] == f"{prefix}/hall/health"
            running.show_sources({"hall": ["falling"]}, STATES)
            wait_until(lambda: len(entities()) == 4)
            count = len(listener.messages[f"{prefix}/available"])
            listener.send("ha/status", "online")
            wait_until(lambda: len(listener.messages[f"{prefix}/available"]) > count)
            assert len(entities()) == 4 and len(listener.messages[f"{prefix}/hall/falling/state"]) >= 2


def test_the_broker_forgets_sources_that_were_removed_before_a_restart(history, connect, broker, prefix, listener):
    with connect() as running:
        running.show_sources({"hall": ["falling"], "attic": ["falling"]}, STATES)
        wait_until(lambda: listener.last(f"{prefix}/available") == "online")  # after all others
        wait_until(lambda: listener.last(f"{prefix}/attic/health") == "ON")
    attic = {topic for topic in listener.messages if topic.startswith(f"{prefix}/attic/")}
    attic |= {topic for topic in listener.messages if topic.startswith("ha/") and identifier(prefix, "attic") in topic}
    assert len(attic) == 4 + 3 and attic <= {*history.value("retained home")}
    with connect() as running:
        running.show_sources({"hall": ["falling"]}, STATES)
        wait_until(lambda: running.deliveries["home"].notifier.connected)
        wait_until(lambda: all(listener.last(topic) == "" for topic in attic))
    assert not attic & {*history.value("retained home")}, "the broker has confirmed it"
    assert listener.last(f"{prefix}/hall/falling/state") == "OFF"
    with Listener(broker.port) as later:
        wait_until(lambda: later.last(f"{prefix}/hall/health") == "ON")
        assert not attic & {*later.messages}


def test_switches_and_the_last_will(connect, prefix, listener):
    orders = []
    listener.send(f"{prefix}/hall/set", "OFF", retain=True)  # an old order, which is ignored
    wait_until(lambda: listener.last(f"{prefix}/hall/set"))
    with connect(watch_source=lambda *order: orders.append(order)) as running:
        running.show_sources(ACTIONS, STATES)
        notifier = running.deliveries["home"].notifier
        wait_until(lambda: listener.last(f"{prefix}/available") == "online")  # the topics are subscribed before
        door = notifier.topic("front/door +#", "set")
        for topic, text in ((door, "OFF"), (door, "maybe"), (f"{prefix}/unknown/set", "ON"), (door, "ON")):
            listener.send(topic, text)
        wait_until(lambda: len(orders) == 2)
        notifier._client.socket().shutdown(socket.SHUT_RDWR)
        wait_until(lambda: "offline" in listener.messages[f"{prefix}/available"])
    assert orders == [("front/door +#", False), ("front/door +#", True)]


def test_a_broker_that_restarts_receives_all_states(history, tmp_path, monkeypatch):
    monkeypatch.setattr(mqtt, "MIN_RECONNECT_S", 0.1)
    broker = Broker(tmp_path)
    broker.stop()
    history.set_value("retained home", ["ha/old/config"])  # for the broker to forget at the first connection
    ended, active = recent_event(), recent_event(source="yard")
    for event in (ended, active):
        history.begin(event, ["home"])
    history.update(replace(ended, end=ended.seen))
    channels = {"home": (MqttNotifier, MqttNotifier.Config("127.0.0.1", broker.port))}
    with Notifications(channels, history, print) as running:
        running.show_sources({"hall": ["falling"], "yard": ["falling"]}, STATES)
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
    for text, prefix in (("a/$x/#/", "a/$x/_"), ("", "lstr")):
        notifier = MqttNotifier("home", MqttNotifier.Config("broker", prefix=text))
        assert notifier.topic("available") == f"{prefix}/available"
    assert len({identifier(name) for name in names}) == len(names) and identifier("küche").isascii()

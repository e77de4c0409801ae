"""MQTT: states and events of every source for home automation, and orders that come back."""

import json
import secrets
import threading
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from datetime import datetime
from functools import partial
from time import monotonic
from typing import Any

from lstr.errors import ConfigError, DeliveryError, HistoryError
from lstr.pipelines.watching.channel import Channel, message_bytes
from lstr.pipelines.watching.config import MqttConfig
from lstr.pipelines.watching.history import History, Notice, Wanted
from lstr.pipelines.watching.retained import Retained
from lstr.pipelines.watching.topics import Topics, describe_source

# Within which the broker has confirmed a notice.
SECONDS = 10.0
TICK = 0.2
KEEPALIVE = 30
CONNECTING = 5.0
CLOSING = 0.4
# Seconds between two tries to connect, at first and at most.
SOONEST, SLOWEST = 1, 30
# Messages that wait for their confirmation.
MOST = 5000
STATES = {True: "ON", False: "OFF"}

Switch = Callable[[str, bool], None]


class Mqtt(Channel):
    """One connection to a broker, which is kept up and made again by itself. Raises ConfigError.

    Topics are those of `Topics`, each message with QoS 1. `available` turns `offline` by the broker's last will when
    the process is killed. States are of what is told: an event in quiet hours turns no state on.

    switch: called with a source and whether it is to be watched, when somebody switches it; it returns at once.
    """

    def __init__(self, name: str, config: MqttConfig, history: History, switch: Switch | None = None):
        super().__init__(name)
        self._config, self._history, self._switch = config, history, switch
        self._topics = Topics(config.prefix)
        self._discovery = config.discovery.strip("/")
        self._client = self._make_client()
        self._ready: Callable[[], None] = lambda: None
        self._lock = threading.RLock()
        self._retained = Retained(name, history)
        self._on: dict[str, str] = {}
        """The event that is on, by the topic of its state."""
        self._knows_on = False
        """Whether those are among them of which a channel of this name told before it, as before SIGHUP."""
        self._sources: dict[str, str] = {}
        """Sources by the topic at which they are switched."""
        self._reason = "the broker is not reached yet."
        self._closing = threading.Event()
        self.connected = False

    def _make_client(self) -> Any:
        try:
            from paho.mqtt.client import Client
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise ConfigError(
                "MQTT needs paho-mqtt, which is not installed.", "pip install 'lstr-video[watch]'"
            ) from None
        client = Client(CallbackAPIVersion.VERSION2, client_id=f"lstr-{secrets.token_hex(6)}")
        client.suppress_exceptions = True  # one would end the connection's thread
        client.connect_timeout = CONNECTING
        client.max_queued_messages_set(MOST)
        client.reconnect_delay_set(SOONEST, SLOWEST)
        client.will_set(self._topics.available, "offline", qos=1, retain=True)
        if self._config.user:
            client.username_pw_set(self._config.user, self._config.password or None)
        if self._config.tls:
            client.tls_set()
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        return client

    def open(self, ready: Callable[[], None]) -> None:
        self._ready = ready
        self._recall()
        self._client.connect_async(self._config.host, self._config.port, keepalive=KEEPALIVE)
        self._client.loop_start()

    def _recall(self) -> None:
        """Go on with the events that are on, and of which a channel of this name has told."""
        with self._lock, suppress(HistoryError):
            if self._knows_on:
                return
            for event in self._history.events(Wanted(on_for=self.name)):
                self._on.setdefault(self._topics.state(event.source, event.action), event.id)
            self._knows_on = True

    def tell(self, notice: Notice, now: datetime) -> None:
        if not self.connected:
            raise DeliveryError(self._reason)
        event = notice.event
        sent = self._show_state(notice)
        if notice.phase == "new":
            sent.append(self._retained.set(self._topics.last(event.source), event.action))
        sent.append(self._publish(self._topics.event(event.source), message_bytes(notice, now)))
        until = monotonic() + SECONDS
        for message in sent:
            self._wait(message, until)
        self._retained.note()

    def _show_state(self, notice: Notice) -> list[Any]:
        """Publish whether the action is on, unless a newer event of it is told already."""
        event = notice.event
        topic = self._topics.state(event.source, event.action)
        with self._lock:
            if event.end is None:
                self._on[topic] = event.id
            elif self._on.get(topic, event.id) == event.id:
                self._on.pop(topic, None)
            else:
                return []
            return [self._retained.set(topic, STATES[event.end is None])]

    def _wait(self, message: Any, until: float) -> None:
        if message is None:
            raise DeliveryError("the connection to the broker was lost.")
        try:
            while not message.is_published():
                message.wait_for_publish(TICK)
                if self._closing.is_set():
                    raise DeliveryError("the program is ending.")
                if monotonic() > until:
                    raise DeliveryError(f"the broker did not confirm it within {SECONDS:g} s.")
        except (ValueError, RuntimeError):
            raise DeliveryError("the connection to the broker was lost.") from None

    def abort(self) -> None:
        self._closing.set()

    def close(self) -> None:
        self._closing.set()
        if self.connected:
            with suppress(ValueError, RuntimeError):
                self._publish(self._topics.available, "offline", retain=True).wait_for_publish(CLOSING)
        self._client.disconnect()
        # it waits for the connection's thread, which may be in the middle of connecting
        stopping = threading.Thread(target=self._client.loop_stop, daemon=True)
        stopping.start()
        stopping.join(CLOSING)
        self.connected = False
        self._retained.note()

    def show_sources(self, actions: Mapping[str, Collection[str]]) -> None:
        described: dict[str, str] = {}
        kept: dict[str, str] = {}
        topics = self._topics
        self._recall()
        for source, names in actions.items():
            states = {topics.state(source, action) for action in names}
            kept |= {state: STATES[state in self._on] for state in states}
            kept |= dict.fromkeys((topics.last(source), topics.switch(source), topics.health(source)), "")
            if self._discovery:
                entities = describe_source(self._discovery, topics, source, names)
                described |= {topic: json.dumps(values, ensure_ascii=False) for topic, values in entities}
        with self._lock:
            self._sources = {topics.set(source): source for source in actions}
        self._retained.keep_only(described, kept)

    def show_source(self, source: str, health: bool, on: bool) -> None:
        self._retained.set(self._topics.health(source), STATES[health])
        self._retained.set(self._topics.switch(source), STATES[on])
        self._retained.note()

    def _publish(self, topic: str, payload: str | bytes, retain: bool = False) -> Any:
        return self._client.publish(topic, payload, qos=1, retain=retain)

    def _on_connect(self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._reason = f"the broker refuses the connection ({reason})."
            return
        client.subscribe(f"{self._topics.prefix}/+/set", qos=1)
        if self._discovery:
            client.subscribe(f"{self._discovery}/status", qos=1)
        self._retained.connect(partial(self._publish, retain=True))
        self._publish(self._topics.available, "online", retain=True)
        self.connected = True
        self._ready()

    def _on_connect_fail(self, _client: Any, _data: Any) -> None:
        self._reason = "the broker cannot be reached."

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, _reason: Any, _properties: Any) -> None:
        self._retained.connect(None)
        if self.connected:
            self.connected = False
            self._reason = "the connection to the broker was lost."

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        if message.retain:  # an order of long ago, which would come at each connection
            return
        if self._discovery and message.topic == f"{self._discovery}/status":
            if message.payload == b"online":
                self._retained.tell_all()
                self._publish(self._topics.available, "online", retain=True)
        elif source := self._sources.get(message.topic):
            if self._switch and message.payload in (b"ON", b"OFF"):
                self._switch(source, message.payload == b"ON")

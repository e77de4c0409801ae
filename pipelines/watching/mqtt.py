"""MQTT: states and events of every source for home automation, switches that come back, discovery of both."""

import hashlib
import json
import re
import secrets
import threading
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import datetime
from time import monotonic
from typing import Annotated, Any

from msgspec import Meta

import lstr
from lstr.errors import ConfigError, DeliveryError, HistoryError, LstrError, install_hint
from lstr.pipelines.watching.config import Host, Port, Secret, Table
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.notifications import Delivery, Notifier, message_bytes

CONFIRM_S = 10.0  # within which the broker confirms a notice
TICK_S = 0.2
KEEPALIVE_S = 30
CONNECT_S = 5.0
CLOSE_S = 0.4
MIN_RECONNECT_S, MAX_RECONNECT_S = 1, 30
MAX_QUEUED = 5000  # unconfirmed messages
STATES = {True: "ON", False: "OFF"}
# Characters that separate levels of a topic, stand for any level, or are not allowed.
UNSAFE = re.compile(r"[+#/\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
MAX_LEVEL = 100  # characters

# The beginning of a topic
Topic = Annotated[str, Meta(pattern=r"^(?!/)[^+#\x00-\x1f]*$")]


class MqttNotifier(Notifier):
    """One connection to a broker, which reconnects by itself. Every message has QoS 1.

    Topics below the prefix: `available` is `online` or `offline`, by the last will after a kill. For each source:
    `SOURCE/ACTION/state` whether the action is active, `SOURCE/event` the notices as JSON, `SOURCE/last` the last
    action, `SOURCE/health` whether frames arrive, `SOURCE/state` whether it is watched, and `SOURCE/set` to switch
    that. Only announced events change a state: an event in quiet hours does not.
    """

    class Config(Table, frozen=True):
        """An MQTT broker."""

        host: Host
        port: Port = 1883
        user: str = ""
        password: Secret = Secret("")
        tls: bool = False
        prefix: Topic = "lstr"  # the beginning of the topics
        # the topic below which Home Assistant looks for entities; empty for no discovery
        discovery: Topic = "homeassistant"

    def __init__(self, name: str, config: Config):
        super().__init__(name, config)
        levels = [UNSAFE.sub("_", level) for level in config.prefix.strip("/").split("/")]
        self.prefix = "/".join(levels).lstrip("$") or "lstr"
        self._discovery = config.discovery.strip("/")
        self._lock = threading.RLock()
        # retained messages by topic. None is a topic whose value is not known yet, and an empty text one that the
        # broker is to forget.
        self._retained: dict[str, str | None] = {}
        # the retained topics as the history has them: a later run lets the broker forget topics that no longer exist
        self._stored: list[str] = []
        # the id of the active event by the topic of its state
        self._active: dict[str, str] = {}
        # sources by the topic that switches them
        self._sources: dict[str, str] = {}
        self._recalled = False
        self._reason = "the broker cannot be reached."
        self.connected = False
        try:
            from paho.mqtt.client import Client
            from paho.mqtt.enums import CallbackAPIVersion
        except ImportError:
            raise ConfigError("This channel needs paho-mqtt, which is not installed.", install_hint("watch")) from None
        # a random id: the broker disconnects a client whose id another one uses
        self._client: Any = Client(CallbackAPIVersion.VERSION2, client_id=f"lstr-{secrets.token_hex(6)}")
        self._client.suppress_exceptions = True  # an exception would end the thread of the connection
        self._client.connect_timeout = CONNECT_S
        self._client.max_queued_messages_set(MAX_QUEUED)
        self._client.reconnect_delay_set(MIN_RECONNECT_S, MAX_RECONNECT_S)
        self._client.will_set(self.topic("available"), "offline", qos=1, retain=True)
        if config.user:
            self._client.username_pw_set(config.user, config.password or None)
        if config.tls:
            self._client.tls_set()
        self._client.on_connect, self._client.on_disconnect = self._on_connect, self._on_disconnect
        self._client.on_message = self._on_message

    def topic(self, *names: str) -> str:
        """Return the topic of a source, an action or both below the prefix; the last name is added unchanged."""
        return "/".join([self.prefix, *map(safe_level, names[:-1]), names[-1]])

    def open(self, service: Delivery) -> None:
        """Connect in the background."""
        super().open(service)
        self._recall()
        self._client.connect_async(self.config.host, self.config.port, keepalive=KEEPALIVE_S)
        self._client.loop_start()

    def _recall(self) -> None:
        """Take over what an earlier run or an earlier configuration has published."""
        with self._lock, suppress(HistoryError):
            if self._recalled or not self.service:
                return
            for event in self.service.history.events(active_on=self.name):
                self._active.setdefault(self.topic(event.source, event.action, "state"), event.id)
            topics = self.service.history.value(f"retained {self.name}") or ()
            self._stored = [topic for topic in topics if isinstance(topic, str)]
            self._retained = dict.fromkeys(self._stored) | self._retained
            self._recalled = True

    def send(self, notice: Notice, now: datetime) -> None:
        """Publish the state of the action and the message, and wait until the broker confirms them."""
        if not self.connected:
            raise DeliveryError(self._reason)
        event, state, sent = notice.event, self.topic(notice.event.source, notice.event.action, "state"), []
        with self._lock:
            if event.end is None:
                self._active[state] = event.id
                sent.append(self._retain(state, "ON"))
            elif self._active.get(state, event.id) == event.id:  # no newer event of it is active
                self._active.pop(state, None)
                sent.append(self._retain(state, "OFF"))
        if notice.phase == "new":
            sent.append(self._retain(self.topic(event.source, "last"), event.action))
        sent.append(self._publish(self.topic(event.source, "event"), message_bytes(notice, now)))
        until = monotonic() + CONFIRM_S
        for message in sent:
            try:
                while message is None or not message.is_published():
                    if message is None:
                        raise ValueError
                    message.wait_for_publish(TICK_S)
                    if self.aborted.is_set():
                        raise DeliveryError("the service is ending.")
                    if monotonic() > until:
                        raise DeliveryError(f"the broker did not confirm it within {CONFIRM_S:g} s.")
            except (ValueError, RuntimeError):
                raise DeliveryError("the connection to the broker was lost.") from None
        self._store_topics()

    def close(self) -> None:
        """Publish that the service is offline, and disconnect."""
        self.abort()
        if self.connected:
            with suppress(ValueError, RuntimeError):
                self._publish(self.topic("available"), "offline", retain=True).wait_for_publish(CLOSE_S)
        self._client.disconnect()
        # loop_stop waits for the thread of the connection, which may be connecting
        stopping = threading.Thread(target=self._client.loop_stop, daemon=True)
        stopping.start()
        stopping.join(CLOSE_S)
        self.connected = False
        self._store_topics()

    def show_sources(self, actions: Mapping[str, Collection[str]], states: Mapping[str, tuple[bool, bool]]) -> None:
        """Publish states and discovery of the sources, and let the broker forget all other topics."""
        self._recall()
        published: dict[str, str] = {}
        action_topics, unchanged = set[str](), set[str]()
        for source, names in actions.items():
            topics = {action: self.topic(source, action, "state") for action in names}
            action_topics |= {*topics.values()}
            is_healthy, is_watched = states[source]
            published[self.topic(source, "health")] = STATES[is_healthy]
            published[self.topic(source, "state")] = STATES[is_watched]
            unchanged.add(self.topic(source, "last"))
            device = identifier(self.prefix, source)  # a source is one device of Home Assistant
            last = {"json_attributes_topic": self.topic(source, "event"), "icon": "mdi:history"}
            switch = {"command_topic": self.topic(source, "set")}
            health = {"device_class": "connectivity", "entity_category": "diagnostic"}
            entities: list[tuple[str, str, str, str, dict[str, Any]]] = [
                ("sensor", "Last action", "last", self.topic(source, "last"), last),
                ("switch", "Watched", "switch", self.topic(source, "state"), switch),
                ("binary_sensor", "Camera", "health", self.topic(source, "health"), health),
            ]
            about = {"name": source, "manufacturer": "lstr", "model": "lstr watch", "sw_version": lstr.__version__}
            shared = {
                "availability": [{"topic": self.topic("available")}],
                "device": {"identifiers": [f"lstr_{device}"], **about},
                "origin": {"name": "lstr", "sw_version": lstr.__version__},
            }
            for action, topic in topics.items():
                entities.append(("binary_sensor", action, f"action_{identifier(action)}", topic, {"icon": "mdi:run"}))
            for component, name, key, topic, values in entities if self._discovery else ():
                values = {"name": name, "unique_id": f"lstr_{device}_{key}", "qos": 1, "state_topic": topic, **values}
                config = f"{self._discovery}/{component}/lstr_{device}/{key}/config"
                published[config] = json.dumps({**values, **shared}, ensure_ascii=False)
        with self._lock:  # an event may be announced at the same time
            published |= {topic: STATES[topic in self._active] for topic in action_topics}
            self._sources = {self.topic(source, "set"): source for source in actions}
            for topic in self._retained.keys() - published.keys() - unchanged:
                self._retain(topic, "")
            for topic, value in published.items():
                if self._retained.get(topic) != value:
                    self._retain(topic, value)
            self._retained = dict.fromkeys(unchanged) | self._retained
            self._store_topics()

    def _retain(self, topic: str, value: str) -> Any:
        """Publish a retained message, now or with the next connection. An empty one lets the broker forget."""
        with self._lock:  # so that the broker keeps the last message of two threads
            self._retained[topic] = value
            message = self._publish(topic, value, retain=True) if self.connected else None
            if message and not value:
                del self._retained[topic]
            return message

    def _publish_retained(self) -> None:
        with self._lock:
            for topic, value in [*self._retained.items()]:
                if value is not None:
                    self._retain(topic, value)
            self._publish(self.topic("available"), "online", retain=True)

    def _store_topics(self) -> None:
        with self._lock, suppress(HistoryError):  # on a full disk they are stored with the next change
            topics = sorted(self._retained)
            if self.service and self._recalled and topics != self._stored:
                self.service.history.set_value(f"retained {self.name}", topics or None)
                self._stored = topics

    def _publish(self, topic: str, payload: str | bytes, retain: bool = False) -> Any:
        return self._client.publish(topic, payload, qos=1, retain=retain)

    def _on_connect(self, client: Any, _data: Any, _flags: Any, reason: Any, _properties: Any) -> None:
        if reason.is_failure:
            self._reason = f"the broker refuses the connection ({reason})."
            return
        client.subscribe(f"{self.prefix}/+/set", qos=1)
        if self._discovery:
            client.subscribe(f"{self._discovery}/status", qos=1)
        self.connected = True
        self._publish_retained()
        if self.service:
            self.service.wake()

    def _on_disconnect(self, _client: Any, _data: Any, _flags: Any, _reason: Any, _properties: Any) -> None:
        if self.connected:
            self.connected = False
            self._reason = "the connection to the broker was lost."

    def _on_message(self, _client: Any, _data: Any, message: Any) -> None:
        # a retained order is old, and would come at each connection
        if message.retain:
            return
        if self._discovery and message.topic == f"{self._discovery}/status":
            if message.payload == b"online":
                self._publish_retained()
        elif (source := self._sources.get(message.topic)) and message.payload in (b"ON", b"OFF"):
            if self.service and self.service.watch_source:
                with suppress(LstrError):  # an unknown source, or a full disk
                    self.service.watch_source(source, message.payload == b"ON")


def safe_level(name: str) -> str:
    """Return a name as one level of a topic; different names give different levels."""
    level = UNSAFE.sub("_", name)[:MAX_LEVEL]
    return level if level == name and name else f"{level}-{_digest(name)}"


def identifier(*names: str) -> str:
    """Return names as an identifier of Home Assistant; different names give different identifiers."""
    words = re.sub(r"[^A-Za-z0-9_]+", "_", "_".join(names)).strip("_")[:MAX_LEVEL]
    return f"{words}_{_digest(*names)}"


def _digest(*names: str) -> str:
    return hashlib.sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()[:8]

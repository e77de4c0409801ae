"""The topics of MQTT under which a channel tells and listens, and what Home Assistant is told to find them."""

import hashlib
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

import lstr

# What separates levels, stands for any of them, or may not be in a topic.
UNSAFE = re.compile(r"[+#/\x00-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
# Characters of a name in a topic.
LONGEST = 100


def safe(name: str) -> str:
    """A name as one level of a topic; of two different names the levels differ."""
    level = UNSAFE.sub("_", name)[:LONGEST]
    return level if level == name and name else f"{level}-{_digest(name)}"


def identifier(*names: str) -> str:
    """Names as an identifier of Home Assistant: letters, digits, `_` and `-`, different for different names."""
    words = re.sub(r"[^A-Za-z0-9_]+", "_", "_".join(names)).strip("_")[:LONGEST]
    return f"{words}_{_digest(*names)}"


def _digest(*names: str) -> str:
    return hashlib.sha256("\0".join(names).encode("utf-8", "replace")).hexdigest()[:8]


@dataclass(frozen=True)
class Topics:
    """All topics below a prefix, which may have several levels."""

    prefix: str

    def __post_init__(self) -> None:
        levels = [UNSAFE.sub("_", level) for level in self.prefix.strip("/").split("/")]
        object.__setattr__(self, "prefix", "/".join(levels).lstrip("$") or "lstr")

    @property
    def available(self) -> str:
        """`online` or `offline`, retained."""
        return f"{self.prefix}/available"

    def state(self, source: str, action: str) -> str:
        """Whether an action is on: `ON` or `OFF`, retained."""
        return f"{self.prefix}/{safe(source)}/{safe(action)}/state"

    def event(self, source: str) -> str:
        """Notices of a source, as JSON."""
        return f"{self.prefix}/{safe(source)}/event"

    def last(self, source: str) -> str:
        """The last action of a source, retained."""
        return f"{self.prefix}/{safe(source)}/last"

    def set(self, source: str) -> str:
        """Where a source is switched `ON` or `OFF`."""
        return f"{self.prefix}/{safe(source)}/set"

    def switch(self, source: str) -> str:
        """Whether a source is watched: `ON` or `OFF`, retained."""
        return f"{self.prefix}/{safe(source)}/state"

    def health(self, source: str) -> str:
        """Whether frames of a source come: `ON` or `OFF`, retained."""
        return f"{self.prefix}/{safe(source)}/health"


# Topic and configuration.
Entity = tuple[str, dict[str, Any]]


def describe_source(discovery: str, topics: Topics, source: str, actions: Collection[str]) -> Iterator[Entity]:
    """The entities of one source, which are one device.

    A binary sensor for each action, the last action, a switch, and whether frames come.

    discovery: what the topics begin with under which Home Assistant looks.
    """
    device = identifier(topics.prefix, source)
    shared = {
        "availability": [{"topic": topics.available}],
        "device": {
            "identifiers": [f"lstr_{device}"],
            "name": source,
            "manufacturer": "lstr",
            "model": "lstr watch",
            "sw_version": lstr.__version__,
        },
        "origin": {"name": "lstr", "sw_version": lstr.__version__},
    }

    def entity(component: str, name: str, key: str, **values: Any) -> Entity:
        unique = f"lstr_{device}_{key}"
        topic = f"{discovery}/{component}/lstr_{device}/{key}/config"
        return topic, {"name": name, "unique_id": unique, "qos": 1, **values, **shared}

    for action in actions:
        state = topics.state(source, action)
        yield entity("binary_sensor", action, f"action_{identifier(action)}", state_topic=state, icon="mdi:run")
    last, event = topics.last(source), topics.event(source)
    yield entity("sensor", "Last action", "last", state_topic=last, json_attributes_topic=event, icon="mdi:history")
    yield entity("switch", "Watched", "switch", state_topic=topics.switch(source), command_topic=topics.set(source))
    yield entity(
        "binary_sensor",
        "Camera",
        "health",
        state_topic=topics.health(source),
        device_class="connectivity",
        entity_category="diagnostic",
    )

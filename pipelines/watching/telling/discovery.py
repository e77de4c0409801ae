"""What Home Assistant is told so that it shows sources and actions without any configuration of its own."""

from collections.abc import Collection, Iterator
from typing import Any

import lstr
from lstr.pipelines.watching.telling.topics import Topics, identifier

Entity = tuple[str, dict[str, Any]]
"""Topic and configuration."""


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

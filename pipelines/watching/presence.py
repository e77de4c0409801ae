"""Who is before a camera, as Frigate says by MQTT: a source may be decided only while somebody is."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from lstr.extractors.video.packet_gate import Gate
from lstr.pipelines.watching.config import GateConfig, WatchConfig

MOST_BYTES = 64 * 2**20
"""The most that packets which are not decoded take in memory, of one source."""
LONGEST = 20
"""Characters of a number that is published."""


@dataclass
class _Heard:
    count: int | None = None
    """None where it is not known."""
    left: float = 0.0
    """When it fell to 0, on the monotonic clock."""
    said: bool = False
    """Whether it was said that nothing is known."""


class Presence:
    """What was heard for each source that waits for somebody; may be used from any thread.

    Where nothing was heard yet, or the broker or Frigate is gone, everything is decided, and that is said once: to miss
    an action is worse than to decide for nothing.
    """

    def __init__(self, config: WatchConfig, say: Callable[[str], None]):
        self._say = say
        self._lock = threading.Lock()
        self._config = config
        self._heard: dict[str, _Heard] = {}

    def configure(self, config: WatchConfig) -> None:
        """Wait as another configuration says; what was heard before is forgotten, for all is heard anew."""
        with self._lock:
            self._config, self._heard = config, {}

    def gate(self, source: str) -> Gate | None:
        """What decides whether packets of a source are decoded; None of one that does not wait."""
        known = self._config.sources.get(source)
        if known is None or known.gate is None:
            return None
        return Gate(lambda: self.is_wanted(source), known.gate.lead, MOST_BYTES)

    def is_wanted(self, source: str) -> bool:
        """Whether a source is to be decided now."""
        with self._lock:
            known = self._config.sources.get(source)
            if known is None or known.gate is None:
                return True
            heard = self._heard.setdefault(source, _Heard())
            if heard.count is not None:
                return heard.count > 0 or monotonic() - heard.left < known.gate.linger
            said, heard.said = heard.said, True
            topic = self._topic(source, known.gate)
        if not said:
            self._say(f"{source}: nothing is known of {topic} now, so that everything is decided.")
        return True

    def topics(self, channel: str) -> list[str]:
        """What a channel is to subscribe to."""
        gates = self._gates(channel)
        states = {self._available(gate) for gate in gates.values()}
        return sorted({self._topic(source, gate) for source, gate in gates.items()} | states)

    def hear(self, channel: str, topic: str, payload: bytes) -> bool:
        """Take what was published; whether it is for this."""
        gates, is_ours = self._gates(channel), False
        with self._lock:
            for source, gate in gates.items():
                heard = self._heard.setdefault(source, _Heard())
                if topic == self._topic(source, gate):
                    is_ours = True
                    count = _count(payload)
                    if count is not None:
                        if count == 0 and heard.count != 0:
                            heard.left = monotonic()
                        heard.count, heard.said = count, False
                elif topic == self._available(gate):
                    is_ours = True
                    if payload != b"online":
                        heard.count = None
        return is_ours

    def lose(self, channel: str) -> None:
        """The broker is gone: what was heard may have changed."""
        gates = self._gates(channel)
        with self._lock:
            for source in gates:
                self._heard.setdefault(source, _Heard()).count = None

    def _gates(self, channel: str) -> dict[str, GateConfig]:
        sources = self._config.sources
        return {name: one.gate for name, one in sources.items() if one.gate and one.gate.channel == channel}

    def _topic(self, source: str, gate: GateConfig) -> str:
        return f"{self._prefix(gate)}/{self._config.camera_of(source)}/{gate.topic}"

    def _available(self, gate: GateConfig) -> str:
        return f"{self._prefix(gate)}/available"

    def _prefix(self, gate: GateConfig) -> str:
        return self._config.channels[gate.channel].frigate


def _count(payload: bytes) -> int | None:
    """A number that is published; None of what is none."""
    text = payload.strip()
    return int(text) if text.isdigit() and len(text) <= LONGEST else None

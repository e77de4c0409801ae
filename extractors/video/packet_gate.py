"""A gate before the decoder of a live source: while it is closed, packets are received and not decoded.

The newest of them are kept from a key frame on, so that what came shortly before it opens is decoded too.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import av

from lstr.extractors.video.packet_ring import KEYS_ALONE, OVERHEAD


@dataclass(frozen=True)
class Gate:
    """When a live source is decoded, and what is kept for then."""

    is_wanted: Callable[[], bool]
    """Asked at each packet, in the thread that reads them."""
    seconds: float
    """Before it opens, of which packets are decoded too; from the key frame before them on."""
    most_bytes: int
    """The most that these packets take; where a key frame and what follows it are more, they are not kept."""


@dataclass(frozen=True)
class Arrived:
    """A packet, and when it came, on the monotonic clock; None where that is now."""

    packet: av.Packet
    arrival: float | None = None


@dataclass
class _Group:
    """A key frame and what follows it up to the next one; the first one may follow what was decoded."""

    packets: list[Arrived] = field(default_factory=list)
    size: int = 0


class PacketGate:
    """The gate of one connection. `take` each packet of its stream, and decode what it gives."""

    def __init__(self, gate: Gate):
        self._gate = gate
        self._groups: deque[_Group] = deque()
        self._size = 0
        self.is_open = True
        self.is_cut = False
        """Whether packets are lost between the last one that was given and the first one of the next."""

    def take(self, packet: av.Packet, codec: str, arrival: float) -> list[Arrived]:
        """What is to be decoded now: nothing while it is closed; as it opens what is kept, and then the packet."""
        if self._gate.is_wanted():
            self.is_open = True
            return [*self._let_out(), Arrived(packet)]
        self.is_open = False
        if packet.size:
            self._hold(Arrived(packet, arrival), packet.is_keyframe or codec in KEYS_ALONE, arrival)
        return []

    def passed(self) -> None:
        """Whoever decodes has begun anew at what was given: nothing is lost before what follows."""
        self.is_cut = False

    def _hold(self, kept: Arrived, is_key: bool, now: float) -> None:
        if is_key or not (self._groups or self.is_cut):
            self._groups.append(_Group())
        elif not self._groups:
            return  # what it needs to be decoded is lost
        size = kept.packet.size + OVERHEAD
        self._groups[-1].packets.append(kept)
        self._groups[-1].size += size
        self._size += size
        while self._groups and (self._size > self._gate.most_bytes or self._is_over(now)):
            self._size -= self._groups.popleft().size
            self.is_cut = True

    def _is_over(self, now: float) -> bool:
        """Whether the groups after the oldest one hold all the seconds."""
        if len(self._groups) < 2:
            return False
        return now - (self._groups[1].packets[0].arrival or now) >= self._gate.seconds

    def _let_out(self) -> list[Arrived]:
        """What is kept, without pictures before its key frame: they need what came before that."""
        kept = [one for group in self._groups for one in group.packets]
        self._groups.clear()
        self._size = 0
        first = kept[0].packet.pts if kept and self.is_cut else None
        return [one for one in kept if first is None or one.packet.pts is None or one.packet.pts >= first]

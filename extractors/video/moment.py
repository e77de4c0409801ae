"""A moment on two clocks."""

from dataclasses import dataclass, field
from datetime import datetime
from time import monotonic


@dataclass(frozen=True)
class Moment:
    """The present, in seconds of the monotonic clock and on the clock of the wall, with the zone of this machine."""

    monotonic: float = field(default_factory=monotonic)
    wall: datetime = field(default_factory=lambda: datetime.now().astimezone())

"""A moment on two clocks."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from time import monotonic


@dataclass(frozen=True)
class Moment:
    """The present, in seconds of the monotonic clock and on the clock of the wall, with the zone of this machine."""

    monotonic: float = field(default_factory=monotonic)
    wall: datetime = field(default_factory=lambda: datetime.now().astimezone())

    def before(self, seconds: float) -> "Moment":
        """So many seconds ago for a clock; what has to be done is to be done from now on."""
        return Moment(self.monotonic, self.wall - timedelta(seconds=seconds))

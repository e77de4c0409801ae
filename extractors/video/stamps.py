"""Whether the time stamps of a live source can be its clock: some stand still, fall, or jump to and fro."""

from collections import deque

STANDING, MOVED = 48, 3  # of so many frames, about two seconds, no more moved time: a clock set back moves it sooner
FEW, LONG = 3, 2.0  # as many frames in so many seconds of arrival mean the same, of a source with few frames a second
BACK, AMONG = 3, 240  # steps back among so many frames; a clock that is set, or a list that begins anew, makes one


class Stamps:
    """Watches how time goes on from frame to frame, while each is taken as it says."""

    def __init__(self) -> None:
        self.since = 0.0
        """Arrival of the newest frame that moved time forward."""
        self._standing = self._frames = 0
        self._moved: deque[bool] = deque(maxlen=STANDING)
        self._back: deque[int] = deque(maxlen=BACK)

    def take(self, forward: bool, back: bool, arrival: float) -> None:
        """Whether a frame moves time forward, or its stamp steps back so far that time goes on from where it was.

        `arrival` is when it came, in seconds of any clock.
        """
        self._frames += 1
        if back:
            self._back.append(self._frames)
        self._moved.append(forward)
        self._standing = 0 if forward else self._standing + 1
        if forward:
            self.since = arrival

    def fault(self, arrival: float | None = None) -> str:
        """What is wrong with them, in a phrase, and empty where nothing is.

        `arrival` is that of the newest frame, of a source that sends each when it happens.
        """
        if len(self._back) == BACK and self._frames - self._back[0] < AMONG:
            return "step back again and again"
        slow = arrival is not None and self._standing >= FEW and arrival - self.since > LONG
        stands = len(self._moved) == STANDING and sum(self._moved) <= MOVED
        return "stand still or fall" if slow or stands else ""

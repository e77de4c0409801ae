"""What browsers are told: numbered messages, of which the newest are kept for one that slept."""

from collections import deque

MOST_MESSAGES, MOST_BYTES = 4096, 2**21


class Messages:
    """The newest messages, numbered from 1; at most MOST_MESSAGES of them, and MOST_BYTES."""

    def __init__(self) -> None:
        self._texts: deque[str] = deque()
        self._bytes = 0
        self.newest = 0

    def add(self, text: str) -> None:
        """Number a message, and forget the oldest where there are too many."""
        self._texts.append(text)
        self._bytes += len(text)
        self.newest += 1
        while len(self._texts) > MOST_MESSAGES or self._bytes > MOST_BYTES:
            self._bytes -= len(self._texts.popleft())

    def after(self, number: int) -> list[str] | None:
        """The messages that follow a number; None where some of them are forgotten."""
        missing = self.newest - number
        if not 0 <= missing <= len(self._texts):
            return None
        return [self._texts[at] for at in range(len(self._texts) - missing, len(self._texts))]

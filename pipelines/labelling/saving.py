"""Writing a project's file after changes, in a thread of its own: who labels never waits for a large file."""

import threading
import time
from collections.abc import Callable
from typing import Any

LEAST_SHARE = 10
"""Between two writings lies at least so many times what one takes: a large file takes the processor from the page."""
MOST_PAUSE = 3.0  # seconds
ANSWERED = 0.3
"""Seconds in which a change is answered, before a large file is written, which would delay the answer."""


class Saving:
    """Calls `write` after `ask`, once for all that was asked meanwhile; `trouble` is why the last one failed.

    The first time it writes at once, then with pauses, in which the journal alone has what was asked for.
    """

    def __init__(self, write: Callable[[], Any]):
        self._write = write
        self._wanted = threading.Condition()
        self._asked = self._written = self._hurried = 0
        self._rests_until = self._took = 0.0
        self._over = False
        self.trouble = ""
        self._thread = threading.Thread(target=self._work, name="saving labels", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Write soon."""
        with self._wanted:
            self._asked += 1
            self._wanted.notify_all()

    def settle(self) -> None:
        """Wait until all that was asked for has been written, or could not be."""
        with self._wanted:
            asked = self._asked
            self._hurried += 1
            self._wanted.notify_all()
            self._wanted.wait_for(lambda: self._written >= asked)
            self._hurried -= 1

    def close(self) -> None:
        """Write what was asked for, and end."""
        self.settle()
        with self._wanted:
            self._over = True
            self._wanted.notify_all()
        self._thread.join()

    def _work(self) -> None:
        while True:
            with self._wanted:
                self._wanted.wait_for(lambda: self._over or self._asked > self._written)
                if self._over:
                    return
                pause = max(self._rests_until - time.monotonic(), min(ANSWERED, LEAST_SHARE * self._took))
                self._wanted.wait_for(lambda: self._hurried > 0, max(0.0, pause))
                asked = self._asked
            began = time.monotonic()
            try:
                self._write()
                trouble = ""
            except Exception as error:  # told on the page and at the end; later changes are tried again
                trouble = str(error)
            self._took = time.monotonic() - began
            self._rests_until = time.monotonic() + min(MOST_PAUSE, LEAST_SHARE * self._took)
            with self._wanted:
                self.trouble, self._written = trouble, asked
                self._wanted.notify_all()

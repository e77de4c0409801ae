"""One channel's thread: it delivers what is due, and tries again what could not be delivered."""

import random
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from time import monotonic

from lstr.errors import DeliveryError, HistoryError
from lstr.pipelines.watching.channel import Channel
from lstr.pipelines.watching.history import History, Notice
from lstr.pipelines.watching.sentence import title

# Seconds after the first failure until the next try, doubled at each, and at most.
FIRST, LONGEST = 1.0, 600.0
JITTER = 0.1
# After which the beginning of an event is no news.
STALE = timedelta(hours=24)
# Seconds between two looks at what is due, at most: the clock may be set.
IDLE = 60.0
# Seconds until the next try when the history cannot be written, as on a full disk.
FULL = 5.0


class Delivery:
    """Delivers the notices of one channel in their order, in a thread of its own, so that none delays another's.

    A notice that fails is put off, and with it all that waits; an event that is new then is tried at once all the same,
    and what waits follows as soon as something arrives. Each is tried until it arrives. Only of an event that was
    decided more than STALE ago, and of whose beginning a channel has not been told by then, it is never told.

    What arrived counts as delivered only once the history has it: after a kill in between it is delivered again, with
    the same id.
    """

    def __init__(self, channel: Channel, history: History, say: Callable[[str], None]):
        self.channel = channel
        self.failed = 0
        """Tries that failed since the start."""
        self._history = history
        self._say = say
        self._in_a_row = 0
        self._arrived: set[int] = set()
        """Notices that arrived, and that the history could not take note of."""
        self._changed = threading.Condition()
        self._woken = False
        self._within_reach = False
        self._stopping = False
        self._history_fails = False
        self._thread = threading.Thread(target=self._work, name=f"telling {channel.name}", daemon=True)

    def start(self) -> None:
        """Begin to deliver."""
        self._thread.start()

    def wake(self) -> None:
        """Look at once at what is due."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def stop(self) -> None:
        """Begin nothing more."""
        with self._changed:
            self._stopping = True
            self._changed.notify()

    def join(self, until: float) -> bool:
        """Wait for the end of the thread until a time of the monotonic clock; whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, until - monotonic()))
        return not self._thread.is_alive()

    def _on_ready(self) -> None:
        with self._changed:
            self._within_reach = self._woken = True
            self._changed.notify()

    def _work(self) -> None:
        try:
            self.channel.open(self._on_ready)
            while not self._stopping:
                seconds = self._turn()
                with self._changed:
                    self._changed.wait_for(lambda: self._woken or self._stopping, seconds)
                    self._woken = False
        finally:
            self.channel.close()

    def _turn(self) -> float:
        """Deliver what is due; seconds until the next turn."""
        try:
            self._deliver_due()
            due = self._history.next_due(self.channel.name)
        except HistoryError as error:
            if not (self._history_fails or self._stopping):
                self._say(f"{error} What {self.channel.name} has been told of is noted later.")
            self._history_fails = True
            return FULL
        self._history_fails = False
        if self._within_reach:
            return 0.0
        return IDLE if due is None else min(IDLE, max(0.0, (due - _now()).total_seconds()))

    def _deliver_due(self) -> None:
        with self._changed:
            hasten, self._within_reach = self._within_reach, False
        if hasten:
            self._history.hasten(self.channel.name, _now())
        notices = self._history.due(self.channel.name, _now())
        stale = [notice for notice in notices if notice.phase == "new" and _now() - notice.event.decided > STALE]
        for notice in stale:
            self._history.drop(notice, _now(), "older than a day")
        if stale:
            what = "an event, which is" if len(stale) == 1 else f"{len(stale)} events, which are"
            self._say(f"{self.channel.name} is not told of {what} older than a day.")
        for notice in notices:
            if self._stopping or not (notice in stale or self._deliver(notice)):
                return

    def _deliver(self, notice: Notice) -> bool:
        """Deliver one notice; whether it arrived, or needs not to."""
        if notice.id not in self._arrived and (notice.phase == "new" or self.channel.updates):
            try:
                self.channel.tell(notice, _now())
            except DeliveryError as error:
                self._put_off(notice, str(error))
                return False
            except Exception as error:  # its text may hold an address
                self._put_off(notice, f"it met {type(error).__name__}.")
                return False
            self._arrived.add(notice.id)
            self._note_success()
        self._history.deliver(notice, _now())
        self._arrived.discard(notice.id)
        return True

    def _note_success(self) -> None:
        if self._in_a_row:
            self._say(f"{self.channel.name} is told again.")
            self._within_reach = True
        self._in_a_row = 0

    def _put_off(self, notice: Notice, reason: str) -> None:
        if self._stopping:
            return
        self.failed += 1
        if not self._in_a_row:
            self._say(f"{self.channel.name} could not be told of {title(notice.event)}, and is tried again: {reason}")
        now = _now()
        self._history.put_off(notice, now + _pause(notice.tries), reason)
        self._history.hold(self.channel.name, now + _pause(self._in_a_row))
        self._in_a_row += 1


def _pause(failures: int) -> timedelta:
    """How long after so many failures before this one."""
    seconds = min(LONGEST, FIRST * 2.0 ** min(failures, 20))
    return timedelta(seconds=seconds * random.uniform(1 - JITTER, 1 + JITTER))


def _now() -> datetime:
    return datetime.now().astimezone()

"""Channels that announce events: what a kind of channel is, the table of kinds, and the thread that delivers."""

import json
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from importlib.metadata import EntryPoint
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

from msgspec import Struct

from lstr.errors import ConfigError, DeliveryError, HistoryError
from lstr.files.home import find_added, load_added
from lstr.pipelines.watching.event import describe_rate, format_seconds, title
from lstr.pipelines.watching.history import History, Notice

# Kinds of channels of this package, by the name that `kind` has in the file.
NOTIFIERS = {
    "apprise": "lstr.pipelines.watching.channels:AppriseNotifier",
    "command": "lstr.pipelines.watching.channels:CommandNotifier",
    "mqtt": "lstr.pipelines.watching.mqtt:MqttNotifier",
    "webhook": "lstr.pipelines.watching.channels:WebhookNotifier",
}
GROUP = "lstr.sinks"  # entry points of other packages; each names a subclass of Notifier
MAX_MESSAGE_BYTES = 65536
FIRST_PAUSE_S, MAX_PAUSE_S = 1.0, 600.0  # after a failed delivery, doubled at each
STALE = timedelta(hours=24)  # an older event is not announced any more
FULL_DISK_PAUSE_S = 5.0
ABORT_S, CLOSE_S = 1.2, 2.5  # after the start of closing: deliveries are aborted, threads are not waited for


class Notifier:
    """One channel. A kind of channel is a subclass with a line in NOTIFIERS, or an entry point of the group GROUP.

    `send` and `close` are called in a thread of the channel; the other methods return at once. `name` is the channel's
    name and `config` its table in the file, without `kind`. Raises ConfigError.
    """

    Config: ClassVar[type[Struct]] = Struct  # the entries of its table
    sends_ends: ClassVar[bool] = True  # whether it announces the end of an event too

    def __init__(self, name: str, config: Any):
        self.name, self.config = name, config
        self.service: Delivery | None = None
        self.aborted = threading.Event()

    def check(self) -> None:
        """Raise ConfigError if the channel cannot work at the moment; called by `lstr watch --check`."""

    def open(self, service: "Delivery") -> None:
        """Start connecting. The service gives a channel its `history`, `wake`, `find_image` and `watch_source`."""
        self.service = service

    def send(self, notice: Notice, now: datetime) -> None:
        """Deliver a notice. Raises DeliveryError; its message must not contain an address or a secret."""
        raise NotImplementedError

    def abort(self) -> None:
        """Let a `send` in another thread fail soon: it sees that the event `aborted` is set."""
        self.aborted.set()

    def close(self) -> None:
        """Disconnect within a second."""

    def show_sources(self, actions: Mapping[str, Collection[str]], states: Mapping[str, tuple[bool, bool]]) -> None:
        """Publish by the names of the sources their actions, and whether frames arrive and whether it is watched."""


def notifier_class(kind: Any) -> type[Notifier]:
    """Return the class of a kind of channel. Raises ConfigError for an unknown or broken one."""
    others = find_added(GROUP, NOTIFIERS)
    if not isinstance(kind, str) or kind not in NOTIFIERS | others:
        names = ", ".join(sorted(NOTIFIERS | others))
        raise ConfigError(f"{kind!r} is not a kind of channel.", f"choose one of {names}.")
    if kind in NOTIFIERS:
        return EntryPoint(kind, NOTIFIERS[kind], GROUP).load()
    return load_added(
        others[kind],
        "kind of channel",
        lambda found: found if isinstance(found, type) and issubclass(found, Notifier) else None,
        "a subclass of lstr.pipelines.watching.notifications.Notifier",
        ConfigError,
    )


def message_bytes(notice: Notice, now: datetime) -> bytes:
    """Return the message of a notice for programs, as JSON. Raises DeliveryError if it is too large."""
    sentence, event = describe(notice, now), notice.event.to_dict()
    message = {"notice": notice.key, "phase": notice.phase, "sentence": sentence, "event": event}
    body = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
    if len(body) > MAX_MESSAGE_BYTES:
        raise DeliveryError(f"the message is {len(body)} bytes long; the limit is {MAX_MESSAGE_BYTES}.")
    return body


def describe(notice: Notice, now: datetime) -> str:
    """Return the sentence of a notice. The sentence of a `new` event includes its end if it has ended already."""
    event, phase = notice.event, notice.phase
    length = format_seconds(event.seconds)
    today = now.astimezone().date()
    times = (time.astimezone() for time in (event.start, event.end or event.seen))
    start, end = (f"{time:%H:%M:%S}" if time.date() == today else f"{time:%Y-%m-%d %H:%M:%S}" for time in times)
    if phase == "end" and event.still_active:
        return f"{title(event)} was last seen at {end} after {length}, when the source ended"
    if phase == "end":
        return f"{title(event)} ended at {end} after {length}"
    extent = f"for {length} so far" if event.end is None else f"for {length}, until {event.end.astimezone():%H:%M:%S}"
    score = f"{event.top_score:.2f}".removeprefix("0")
    rate = "" if event.false_alarms is None else describe_rate(event.false_alarms)
    sentence = f"{title(event)}, {start}, {extent}, score {score}"
    return f"{sentence}; {rate} at this threshold" if rate else sentence


class Delivery:
    """Delivers the notices of one channel in its own thread, so that a slow channel delays no other.

    After a failure all notices wait, longer at each; a new event or a channel that is ready again ends the wait. Those
    that failed least often come first. A notice counts as delivered once the history has stored it: after a kill in
    between it is delivered again, with the same id.
    """

    def __init__(self, notifier: Notifier, channels: "Notifications"):
        self.notifier, self.history, self._log = notifier, channels.history, channels.log
        self.find_image, self.watch_source = channels.find_image, channels.watch_source
        self.failed = 0
        """Failed attempts since the start."""
        # failed attempts by the id of a pending notice
        self._failures: dict[int, int] = {}
        # notices that were delivered, but that the history could not mark
        self._arrived: set[int] = set()
        self._failures_in_row = 0
        self._woken = threading.Event()
        self._stopping = False
        self.thread = threading.Thread(target=self._run, name=f"channel {notifier.name}", daemon=True)

    def wake(self) -> None:
        """Deliver what is pending at once."""
        self._woken.set()

    def stop(self) -> None:
        """Start no further delivery."""
        self._stopping = True
        self._woken.set()

    def join(self, until: float) -> bool:
        """Wait for the thread until a time of the monotonic clock. Returns whether it has ended."""
        if self.thread.ident is not None:
            self.thread.join(max(0.0, until - monotonic()))
        return not self.thread.is_alive()

    def _run(self) -> None:
        """Deliver pending notices until the channel is stopped."""
        history_fails = False
        try:
            while not self._stopping:
                try:
                    pending = self.history.pending(self.notifier.name)
                    # seconds until the next attempt; None waits for a new notice
                    pause = 0.0 if pending else None
                    stale = [n for n in pending if n.phase == "new" and _now() - n.event.decided > STALE]
                    for notice in stale:
                        self.history.drop(notice, _now())
                    if stale:
                        self._log(f"{self.notifier.name}: {len(stale)} notifications older than a day were dropped.")
                    for notice in sorted(pending, key=lambda n: self._failures.get(n.id, 0)):
                        if self._stopping or (notice not in stale and not self._deliver(notice)):
                            pause = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2.0 ** min(self._failures_in_row - 1, 20))
                            break
                    history_fails = False
                except HistoryError as error:
                    if not (history_fails or self._stopping):
                        self._log(f"{error} Deliveries by {self.notifier.name} are stored later.")
                    history_fails, pause = True, FULL_DISK_PAUSE_S
                self._woken.wait(pause)
                self._woken.clear()
        finally:
            self.notifier.close()

    def _deliver(self, notice: Notice) -> bool:
        """Deliver a notice, unless it was before. Returns whether it arrived."""
        if notice.id not in self._arrived and (notice.phase == "new" or self.notifier.sends_ends):
            try:
                self.notifier.send(notice, _now())
            except Exception as error:  # the text of an unforeseen one may contain an address
                if not self._stopping:
                    reason = str(error) if isinstance(error, DeliveryError) else f"{type(error).__name__}."
                    if not self._failures_in_row:
                        what = f"{self.notifier.name} could not announce {title(notice.event)}"
                        self._log(f"{what} and tries again: {reason}")
                    self.failed += 1
                    self._failures_in_row += 1
                    self._failures[notice.id] = self._failures.get(notice.id, 0) + 1
                return False
            self._arrived.add(notice.id)
            if self._failures_in_row:
                self._log(f"{self.notifier.name} works again.")
            self._failures_in_row = 0
        self.history.mark_delivered(notice, _now())
        self._arrived.discard(notice.id)
        self._failures.pop(notice.id, None)
        return True


class Notifications:
    """All channels of a service; use it as a context manager.

    Each channel announces each event once: `new` when it began and `end` when it ended, with the same id. It closes
    within 3 s; what is not delivered by then stays pending in the history. Raises ConfigError.

    Args:
        channels: The subclass of Notifier and its table, by the name of the channel.
        history: Has the pending notices.
        log: Takes sentences for the log; called from any thread.
        find_image: Returns the image of an event by its id, None before it is made. None if no images are made.
        watch_source: Resumes or pauses a source by its name.
    """

    def __init__(
        self,
        channels: Mapping[str, tuple[type[Notifier], Any]],
        history: History,
        log: Callable[[str], None],
        find_image: Callable[[str], Path | None] | None = None,
        watch_source: Callable[[str, bool], None] | None = None,
    ):
        self.history, self.log, self.find_image, self.watch_source = history, log, find_image, watch_source
        self.deliveries = {name: Delivery(kind(name, table), self) for name, (kind, table) in channels.items()}
        """The thread of each channel, by its name."""
        self._shown: object = None

    def __enter__(self) -> "Notifications":
        for delivery in self.deliveries.values():
            delivery.notifier.open(delivery)
            delivery.thread.start()
        return self

    def wake(self) -> None:
        """Deliver new notices at once; to be called after an event is stored or ended."""
        for delivery in self.deliveries.values():
            delivery.wake()

    def show_sources(self, actions: Mapping[str, Collection[str]], states: Mapping[str, tuple[bool, bool]]) -> None:
        """Let the channels publish the sources if anything of them has changed; see Notifier."""
        if self._shown != (actions, states):
            self._shown = actions, states
            for delivery in self.deliveries.values():
                delivery.notifier.show_sources(actions, states)

    def __exit__(self, *_error: object) -> None:
        began = monotonic()
        for delivery in self.deliveries.values():
            delivery.stop()
        slow = [delivery for delivery in self.deliveries.values() if not delivery.join(began + ABORT_S)]
        for delivery in slow:
            delivery.notifier.abort()
        for delivery in slow:
            delivery.join(began + CLOSE_S)


def _now() -> datetime:
    return datetime.now().astimezone()

"""What a way to tell somebody is, and the message that programs get by one."""

import json
from collections.abc import Callable, Collection, Mapping
from datetime import datetime

from lstr.errors import DeliveryError
from lstr.pipelines.watching.history import Notice
from lstr.pipelines.watching.sentence import describe_end, describe_start

# Bytes of a message.
LARGEST = 65536


class Channel:
    """A way to tell somebody. One thread calls `open`, `tell` and `close`; the other methods return at once."""

    updates = True
    """Whether it can be told that an event has ended; else it is told that it began, and no more."""

    def __init__(self, name: str):
        self.name = name

    def open(self, ready: Callable[[], None]) -> None:
        """Begin. ready: to be called when the channel is within reach again, so that what waits is told at once."""

    def tell(self, notice: Notice, now: datetime) -> None:
        """Deliver a notice; returning means that it has arrived. Raises DeliveryError."""
        raise NotImplementedError

    def abort(self) -> None:
        """Let a `tell` that runs in another thread fail soon."""

    def close(self) -> None:
        """End, within a second."""

    def show_sources(self, actions: Mapping[str, Collection[str]]) -> None:
        """Show which sources there are, and the actions of each."""

    def show_source(self, source: str, health: bool, on: bool) -> None:
        """Show whether a source is seen, and whether it is watched."""


def message_bytes(notice: Notice, now: datetime) -> bytes:
    """The message of a notice as JSON: `notice`, to drop doubles by, `phase`, `sentence`, and the `event`.

    Raises DeliveryError for one that is too large.
    """
    sentence, event = describe_sentence(notice, now), notice.event.to_dict()
    message = {"notice": notice_id(notice), "phase": notice.phase, "sentence": sentence, "event": event}
    body = json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")
    if len(body) > LARGEST:
        raise DeliveryError(f"its message has {len(body)} bytes, and {LARGEST} are the most.")
    return body


def notice_id(notice: Notice) -> str:
    """The id of a notice, the same at every try: that of the event, and the phase."""
    return f"{notice.event.id}.{notice.phase}"


def describe_sentence(notice: Notice, now: datetime) -> str:
    """The sentence of a notice."""
    return (describe_start if notice.phase == "new" else describe_end)(notice.event, now)

"""What a broker is to retain, and what it was told to by a program that has ended and could not tell it to forget."""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from lstr.errors import HistoryError
from lstr.pipelines.watching.history import History

# Publishes a retained message; what tells whether it was confirmed.
Publish = Callable[[str, str], Any]


class Retained:
    """Values by topic, each told again at each connection; the history keeps the topics, over a restart.

    A topic that is not wanted any more is told empty, once the broker is connected.
    """

    def __init__(self, name: str, history: History):
        self._kept, self._history = f"retained {name}", history
        self._lock = threading.RLock()
        self._values: dict[str, str] = {}
        """Empty where the broker is to forget, and is not connected."""
        self._maybe: set[str] = set()
        """Topics that the broker may know of an earlier run, and that it is not told to forget yet."""
        self._noted: list[str] | None = None
        """The topics as the history has them."""
        self._publish: Publish | None = None

    def connect(self, publish: Publish | None) -> None:
        """Tell a broker all of it, and each change from now on; None where it is connected no more."""
        with self._lock:
            self._publish = publish
            if publish:
                self.tell_all()

    def set(self, topic: str, value: str) -> Any:
        """Tell the broker a value, and remember it; what `Publish` gave, None where nobody is connected."""
        with self._lock:  # the last of two threads is the one that the broker keeps
            self._values[topic] = value
            told = self._publish(topic, value) if self._publish else None
            if not value and told:
                del self._values[topic]
            return told

    def keep_only(self, wanted: Mapping[str, str], kept: Mapping[str, str]) -> None:
        """Tell `wanted`, leave `kept` as they are, and let the broker forget all else that it was ever told.

        kept: what is told of a topic that has no value yet; nothing where that is empty.
        """
        with self._lock:
            self._recall()
            for topic in {*self._values, *self._maybe} - {*wanted, *kept}:
                self.set(topic, "")
            for topic, value in {**wanted, **{topic: value for topic, value in kept.items() if value}}.items():
                if topic in wanted or not self._values.get(topic):
                    self.set(topic, value)
            self._maybe = {*kept}
            self.note()

    def tell_all(self) -> None:
        """Tell the broker all of it again."""
        with self._lock:
            for topic, value in [*self._values.items()]:
                self.set(topic, value)

    def note(self) -> None:
        """Keep which topics the broker may know."""
        with self._lock:
            is_known = self._recall()
            topics = sorted({*self._values, *self._maybe})
            if is_known and topics != self._noted:
                with suppress(HistoryError):  # a full disk: they are kept with the next change
                    self._history.keep(self._kept, topics or None)
                    self._noted = topics

    def _recall(self) -> bool:
        """Read what the broker was told in earlier runs, once; whether that is known."""
        if self._noted is None:
            with suppress(HistoryError):
                self._noted = [topic for topic in self._history.kept(self._kept) or () if isinstance(topic, str)]
                self._maybe |= {*self._noted}
        return self._noted is not None

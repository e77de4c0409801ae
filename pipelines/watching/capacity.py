"""Whether the machine can decide on all sources, by what is dropped.

A camera does not wait. Of a source whose chunks come faster than the networks take them, the oldest chunk that waits is
dropped, and counted.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

LOOKED_SECONDS = 60.0  # between two looks at what was dropped
TOLD_SECONDS = 3600.0  # before the same source is told of again
TOLERATED = 0.01  # of the chunks of a minute, that may be dropped without a word


@dataclass
class Capacity:
    """What is said of the machine's limits, and when it was said last."""

    _seen: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Chunks decided and dropped of each source at the last look."""
    _told: dict[str, float] = field(default_factory=dict)
    _looked: float = field(default_factory=lambda: monotonic())

    def look(self, states: Callable[[], Iterable[Mapping[str, Any]]]) -> list[str]:
        """Once a minute: of which sources more was dropped than is worth no word, in a sentence for each.

        states: what tells the name, and the chunks decided and dropped, of each; asked once a minute too.
        """
        now = monotonic()
        minute = now - self._looked
        if minute < LOOKED_SECONDS:
            return []
        self._looked = now
        before, self._seen = self._seen, {s["name"]: (s["decided"], s["dropped"]) for s in states()}
        self._told = {name: at for name, at in self._told.items() if name in self._seen}
        sentences: list[str] = []
        for name, counts in self._seen.items():
            decided, dropped = (after - was for after, was in zip(counts, before.get(name, counts), strict=True))
            known = name in self._told and now - self._told[name] < TOLD_SECONDS
            if dropped > TOLERATED * (decided + dropped) and not known:
                self._told[name] = now
                sentences.append(
                    f"{name}: {dropped} of {decided + dropped} chunks of the last {minute:.0f} s were dropped, the "
                    "oldest first: this machine is too slow for all its sources. A model of `lstr learn --recipe live` "
                    "needs less."
                )
        return sentences

"""Which id at hand may be meant by one that differs in case, in the noughts before a number, or by one letter."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

NUMBER = re.compile(r"\d+")
LONGEST = 64
"""Letters of an id up to which one may be wrong; longer ids would take much memory."""
SHORTEST = 3
"""What must be left without the letter."""


class NearIds:
    """Ids to look up by others that are nearly the same; as long as the ids are, however many there are.

    A number is never taken for another: where seq03 is missing, seq04 is not meant.
    """

    def __init__(self, ids: Iterable[str]):
        self._ids: dict[tuple[str, ...], str] = {}
        for name in ids:
            for key in _keys(name):
                self._ids.setdefault(key, name)

    def meant_by(self, name: str) -> str:
        """The id that a name may mean; empty without one."""
        return next((self._ids[key] for key in _keys(name) if key in self._ids), "")


def _keys(name: str) -> Iterator[tuple[str, ...]]:
    """What two ids have in common that differ by a letter: their numbers, and the rest, whole or without one letter."""
    name = name.casefold()
    numbers = [number.lstrip("0") for number in NUMBER.findall(name)]
    rest = NUMBER.sub("0", name)
    yield (rest, *numbers)
    if SHORTEST < len(rest) <= LONGEST:
        for at, letter in enumerate(rest):
            if letter != "0":
                yield (rest[:at] + rest[at + 1 :], *numbers)

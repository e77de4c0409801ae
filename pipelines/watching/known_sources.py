"""The sources of a service: those of its file, those that a person has added, and which of them are paused."""

from collections.abc import Mapping
from pathlib import Path

from lstr.errors import LstrError
from lstr.pipelines.watching.config import SourceConfig
from lstr.pipelines.watching.history import History

MOST_SOURCES = 64
"""Up to which sources may be added while it runs; each has a connection and threads of its own."""
PAUSED, ADDED = "paused", "added"
"""What the history keeps over a restart: names of sources that are paused, and sources that a person has added."""


class KnownSources:
    """Sources by name, kept over a restart. named: those of the file at `path`. Each change raises LstrError."""

    def __init__(self, named: Mapping[str, SourceConfig], path: Path, history: History):
        self.named, self._path, self._history = named, path, history

    @property
    def all(self) -> dict[str, SourceConfig]:
        """All that are known, those too that are paused; a name of the file is the file's."""
        added = self._history.kept(ADDED) or {}
        return {**{name: SourceConfig(address) for name, address in added.items()}, **self.named}

    @property
    def paused(self) -> list[str]:
        """Names of those that nobody wants decided now."""
        return list(self._history.kept(PAUSED) or ())

    def pause(self, name: str, paused: bool) -> None:
        """Keep that one is paused, or not."""
        self.check(name)
        names = {*self.paused, name} if paused else {*self.paused} - {name}
        self._history.keep(PAUSED, sorted(names))

    def add(self, name: str, source: SourceConfig) -> None:
        """Keep one that the file does not name."""
        known = self.all
        if name in known:
            raise LstrError(f"There is a source {name!r} already.", "choose another name.")
        if len(known) >= MOST_SOURCES:
            raise LstrError(f"There are {len(known)} sources already.", "remove one of them before.")
        self._history.keep(ADDED, {**(self._history.kept(ADDED) or {}), name: source.address})

    def remove(self, name: str) -> None:
        """Forget one that was added."""
        self.check(name)
        if name in self.named:
            raise LstrError(f"{name!r} is in {self._path}.", "take it out there, and send SIGHUP.")
        added = self._history.kept(ADDED) or {}
        added.pop(name, None)
        self._history.keep(ADDED, added)
        self._history.keep(PAUSED, sorted({*self.paused} - {name}))

    def check(self, name: str) -> None:
        """Raise LstrError for one that is not known."""
        known = self.all
        if name not in known:
            raise LstrError(f"There is no source {name!r}.", f"it is one of {', '.join(known)}.")

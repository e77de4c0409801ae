"""The sources of a service: those of its file, those that a person has added, which are paused, and their zones.

Zones that a person has drawn on the page replace those of the file.
"""

from collections.abc import Mapping
from pathlib import Path

from lstr.errors import ExtractorError, LstrError
from lstr.extractors.video.live_input import parse_live
from lstr.extractors.video.zones import Zones, parse_zones
from lstr.pipelines.watching.config import Address, SourceConfig
from lstr.pipelines.watching.history import History

# Up to which sources may be added while it runs; each has a connection and threads of its own.
MOST_SOURCES = 64
# What the history keeps over a restart: names of sources that are paused, sources that a person has added, and by the
# name of a source the zones that were drawn, an empty list too.
PAUSED, ADDED, ZONES = "paused", "added", "zones"


class KnownSources:
    """Sources by name, kept over a restart. named: those of the file at `path`. Each change raises LstrError."""

    def __init__(self, named: Mapping[str, SourceConfig], path: Path, history: History):
        self.named, self._path, self._history = named, path, history
        self._zones: dict[str, Zones] = {}
        self.drawn: frozenset[str] = frozenset()
        """Names of the sources whose zones are those of the page."""

    @property
    def all(self) -> dict[str, SourceConfig]:
        """All that are known, those too that are paused; a name of the file is the file's."""
        added = self._history.kept(ADDED) or {}
        return {**{name: SourceConfig(Address(address)) for name, address in added.items()}, **self.named}

    @property
    def paused(self) -> list[str]:
        """Names of those that nobody wants decided now."""
        return list(self._history.kept(PAUSED) or ())

    def pause(self, name: str, paused: bool) -> None:
        """Keep that one is paused, or not."""
        self.check(name)
        names = {*self.paused, name} if paused else {*self.paused} - {name}
        self._history.keep(PAUSED, sorted(names))

    def add(self, name: str, address: str) -> None:
        """Keep one that the file does not name."""
        try:
            parsed = None if address == "-" else parse_live(address)
        except ExtractorError as error:
            raise LstrError(str(error), getattr(error, "hint", "")) from error
        if parsed is None:
            raise LstrError("That is no camera and no address.", "write one, as rtsp://camera/stream.")
        known = self.all
        if name in known:
            raise LstrError(f"There is a source {name!r} already.", "choose another name.")
        if len(known) >= MOST_SOURCES:
            raise LstrError(f"There are {len(known)} sources already.", "remove one of them before.")
        self._history.keep(ADDED, {**(self._history.kept(ADDED) or {}), name: address})

    def remove(self, name: str) -> None:
        """Forget one that was added."""
        self.check(name)
        if name in self.named:
            raise LstrError(f"{name!r} is in {self._path}.", "take it out there, and send SIGHUP.")
        added = self._history.kept(ADDED) or {}
        added.pop(name, None)
        self._history.keep(ADDED, added)
        self._history.keep(PAUSED, sorted({*self.paused} - {name}))
        self._keep_zones(name, None)

    def zones_of(self, name: str) -> Zones:
        """The zones of a source now, also by the name that a session gives it while the one before it ends.

        May be called from any thread.
        """
        return self._zones.get(name.partition("~")[0], ())

    def settle_zones(self) -> None:
        """Take the zones of the page, and of the file where the page has none of its own, from now on."""
        drawn = self._history.kept(ZONES) or {}
        own = {name: source.zones for name, source in self.all.items()}
        self._zones = own | {name: parse_zones(zones) for name, zones in drawn.items() if name in own}
        self.drawn = frozenset(drawn)

    def draw(self, name: str, zones: Zones | None) -> None:
        """Keep what was drawn for a source, which `settle_zones` takes; None goes back to the file's."""
        self.check(name)
        self._keep_zones(name, zones)

    def _keep_zones(self, name: str, zones: Zones | None) -> None:
        drawn = dict(self._history.kept(ZONES) or {})
        drawn.pop(name, None)
        self._history.keep(ZONES, drawn if zones is None else {**drawn, name: zones})

    def check(self, name: str) -> None:
        """Raise LstrError for one that is not known."""
        known = self.all
        if name not in known:
            raise LstrError(f"There is no source {name!r}.", f"it is one of {', '.join(known)}.")

"""The zones of each source: those that a person has drawn on the page stand before those of the file."""

from collections.abc import Mapping

from lstr.extractors.video.zones import Zones, parse_zones
from lstr.pipelines.watching.config import SourceConfig
from lstr.pipelines.watching.history import History

ZONES = "zones"
"""What the history keeps over a restart: by the name of a source what was drawn, without a zone too."""


class DrawnZones:
    """Which zones each source has; `of` may be called from any thread. Its changes raise as the history does."""

    def __init__(self, history: History):
        self._history = history
        self._zones: dict[str, Zones] = {}
        self.drawn: frozenset[str] = frozenset()
        """Names of the sources whose zones are those of the page."""

    def of(self, name: str) -> Zones:
        """The zones of a source now, also by the name that a session gives it while the one before it ends."""
        return self._zones.get(name.partition("~")[0], ())

    def settle(self, sources: Mapping[str, SourceConfig]) -> None:
        """Take the zones of these sources from now on, where the page has none of its own."""
        kept = self._kept()
        own = {name: source.zones for name, source in sources.items()}
        self._zones = own | {name: parse_zones(zones) for name, zones in kept.items() if name in own}
        self.drawn = frozenset(kept)

    def draw(self, name: str, zones: Zones | None) -> None:
        """Keep what was drawn for a source, which `settle` takes; None goes back to the file's."""
        kept = self._kept()
        kept.pop(name, None)
        self._history.keep(ZONES, kept if zones is None else {**kept, name: zones})

    def _kept(self) -> dict[str, list]:
        return dict(self._history.kept(ZONES) or {})

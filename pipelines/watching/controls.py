"""What the page may have done to the service that it shows."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lstr.extractors.video.zones import Zones


def no_file(name: str) -> Path | None:
    """No clips, no pictures."""
    return None


@dataclass(frozen=True)
class Controls:
    """Calls of a service; each may raise an LstrError, which the page shows. They come from any thread."""

    pause: Callable[[str], None]
    """No more decisions on a source of this name."""
    resume: Callable[[str], None]
    add: Callable[[str, str], None]
    """A source of a name and an address."""
    remove: Callable[[str], None]
    snooze: Callable[[str | None, str | None, float], None]
    """Tell nobody of a source, an action, or either (None is all), for so many seconds; 0 ends that one alone."""
    draw: Callable[[str, Zones | None], None]
    """Zones of a source of this name; None takes those of the file again."""
    clip: Callable[[str], Path | None] = no_file
    """The film of the event of an id."""
    thumb: Callable[[str], Path | None] = no_file
    """The picture of the event of an id."""

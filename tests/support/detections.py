"""What a detection reports, gathered."""

from collections.abc import Generator, Iterable
from pathlib import Path

from lstr.pipelines.detection.decision import Decision, Ended
from lstr.pipelines.detection.model import Networks
from lstr.pipelines.detection.options import ALL, NO_FILES, NetworkOptions, OutputOptions
from lstr.pipelines.detection.session import Session
from lstr.pipelines.detection.source import Source, find_recorded, recorded_sources

OWN = NetworkOptions()


def decisions_of(events: Iterable) -> list[Decision]:
    """Every decision, in order, of a detection that runs to its end."""
    return [event for event in events if isinstance(event, Decision)]


def timelines_of(events: Iterable) -> dict[str, dict]:
    """Every timeline by source, of a detection that runs to its end."""
    return {event.id: event.timeline for event in events if isinstance(event, Ended)}


def dated_file(folder: Path, source_id: str, suffix: str) -> Path:
    """The only file of a source with a suffix, whatever date its name has."""
    (path,) = (path for path in folder.glob(f"{source_id}*") if path.name.endswith(suffix))
    return path


def sources_of(*paths, loaded) -> list[Source]:
    """Recorded sources, in their order."""
    return recorded_sources(*find_recorded(paths), loaded)


def run_recorded(source, loaded, output: OutputOptions = NO_FILES, networks=OWN, limits=ALL) -> Generator:
    """The events of one source, whose error is raised."""
    with Session(loaded, networks, output=output, limits=limits) as session:
        session.add(source)
        yield from session.events()


def run_live(inputs, loaded, networks, **options) -> Generator:
    """The events of live sources, all at once, by networks that are open."""
    with Session(loaded, open_networks(loaded, networks), len(inputs), **options) as session:
        for given in inputs:
            session.add(given)
        yield from session.events()


def open_networks(loaded, made) -> Networks:
    """Networks that are open, and stay so."""
    networks = Networks(loaded)
    networks._made = made if len(made) == 3 else (*made, [])
    return networks


def take_until(events: Iterable, kind: type, source_id: str) -> object:
    """Take events up to one of such a kind of a source; return it."""
    return next(
        event
        for event in events
        if isinstance(event, kind) and (event.source if isinstance(event, Decision) else event.id) == source_id
    )

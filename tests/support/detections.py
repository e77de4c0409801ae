"""What a detection reports, gathered."""

from collections.abc import Generator, Iterable

from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.events import Decided, Ended


def decisions_of(events: Iterable) -> list[Decision]:
    """Every decision, in order, of a detection that runs to its end."""
    return [event.decision for event in events if isinstance(event, Decided)]


def timelines_of(events: Iterable) -> dict[str, dict]:
    """Every timeline by source, of a detection that runs to its end."""
    return {event.id: event.timeline for event in events if isinstance(event, Ended)}


def next_decision(events: Generator) -> Decision:
    """Run a detection up to its next decision."""
    return next(event.decision for event in events if isinstance(event, Decided))

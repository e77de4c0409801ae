"""What a measurement tells while it runs: how far it is, and what is measured so far."""

import json
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lstr.extractors.errors import OutputError
from lstr.pipelines.files.atomic import check_writable
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.progress import Finished, Progress

Result = TypeVar("Result")
Measuring = Generator[None, None, Result]
"""A measurement that yields after each of its parts, and returns its result."""


@dataclass(frozen=True)
class Measured:
    """The record of a measurement as far as it has come; `unfinished` in it says so."""

    record: dict


def measured(measurement: Iterable[None], total: int, about: dict, parts: dict) -> Iterator[Measured | Progress]:
    """Progress of a measurement of `total` parts, each after a Measured of what is new in `parts`, which it fills."""
    told = "{}"
    for done, _ in enumerate(measurement, start=1):
        now = json.dumps(parts)
        if now != told:
            told = now
            yield Measured({**about, **json.loads(now), "unfinished": True})
        yield Progress("measuring", done, total)


def written(events: Iterable[Any], path: Path | None) -> Iterator[Any]:
    """The same events; their record is in the file, and before its end what is measured so far.

    Raises OutputError now, not after minutes of measuring, where it cannot be written.
    """
    if path is None:
        yield from events
        return
    if path.is_dir():
        raise OutputError(f"{path} is a folder, not a file.", "name a file with -o.")
    check_writable(path.parent)
    for event in events:
        if isinstance(event, Measured):
            write_json(path, event.record)
        if isinstance(event, Finished):
            write_json(path, event.result)
        yield event

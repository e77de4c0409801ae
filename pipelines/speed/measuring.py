"""What a measurement tells while it runs: how far it is, and what is measured so far."""

import json
import tempfile
from collections.abc import Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from lstr.extractors.errors import OutputError
from lstr.pipelines.files.atomic import unwritable
from lstr.pipelines.files.json_files import write_json
from lstr.pipelines.progress import Finished, Progress

Result = TypeVar("Result")
Measuring = Generator[None, None, Result]
"""A measurement that yields after each of its parts, and returns its result."""


def counted(parts: Measuring[Result], total: int) -> Generator[Progress, None, Result]:
    """A measurement of `total` parts as progress."""
    done = 0
    while True:
        try:
            next(parts)
        except StopIteration as finished:
            return finished.value
        done += 1
        yield Progress("measuring", done, total)


@dataclass(frozen=True)
class Measured:
    """The record of a measurement as far as it has come; `unfinished` in it says so."""

    record: dict


def recorded(events: Generator[Any, None, Result], about: dict, parts: dict) -> Generator[Any, None, Result]:
    """The same events, each after a Measured of what is new in `parts`, which the measurement fills, and `about` it."""
    told = ""
    while True:
        try:
            event = next(events)
        except StopIteration as finished:
            return finished.value
        now = json.dumps(parts)
        if now not in (told, "{}"):
            told = now
            yield Measured({**about, **json.loads(now), "unfinished": True})
        yield event


def written(events: Iterable[Any], path: Path | None) -> Iterator[Any]:
    """The same events; their record is in the file, and before its end what is measured so far.

    Raises OutputError now, not after minutes of measuring, where it cannot be written.
    """
    if path is None:
        yield from events
        return
    if path.is_dir():
        raise OutputError(f"{path} is a folder, not a file.", "give [[output]] a file.")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise unwritable(path.parent, error) from error
    for event in events:
        if isinstance(event, Measured):
            write_json(path, event.record)
        if isinstance(event, Finished):
            write_json(path, event.result)
        yield event

"""The lines of a detection as they are made: a JSON object each, out of this process at once."""

import errno
import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from lstr.extractors.stages import WRITE
from lstr.files.atomic import unwritable
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.events import Opened
from lstr.pipelines.detection.sink import End, Sink


class JsonLines(Sink):
    """The lines of a source in ID.jsonl of a folder, or in a stream that is open, where `named` ones say their source.

    A file needs all of them; the reader of a stream, as a pipe, may be slower than a camera. The file of a live source
    is a new one, and goes if nothing is decided; that of a recorded one takes the place of an earlier run's with the
    first decision. With `events_only` decisions are left out, and chunks that were dropped: there is a line each time
    that an action starts or ends, or a source comes back.
    """

    def __init__(self, target: Path | TextIO, named: bool = False, events_only: bool = False):
        self.needs_all = isinstance(target, Path)
        self.name = "its JSONL" if self.needs_all else "the lines"
        self._target = target
        self._is_named, self._events_only = named, events_only
        self._stream: TextIO | None = None

    def open(self, source: Opened) -> None:
        """Raises OutputError where the file of a live source cannot be opened."""
        self._name = {"source": source.id} if self._is_named else {}
        self._source, self._is_spare = source, bool(source.dated)
        if source.dated or not isinstance(self._target, Path):
            self._begin()

    def take(self, decision: Decision) -> None:
        """Write its lines. Raises OutputError where the file cannot be opened."""
        self._is_spare = False
        if self._stream is None:
            self._begin()
        lines = decision.lines()
        if self._events_only:
            lines = [line for line in lines if "event" in line or line.get("gap") == "unseen"]
        self._write(lines)

    def close(self, end: End) -> None:
        try:
            if not end.error:
                self._write(event.to_dict() for event in end.events)
        finally:
            if self.needs_all and self._stream:
                self._stream.close()
                if self._is_spare:  # else each restart would leave one
                    Path(self._stream.name).unlink(missing_ok=True)

    def _begin(self) -> None:
        self._stream = _opened(self._target, self._source) if isinstance(self._target, Path) else self._target

    def _write(self, values: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps({**self._name, **value}, ensure_ascii=False) + "\n" for value in values]
        if not lines:
            return
        with WRITE:  # who reads a pipe no more ends the run
            assert self._stream, "it is open"
            if self.needs_all and not os.fstat(self._stream.fileno()).st_nlink:  # it would be written to nowhere
                raise unwritable(Path(self._stream.name), OSError(errno.ENOENT, "it was deleted meanwhile"))
            self._stream.write("".join(lines))  # at once, for several cameras may share a stream
            self._stream.flush()


def _opened(folder: Path, source: Opened) -> TextIO:
    path = folder / f"{source.file_name}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("x" if source.dated else "w", encoding="utf-8")
    except OSError as error:
        raise unwritable(path.parent, error) from error

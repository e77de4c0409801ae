"""The lines of a detection as they are made: a JSON object each, out of this process at once."""

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TextIO

from lstr.extractors.stages import WRITE
from lstr.pipelines.detection.decision import Decision
from lstr.pipelines.detection.events import Opened
from lstr.pipelines.detection.sink import End, Sink
from lstr.pipelines.files.atomic import unwritable


class JsonLines(Sink):
    """The lines of a source in ID.jsonl of a folder, or in a stream that is open, where `named` ones say their source.

    A file needs all of them; the reader of a stream, as a pipe, may be slower than a camera. The file of a live source
    is a new one, and goes if it stays empty.
    """

    def __init__(self, target: Path | TextIO, named: bool = False):
        self.needs_all = isinstance(target, Path)
        self.name = "its JSONL" if self.needs_all else "the lines"
        self._target = target
        self._is_named = named
        self._stream: TextIO | None = None

    def open(self, source: Opened) -> None:
        """Raises OutputError where the file cannot be opened."""
        self._name = {"source": source.id} if self._is_named else {}
        self._stream = self._target if not isinstance(self._target, Path) else _opened(self._target, source)
        self._is_new = bool(source.dated)

    def take(self, decision: Decision) -> None:
        self._write(decision.lines())

    def close(self, end: End) -> None:
        try:
            if not end.error:
                self._write(event.to_dict() for event in end.events)
        finally:
            if self.needs_all and self._stream:
                self._stream.close()
                if self._is_new and not os.path.getsize(self._stream.name):  # else each restart would leave one
                    os.unlink(self._stream.name)

    def _write(self, values: Iterable[Mapping[str, Any]]) -> None:
        lines = [json.dumps({**self._name, **value}, ensure_ascii=False) + "\n" for value in values]
        with WRITE:  # who reads a pipe no more ends the run
            assert self._stream, "it is open"
            self._stream.write("".join(lines))  # at once, for several cameras may share a stream
            self._stream.flush()


def _opened(folder: Path, source: Opened) -> TextIO:
    path = folder / f"{source.file_name}.jsonl"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("x" if source.dated else "w", encoding="utf-8")
    except OSError as error:
        raise unwritable(path.parent, error) from error

"""What a detection has found so far, on disk instead of in memory: a source may go on for days."""

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lstr.files.atomic import unwritable

EMPTY_ROWS = 4096  # written at a time where a source was away


class Spool:
    """Scores by chunk and lines by event, in files without a name that are gone when they are closed.

    They are in `folder`, else in the system's folder for temporary files.
    """

    def __init__(self, n_classes: int, folder: Path | None = None, with_scores: bool = True):
        self.with_scores = with_scores
        self._n_classes, self._rows = n_classes, 0
        try:
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
            self._scores = tempfile.TemporaryFile(dir=folder) if with_scores else None
            self._lines = tempfile.TemporaryFile("w+", dir=folder, encoding="utf-8")
        except OSError as error:
            raise unwritable(folder or Path(tempfile.gettempdir()), error) from error

    def add(self, chunk: int, scores: NDArray[np.float32]) -> None:
        """Keep the scores (C,) of a chunk, which comes after all those before."""
        if self._scores:
            while missing := min(chunk - self._rows, EMPTY_ROWS):
                self._scores.write(np.full((missing, self._n_classes), np.nan, np.float32).tobytes())
                self._rows += missing
            self._scores.write(scores.astype(np.float32, copy=False).tobytes())
            self._rows += 1

    def add_lines(self, lines: Iterable[Mapping]) -> None:
        """Keep JSON objects."""
        self._lines.writelines(json.dumps(line) + "\n" for line in lines)

    def scores(self) -> NDArray[np.float32]:
        """(chunks to the newest, C) float32, NaN where a chunk has none: a map of the file, not a copy in memory."""
        shape = (self._rows, self._n_classes)
        if self._scores is None or not self._rows:
            return np.full(shape, np.nan, np.float32)
        self._scores.flush()
        return np.memmap(self._scores, np.float32, "r", shape=shape)

    def lines(self) -> list[dict]:
        """The JSON objects, in the order in which they were added."""
        self._lines.seek(0)
        return [json.loads(line) for line in self._lines]

    def close(self) -> None:
        """Close the files, which removes them."""
        for file in (self._scores, self._lines):
            if file:
                file.close()

"""What a detection has found so far, on disk instead of in memory: a source may go on for days."""

import json
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lstr.pipelines.files.atomic import unwritable


class Spool:
    """Scores by chunk and lines by event, in files without a name that are gone when they are closed.

    They are in `folder`, else in the system's folder for temporary files.
    """

    def __init__(self, n_classes: int, folder: Path | None = None, with_scores: bool = True):
        self.with_scores = with_scores
        self._row = np.dtype([("chunk", "<i8"), ("scores", "<f4", (n_classes,))])
        try:
            if folder:
                folder.mkdir(parents=True, exist_ok=True)
            self._scores = tempfile.TemporaryFile(dir=folder) if with_scores else None
            self._lines = tempfile.TemporaryFile("w+", dir=folder, encoding="utf-8")
        except OSError as error:
            raise unwritable(folder or Path(tempfile.gettempdir()), error) from error

    def add(self, chunk: int, scores: NDArray[np.float32]) -> None:
        """Keep the scores (C,) of a chunk."""
        if self._scores:
            self._scores.write(np.array([(chunk, scores)], self._row).tobytes())

    def add_lines(self, lines: Iterable[Mapping]) -> None:
        """Keep JSON objects."""
        self._lines.writelines(json.dumps(line) + "\n" for line in lines)

    def scores(self, n_chunks: int) -> NDArray[np.float32]:
        """(n_chunks, C) float32, NaN where a chunk has none."""
        table = np.full((n_chunks, *self._row["scores"].shape), np.nan, np.float32)
        if self._scores is None:
            return table
        self._scores.seek(0)
        kept = np.frombuffer(self._scores.read(), self._row)
        table[kept["chunk"]] = kept["scores"]
        return table

    def lines(self) -> list[dict]:
        """The JSON objects, in the order in which they were added."""
        self._lines.seek(0)
        return [json.loads(line) for line in self._lines]

    def close(self) -> None:
        """Close the files, which removes them."""
        for file in (self._scores, self._lines):
            if file:
                file.close()

    def __enter__(self) -> "Spool":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

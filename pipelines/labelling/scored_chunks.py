"""The scores of a video as its decisions come, one row a chunk."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CHUNK_SECONDS


class ScoredChunks:
    """Rows of scores (C,); chunks without a decision have none above 0."""

    def __init__(self) -> None:
        self._rows: list[NDArray[np.floating]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def take(self, time: float, scores: NDArray[Any]) -> None:
        """Add the scores (C,) of the chunk that ends at `time`, in seconds."""
        while len(self._rows) < round(time / CHUNK_SECONDS) - 1:
            self._rows.append(np.zeros_like(scores))
        self._rows.append(scores)

    def rows(self) -> NDArray[np.floating]:
        """All of them (L, C). Raises ValueError where there are none."""
        return np.stack(self._rows)

"""The newest scores of one source, a byte each."""

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import FEATURES_PER_SECOND

ROWS = 600 * FEATURES_PER_SECOND
"""Chunks of which the scores are kept: ten minutes."""
FULL_SCALE, NO_SCORE = 254, 255
"""The code of score 1, and that of a chunk that was not decided."""


class ScoreRows:
    """Codes of the scores of `n_classes` in the newest ROWS chunks; older ones are forgotten."""

    def __init__(self, n_classes: int):
        self._codes = np.full((ROWS, n_classes), NO_SCORE, np.uint8)
        self.first: int | None = None
        """The first column that was ever put; None before that."""
        self.newest = -1

    def put(self, column: int, codes: NDArray[np.uint8]) -> None:
        """Codes (C,) of a chunk; columns between it and the newest one were not decided."""
        if self.first is None:
            self.first = column
        missed = np.arange(max(self.newest + 1, column - ROWS + 1), column)
        self._codes[missed % ROWS] = NO_SCORE
        self._codes[column % ROWS] = codes
        self.newest = column

    def columns(self) -> tuple[int, NDArray[np.uint8]]:
        """The first column that is kept, and the codes (C, n) from it to the newest."""
        if self.first is None:
            return 0, self._codes[:0].T
        first = max(self.first, self.newest - ROWS + 1)
        return first, self._codes[np.arange(first, self.newest + 1) % ROWS].T


def codes_of(scores: NDArray[np.float32]) -> NDArray[np.uint8]:
    """A byte for each score; one that is not finite is no score."""
    finite = np.isfinite(scores)
    codes = np.rint(np.clip(np.where(finite, scores, 0), 0, 1) * FULL_SCALE).astype(np.uint8)
    codes[~finite] = NO_SCORE
    return codes

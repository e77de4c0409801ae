"""Streams of a model for the sources of a session, whatever computes them."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from lstr.extractors.run import FeatureRow
from lstr.extractors.streams import MODEL_STREAMS


class Streams(Protocol):
    """Places for so many sources in one state of a model."""

    def step(self, places: Sequence[int], rows: Sequence[FeatureRow]) -> NDArray[np.float32]:
        """Scores (n, 1 + n_ahead, C) of the next chunk of n places, and of the chunks to come, from its features."""

    def reset(self, places: Sequence[int] | None = None) -> None:
        """Forget every chunk of some places, or of all."""

    def seen(self, place: int) -> int:
        """Chunks that a place remembers, or has seen and let go."""


def stacked(rows: Sequence[FeatureRow]) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
    """What a model takes as rgb and as flow of n chunks, (n, D) each; None of a stream that the networks leave out."""
    rgb, flow = ([getattr(row, stream) for row in rows] for stream in MODEL_STREAMS)
    return _joined(rgb), _joined(flow)


def _joined(features: list[NDArray[np.float32] | None]) -> NDArray[np.float32] | None:
    present = [row for row in features if row is not None]
    return np.stack(present) if present else None

"""Streams of a model that torch computes: all that a session asks of torch is here."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lstr import streaming
from lstr.extractors.devices import CAPTURING
from lstr.extractors.run import FeatureRow
from lstr.extractors.stages import MODEL
from lstr.models.kind import Model
from lstr.pipelines.detection.streams import stacked
from lstr.streaming import StreamState


class TorchStreams:
    """Places for so many sources in one state of the model, captured where it is on a GPU, for a dozen steps' time.

    With `like` they share what never changes.
    """

    def __init__(self, model: Model, places: int = 1, like: "TorchStreams | None" = None):
        self._model = model
        self._state: StreamState = streaming.create(model, places, like._state if like else None)
        if streaming.can_capture(model):
            with CAPTURING:  # networks are captured too, of which the model knows nothing
                streaming.capture(model, self._state)

    def step(self, places: Sequence[int], rows: Sequence[FeatureRow]) -> NDArray[np.float32]:
        """Scores (n, 1 + n_ahead, C) of the next chunk of n places, and of the chunks to come, from its features."""
        with MODEL:
            if len(self._state.chunks) == 1:
                return streaming.step_ahead(self._model, self._state, rows[0].rgb, rows[0].flow).numpy()[None]
            rgb, flow = stacked(rows)
            return streaming.step_some(self._model, self._state, places, rgb, flow).numpy()

    def reset(self, places: Sequence[int] | None = None) -> None:
        """Forget every chunk of some places, or of all."""
        streaming.reset(self._state, places)

    def seen(self, place: int) -> int:
        """Chunks that a place remembers, or has seen and let go."""
        return int(self._state.chunks[place])

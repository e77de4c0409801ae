"""Which chunks and segments a score curve has by its thresholds, all at once."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import runs
from lstr.metrics.actions import Spans
from lstr.timeline import Thresholds, is_highest


def hysteresis(curve: np.ndarray, on: float, off: float) -> NDArray[np.bool_]:
    """Chunks (L,) that are on: from one at `on` to before one below `off`; a video begins off."""
    switch = np.where(curve >= on, 1, np.where(curve < off, 0, -1))  # -1: as before
    switch[0] = curve[0] >= on
    last = np.maximum.accumulate(np.where(switch >= 0, np.arange(len(curve)), 0))
    return switch[last] == 1


def curves_of(scores: np.ndarray, actions: Sequence[int], highest: bool) -> np.ndarray:
    """The curves (L, A) of the actions (columns) of scores (L, C); with `highest` -1 where another scores higher."""
    return np.where(is_highest(scores, actions), scores[:, actions], -1.0) if highest else scores[:, actions]


def detect_spans(curve: np.ndarray, rules: Thresholds, clock: Clock = CLOCK) -> Spans:
    """The segments (N, 2) in seconds that `Timeline` makes of a curve (L,) of `curves_of`, all at once.

    Starts are backdated as far as the class's own detection before, also with `highest`: there is no other class here.
    """
    if not len(curve):
        return np.zeros((0, 2))
    exact = curve.astype(np.float64)  # as the timeline compares scores with thresholds
    found = np.array(runs(hysteresis(exact, rules.on, rules.off)), dtype=np.float64).reshape(-1, 2)
    if (gap := rules.gap_chunks(clock)) and len(found):
        apart = np.flatnonzero(found[1:, 0] - found[:-1, 1] > gap)
        found = np.stack([found[np.append(0, apart + 1), 0], found[np.append(apart, len(found) - 1), 1]], axis=1)
    kept = (found[:, 1] - found[:, 0] >= rules.min_chunks(clock)) | (found[:, 1] == len(curve))  # or on at the end
    found = found[kept]
    if (backdate := rules.backdate_chunks(clock)) and len(found):
        found[:, 0] = np.maximum(found[:, 0] - backdate, np.append(0, found[:-1, 1]))
    spans: Spans = clock.at(found)
    return spans

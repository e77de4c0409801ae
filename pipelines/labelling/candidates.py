"""What a model's scores of a video propose: its detections, and near misses, for what it missed a person must find."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CHUNK_SECONDS, FEATURES_PER_SECOND
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.pipelines.thresholds.by_chunks import curves_of, detect_spans
from lstr.timeline import DEFAULT, Thresholds

NEAR = 0.5
"""A peak is a near miss from this share of its class's `on` up."""


@dataclass(frozen=True)
class Candidate:
    """A stretch, in seconds, that may be an action; `peak` is the highest score in it, `threshold` its class's `on`."""

    label: str
    start: float
    end: float
    peak: float
    threshold: float


def candidates_of(
    scores: NDArray[np.floating], classes: Sequence[str], thresholds: Thresholds | Mapping[str, Thresholds]
) -> list[Candidate]:
    """The detections by these thresholds, then near misses of each class, from scores (L, C), one row a chunk.

    A near miss is a stretch between detections that the same rules find with half the thresholds. What only follows or
    precedes a detection, its own rise or fall, is none.
    """
    found: list[Candidate] = []
    for column, label in enumerate(classes):
        if label in (BACKGROUND, AMBIGUOUS) or not len(scores):
            continue
        rules = thresholds if isinstance(thresholds, Thresholds) else thresholds.get(label, DEFAULT)
        curve = _curve(scores, classes, column, rules)
        detected = _chunks(detect_spans(curve, rules))
        spans = [*detected, *_near_misses(curve, rules, detected)]
        found += [
            Candidate(label, a * CHUNK_SECONDS, b * CHUNK_SECONDS, float(np.clip(curve[a:b].max(), 0, 1)), rules.on)
            for a, b in spans
        ]
    return found


def _curve(scores: NDArray[np.floating], classes: Sequence[str], column: int, rules: Thresholds) -> NDArray[np.float64]:
    """The scores of a class; with `highest` -1 where another action scores higher."""
    actions = [at for at, label in enumerate(classes) if label not in (BACKGROUND, AMBIGUOUS)]
    return np.asarray(curves_of(scores, actions, rules.highest)[:, actions.index(column)], np.float64)


def _near_misses(
    curve: NDArray[np.float64], rules: Thresholds, detected: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, int]]:
    on = rules.on * NEAR  # which scores reach so early that nothing is backdated
    low = replace(rules, on=on, off=min(rules.off, on), backdate=0.0)
    if not low.on:
        return
    outside = curve.copy()
    for a, b in detected:
        outside[a:b] = -1.0
    edges = {edge for span in detected for edge in span}
    for a, b in _chunks(detect_spans(outside, low)):
        peak = a + int(outside[a:b].argmax())
        if not (a in edges and peak == a) and not (b in edges and peak == b - 1):
            yield a, b


def _chunks(spans: NDArray[np.floating]) -> list[tuple[int, int]]:
    return [(round(start * FEATURES_PER_SECOND), round(end * FEATURES_PER_SECOND)) for start, end in spans.tolist()]

"""Which chunks and segments a score curve has by its thresholds, and those of the highest F1 over chunks by class."""

from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import FEATURES_PER_SECOND
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, runs
from lstr.metrics import per_frame as metrics
from lstr.metrics.actions import Spans
from lstr.timeline import DEFAULT, Thresholds

MOST_LEVELS = 50  # scores tried as `on`
OFF_SHARES = (1.0, 0.9, 0.75, 0.6, 0.45, 0.3)  # of `on`, tried as `off`


def hysteresis(curve: np.ndarray, starts: np.ndarray, on: float, off: float) -> NDArray[np.bool_]:
    """Chunks (N,) that are on: from one at `on` to before one below `off`; each video begins off."""
    switch = np.where(curve >= on, 1, np.where(curve < off, 0, -1))  # -1: as before
    switch[starts] = np.where(curve[starts] >= on, 1, 0)
    last = np.maximum.accumulate(np.where(switch >= 0, np.arange(len(curve)), 0))
    return switch[last] == 1


def detect_spans(curve: np.ndarray, rules: Thresholds) -> Spans:
    """The segments (N, 2) in seconds that `Timeline` makes of a video's scores (L,) of one class, all at once."""
    if not len(curve):
        return np.zeros((0, 2))
    exact = curve.astype(np.float64)  # as the timeline compares scores with thresholds
    found = np.array(runs(hysteresis(exact, np.array([0]), rules.on, rules.off)), dtype=np.float64).reshape(-1, 2)
    if rules.gap_chunks and len(found):
        apart = np.flatnonzero(found[1:, 0] - found[:-1, 1] > rules.gap_chunks)
        found = np.stack([found[np.append(0, apart + 1), 0], found[np.append(apart, len(found) - 1), 1]], axis=1)
    kept = (found[:, 1] - found[:, 0] >= rules.min_chunks) | (found[:, 1] == len(curve))  # or on at the end
    return found[kept] / FEATURES_PER_SECOND


def choose_thresholds(
    scores: Sequence[np.ndarray], targets: Sequence[np.ndarray], classes: Sequence[str]
) -> dict[str, Thresholds]:
    """The `on` and `off` of each class that reach the highest F1 over the chunks of some videos.

    scores and targets (L, C) of each video. What is scored are the chunks that hysteresis leaves on, as `Timeline`
    decides them; chunks labelled "Ambiguous" do not count. A class that never happens here is not in the result.
    Lengths and gaps stay at their defaults, for they cost delay.
    """
    found = {}
    for label, curve, f1_of in _judges(scores, targets, classes):
        best = (-1.0, DEFAULT)
        for on in levels(curve):
            for share in OFF_SHARES:
                value = f1_of(on, on * share)
                if value > best[0]:
                    best = value, Thresholds(on, on * share)
        found[label] = best[1]
    return found


def scores_by_class(
    found: Mapping[str, Thresholds], scores: Sequence[np.ndarray], targets: Sequence[np.ndarray], classes: Sequence[str]
) -> dict[str, dict[str, float | None]]:
    """The thresholds of each class with their F1 over chunks, and that of the default ones."""
    judges = {label: f1_of for label, _, f1_of in _judges(scores, targets, classes)}
    return {
        label: {
            "on": rules.on,
            "off": rules.off,
            "F1": judges[label](rules.on, rules.off) if label in judges else None,
            "before": judges[label](DEFAULT.on, DEFAULT.off) if label in judges else None,
        }
        for label, rules in found.items()
    }


def _judges(
    scores: Sequence[np.ndarray], targets: Sequence[np.ndarray], classes: Sequence[str]
) -> Iterator[tuple[str, np.ndarray, Callable[[float, float], float]]]:
    """Each action that happens, its score curve of all videos joined, and its F1 over chunks by `on` and `off`."""
    joined, labelled = np.concatenate(scores), np.concatenate(targets) > 0
    mask = metrics.counted(labelled, classes)
    starts = np.cumsum([0, *map(len, scores)])
    starts = np.unique(starts[starts < starts[-1]])  # of each video; an empty one has none
    for c, label in enumerate(classes):
        curve, truth = joined[:, c], labelled[mask, c]

        def f1_of(on: float, off: float, curve: np.ndarray = curve, truth: np.ndarray = truth) -> float:
            return f1(hysteresis(curve, starts, on, off)[mask], truth)

        if label not in (BACKGROUND, AMBIGUOUS) and truth.any():
            yield label, curve, f1_of


def levels(curve: np.ndarray) -> list[float]:
    """Scores to try as `on`: below some of those that occur, spread by rank, denser towards the high ones.

    Each is half way to the next score, because one that occurs is decided otherwise where the last bit differs, as
    between the batch computation and the stream.
    """
    seen = np.unique(curve[curve > 0])[::-1].astype(np.float64)
    if not len(seen):
        return []
    between = (seen + np.append(seen[1:], 0)) / 2
    ranks = np.unique(np.geomspace(1, len(seen), MOST_LEVELS).astype(int)) - 1
    return [float(level) for level in between[ranks]]


def f1(decided: NDArray[np.bool_], truth: NDArray[np.bool_]) -> float:
    """Harmonic mean of precision and recall."""
    right = np.count_nonzero(decided & truth)
    return 2 * right / (np.count_nonzero(decided) + np.count_nonzero(truth))

"""Metrics of chunks: average precision, plain and calibrated, by tenth of an action; delay and confusion; baselines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.errors import LstrError
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, runs
from lstr.labels.segment import Segment
from lstr.metrics.intervals import Draws, mean_of_known

# Scores or multi-hot targets (L, C) of each video.
Videos = Sequence[NDArray[Any]]
SMOOTHING_CHUNKS = 8  # chunks on each side that `time_prior` averages over: 2 s
CELLS_TOGETHER = 4_000_000  # maximum number of values in one table: 32 MB
N_STAGES = 10  # parts of an action that are scored separately


def per_frame(scores: NDArray[np.floating], targets: NDArray[Any], classes: Sequence[str]) -> dict[str, Any]:
    """Compute mAP and mcAP over the chunks of all videos together.

    As in the published evaluation of THUMOS'14, Background, classes without a positive chunk, and Ambiguous with all
    its chunks are excluded. Chunks with equal scores count together; the published cAP orders them
    arbitrarily. A class that is active in every chunk has a precision of 1.

    Args:
        scores: Scores (N, C).
        targets: Multi-hot targets (N, C).
        classes: Names of the C classes.

    Returns:
        {"mAP", "mcAP", "per_class": {name: {"AP", "cAP", "positives"}}}; the means are NaN without any class.

    Raises:
        LstrError: Shapes differ or a score is NaN.
    """
    scores, targets = np.asarray(scores), np.asarray(targets)
    if scores.ndim != 2 or scores.shape != targets.shape or scores.shape[1] != len(classes):
        message = f"Scores have shape {scores.shape} and targets {targets.shape}, for {len(classes)} classes."
        raise LstrError(message, "score and label the same chunks with the same classes.")
    if np.isnan(scores).any():
        hint = "check the features for values that are not finite, and the checkpoint."
        raise LstrError(f"Scores are NaN in {int(np.isnan(scores).any(axis=1).sum())} of {len(scores)} chunks.", hint)
    on = targets > 0
    keep = counted(on, classes)
    if not keep.all():
        scores, on = scores[keep], on[keep]
    per_class = {}
    for column, name in scored_columns(on, classes):
        per_class[name] = {
            "AP": average_precision(scores[:, column], on[:, column]),
            "cAP": float(rank_chunks(scores[:, column], on[:, column]).average_precisions(calibrated=True)[0, 0]),
            "positives": int(on[:, column].sum()),
        }
    return {"mAP": mean_of(per_class, "AP"), "mcAP": mean_of(per_class, "cAP"), "per_class": per_class}


def counted(on: NDArray[np.bool_], classes: Sequence[str]) -> NDArray[np.bool_]:
    """Return which chunks (N,) of `on` (N, C) are not ambiguous."""
    return ~on[:, classes.index(AMBIGUOUS)] if AMBIGUOUS in classes else np.ones(len(on), dtype=bool)


def scored_columns(on: NDArray[np.bool_], classes: Sequence[str]) -> list[tuple[int, str]]:
    """Return index and name of the classes to score: actions that are active in any chunk of `on` (N, C)."""
    return [(i, name) for i, name in enumerate(classes) if name not in (BACKGROUND, AMBIGUOUS) and on[:, i].any()]


def mean_of(per_class: dict[str, dict[str, Any]], key: str) -> float:
    """Return the mean of one metric over classes; NaN without classes."""
    return float(np.mean([entry[key] for entry in per_class.values()])) if per_class else float("nan")


def average_precision(scores: NDArray[np.floating], positive: NDArray[np.bool_]) -> float:
    """Return the AP without interpolation of scores (N,) for one class; `positive` (N,) is bool."""
    # Imported here, because scikit-learn takes a second to import and most commands do not need it.
    from sklearn.metrics import average_precision_score

    return float(average_precision_score(positive, scores))


@dataclass(frozen=True)
class Ranked:
    """The predictions of a class in all videos, and which are right or wrong by each of several limits.

    A prediction that is neither is ignored, for example because it is labelled ambiguous.
    """

    scores: NDArray[np.floating]  # (N,)
    videos: NDArray[np.int64]  # (N,) index of the video of each prediction
    right: NDArray[np.bool_]  # (N, K) by limit
    wrong: NDArray[np.bool_]  # (N, K)
    truths: NDArray[np.int64]  # (V, K) number of labels in each video

    def average_precisions(
        self, draws: Draws | None = None, calibrated: bool = False, interpolated: bool = False
    ) -> NDArray[np.float64]:
        """Return the AP (R, K) of each resample of the videos by each limit; NaN without labels.

        `draws` (R, V) come from `intervals.draw`; without them each video counts once, and R is 1. AP is the precision
        at each right prediction, summed and divided by the number of labels. Predictions with equal scores count
        together, so that the order of videos has no effect.

        Args:
            draws: How often each video is in each resample.
            calibrated: Use the precision TP / (TP + FP / w), w = negatives / positives (De Geest et al. 2016), so that
                it does not depend on how rare the class is. Constant scores have a cAP of 0.5.
            interpolated: Use the highest precision at that or a higher recall.
        """
        n_videos = len(self.truths)
        draws = np.ones((1, n_videos), dtype=np.int64) if draws is None else draws
        order = np.flatnonzero(self.right.any(axis=1))
        order = order[np.argsort(-self.scores[order], kind="stable")]
        # the first prediction of the order that each prediction is at or above
        first = np.searchsorted(-self.scores[order], -self.scores)
        cells = first * n_videos + self.videos

        def counts(chosen: NDArray[np.bool_], rows: NDArray[np.bool_]) -> NDArray[np.float64]:
            """Return how many chosen predictions are at or above each row of the order, per video (P, V)."""
            # predictions below all rows do not affect the AP
            table = np.bincount(cells[chosen & (first < len(order))], minlength=len(order) * n_videos)
            return table.reshape(len(order), n_videos).cumsum(axis=0)[rows].astype(np.float64)

        found = np.empty((len(draws), self.right.shape[1]))
        for limit, (right, wrong) in enumerate(zip(self.right.T, self.wrong.T, strict=True)):
            rows = right[order]
            true_above, false_above = counts(right, rows), counts(wrong, rows)
            negatives = np.bincount(self.videos[wrong], minlength=n_videos)
            for part in np.array_split(np.arange(len(draws)), 1 + len(draws) * len(order) // CELLS_TOGETHER):
                times = draws[part].T.astype(np.float64)  # (V, R)
                true, false, total = true_above @ times, false_above @ times, draws[part] @ self.truths[:, limit]
                if calibrated:
                    others = draws[part] @ negatives
                    false *= np.where(others > 0, total / np.maximum(others, 1), 1.0)
                precision = np.divide(true, true + false, out=np.zeros_like(true), where=true > 0)
                if interpolated:
                    precision = np.maximum.accumulate(precision[::-1], axis=0)[::-1]
                sums = (times[self.videos[order[rows]]] * precision).sum(axis=0)
                found[part, limit] = np.where(total > 0, sums / np.maximum(total, 1), np.nan)
        return found


def rank_chunks(
    scores: NDArray[np.floating],
    positive: NDArray[np.bool_],
    right: NDArray[np.bool_] | None = None,
    of_video: NDArray[np.int64] | None = None,
    n_videos: int = 1,
) -> Ranked:
    """Return the chunks (N,) of a class as predictions, of which `positive` (N,) are right and the others wrong.

    `right` (N, K) are the positive chunks by limit, if not all count. `of_video` (N,) is the video of each chunk.
    """
    right = positive[:, None] if right is None else right
    of_video = np.zeros(len(scores), dtype=np.int64) if of_video is None else of_video
    wrong = np.broadcast_to(~positive[:, None], right.shape)
    truths = [np.bincount(of_video[chosen], minlength=n_videos) for chosen in right.T]
    return Ranked(scores, of_video, right, wrong, np.stack(truths, axis=1))


def resampled_means(
    scores: Videos, targets: Videos, classes: Sequence[str], draws: Draws, calibrated: bool = False
) -> NDArray[np.float64]:
    """Return the mAP, or mcAP, of each resample (resamples,), as in `per_frame`, from one array (L, C) per video.

    Classes without an active chunk in a resample are excluded from its mean, which is NaN without any class.
    """
    on = np.concatenate([np.asarray(video) for video in targets]) > 0
    keep = counted(on, classes)
    of_video = np.repeat(np.arange(len(targets)), [len(video) for video in targets])[keep]
    on, rows = on[keep], np.concatenate(list(scores))[keep]
    columns = scored_columns(on, classes)
    precisions = np.full((len(draws), len(columns)), np.nan)
    for place, (column, _) in enumerate(columns):
        ranked = rank_chunks(rows[:, column], on[:, column], None, of_video, len(targets))
        precisions[:, place] = ranked.average_precisions(draws, calibrated)[:, 0]
    return mean_of_known(precisions, axis=1)


def per_stage(scores: Videos, targets: Videos, classes: Sequence[str]) -> list[dict[str, Any]]:
    """Compute the metrics of each tenth of the actions, from one array (L, C) per video.

    For a tenth, a class keeps all its inactive chunks, and of each run of active chunks those that have their middle in
    that tenth of the run, so that each active chunk counts in exactly one tenth. Ambiguous chunks are excluded.

    Returns:
        {"stage", "mAP", "mcAP", "per_class": {name: {"AP", "cAP", "positives"}}} for each tenth. Classes without a
        chunk in a tenth are excluded from its means, which are NaN without any class.
    """
    on = np.concatenate([np.asarray(video) for video in targets]) > 0
    tenths = []
    for video in map(np.asarray, targets):
        tenths.append(np.zeros(video.shape, dtype=np.int8))
        for column in range(video.shape[1]):
            for start, stop in runs(video[:, column] > 0):
                tenths[-1][start:stop, column] = (np.arange(stop - start) + 0.5) * N_STAGES / (stop - start)
    keep = counted(on, classes)
    stages = np.concatenate(tenths)[keep]
    rows = np.concatenate(list(scores))[keep]
    return _per_stage(rows, on[keep], classes, lambda column: stages[:, column, None] == np.arange(N_STAGES))


def published_per_stage(
    scores: NDArray[np.floating], targets: NDArray[Any], classes: Sequence[str]
) -> list[dict[str, Any]]:
    """Compute the metrics of each tenth as in the published evaluation, from concatenated scores and targets (N, C).

    It differs from `per_stage`: the last chunk of a run is in no tenth, every run has at least one chunk in each tenth,
    and bounds are rounded down to whole chunks. Runs are joined across two videos, and across ambiguous chunks, because
    these are removed first.
    """
    on = np.asarray(targets) > 0
    keep = counted(on, classes)
    on = on[keep]

    def in_stages(column: int) -> NDArray[np.bool_]:
        inside = np.zeros((len(on), N_STAGES), dtype=bool)
        for start, stop in runs(on[:, column]):
            bounds = start + (stop - 1 - start) * np.arange(N_STAGES + 1) // N_STAGES
            for stage, (first, end) in enumerate(pairwise(bounds)):
                inside[first : max(first + 1, end), stage] = True
        return inside

    return _per_stage(np.asarray(scores)[keep], on, classes, in_stages)


def _per_stage(
    scores: NDArray[np.floating],
    on: NDArray[np.bool_],
    classes: Sequence[str],
    in_stages: Callable[[int], NDArray[np.bool_]],
) -> list[dict[str, Any]]:
    """Return the metrics of each tenth; `in_stages` returns which chunks (N, 10) of a column are in which tenth."""
    per_class: list[dict[str, dict[str, Any]]] = [{} for _ in range(N_STAGES)]
    for column, name in scored_columns(on, classes):
        right = in_stages(column) & on[:, column, None]
        ranked = rank_chunks(scores[:, column], on[:, column], right)
        plain, calibrated = ranked.average_precisions()[0], ranked.average_precisions(calibrated=True)[0]
        for stage, positives in enumerate(right.sum(axis=0).tolist()):
            if positives:
                values = {"AP": float(plain[stage]), "cAP": float(calibrated[stage])}
                per_class[stage][name] = {**values, "positives": positives}
    return [
        {
            "stage": f"{100 * stage // N_STAGES}-{100 * (stage + 1) // N_STAGES}%",
            "mAP": mean_of(entries, "AP"),
            "mcAP": mean_of(entries, "cAP"),
            "per_class": entries,
        }
        for stage, entries in enumerate(per_class)
    ]


def predicted_classes(scores: NDArray[np.floating], classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the class (L,) with the highest score in each row of scores (L, C), except the ambiguous class."""
    open_to = [i for i, name in enumerate(classes) if name != AMBIGUOUS]
    return np.array(open_to)[np.asarray(scores)[:, open_to].argmax(axis=1)] if len(scores) else np.zeros(0, np.int64)


def detection_delay(
    scores: Videos, targets: Videos, segments: Sequence[Sequence[Segment]], classes: Sequence[str], clock: Clock = CLOCK
) -> dict[str, Any]:
    """Measure the seconds from each action's start to its first correct decision.

    A decision is made at the end of its chunk, so a perfect model has delays of up to one chunk. It is correct for an
    action if, in a chunk of the action, its class scores above every class that is not active in the chunk. Actions
    without a chunk in the video are excluded; actions that are never decided correctly count as missed and are in no
    median.

    Args:
        scores: Scores (L, C) of each video.
        targets: Multi-hot targets (L, C) of each video.
        segments: Labelled segments of each video.
        classes: Names of the C classes.
        clock: The clock of the chunks.

    Returns:
        A summary of all actions, "per_class" with a summary of each class, and "seconds" with each delay.
    """
    column = {name: i for i, name in enumerate(classes)}
    delays: dict[str, list[float]] = {name: [] for name in classes}
    for rows, on, actions in zip(scores, targets, segments, strict=True):
        rivals = np.where(np.asarray(on) > 0, -np.inf, rows)
        if AMBIGUOUS in column:
            rivals[:, column[AMBIGUOUS]] = -np.inf
        best = rivals.max(axis=1, initial=-np.inf)
        for action in actions:
            first, stop = max(0, clock.first(action.start)), min(clock.end(action.end), len(rows))
            if action.label in (BACKGROUND, AMBIGUOUS) or first >= stop:
                continue
            right = np.flatnonzero(rows[first:stop, column[action.label]] > best[first:stop])
            decided = clock.at(first + int(right[0]) + 1) - action.start if len(right) else np.inf
            delays[action.label].append(float(decided))

    def summary(values: Sequence[float]) -> dict[str, Any]:
        found = np.array([value for value in values if np.isfinite(value)])
        shown = found if len(found) else np.array([np.nan])
        return {
            "actions": len(values),
            "detected": len(found),
            "median": float(np.median(shown)),
            "mean": float(np.mean(shown)),
            "p90": float(np.percentile(shown, 90)),
        }

    per_class = {name: summary(values) for name, values in delays.items() if values}
    every = [value for values in delays.values() for value in values]
    return {**summary(every), "per_class": per_class, "seconds": sorted(v for v in every if np.isfinite(v))}


def confusion(scores: Videos, targets: Videos, classes: Sequence[str]) -> NDArray[np.int64]:
    """Return the confusion matrix (C, C): number of wrong chunks by class (row) and predicted class (column).

    A chunk is wrong if the predicted class is not active; it counts for each active class. Ambiguous chunks are
    excluded.
    """
    counts = np.zeros((len(classes), len(classes)), dtype=np.int64)
    for rows, video in zip(scores, targets, strict=True):
        on = np.asarray(video) > 0
        tops = predicted_classes(rows, classes)
        wrong = counted(on, classes) & ~on[np.arange(len(on)), tops]
        chunks, truth = np.nonzero(on & wrong[:, None])
        np.add.at(counts, (truth, tops[chunks]), 1)
    return counts


def chance(train_targets: Videos, n: int) -> NDArray[np.float32]:
    """Return constant baseline scores (n, C): the share of training chunks of each class.

    `train_targets` has an array (L, C) for each training video. Raises LstrError without training chunks.
    """
    if not sum(len(video) for video in train_targets):
        raise LstrError("The training subset has no chunks.", "use labels with a training subset.")
    prior = np.concatenate(list(train_targets)).mean(axis=0, dtype=np.float64).astype(np.float32)
    return np.tile(prior, (n, 1))


def time_prior(train_targets: Videos, length: int) -> NDArray[np.float32]:
    """Return baseline scores (length, C) that depend only on the time: how often each class is active at that chunk.

    Counts are averaged over 2 s on each side. The class prior has the weight of one additional video, so that it
    dominates where few training videos are long enough, and is the only term beyond the longest one.
    """
    prior = chance(train_targets, 1)[0]
    counts = np.zeros((length, len(prior) + 2))  # active videos by class, videos, and chunks
    counts[:, -1] = 1
    for video in train_targets:
        n = min(len(video), length)
        counts[:n, :-2] += video[:n] > 0
        counts[:n, -2] += 1
    total = np.concatenate([np.zeros((1, counts.shape[1])), np.cumsum(counts, axis=0)])
    chunk = np.arange(length)
    first, end = np.maximum(chunk - SMOOTHING_CHUNKS, 0), np.minimum(chunk + SMOOTHING_CHUNKS + 1, length)
    on, videos, weight = np.split(total[end] - total[first], [-2, -1], axis=1)
    return ((on + weight * prior) / (videos + weight)).astype(np.float32)

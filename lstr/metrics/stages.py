"""Average precision in each tenth of an action: how early a model knows it (De Geest et al. 2016; paper, table 4)."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import runs
from lstr.metrics.per_frame import Ranking, counted, mean_of, scored_columns

N_STAGES = 10


def per_stage(
    scores: Sequence[NDArray[np.floating]], targets: Sequence[NDArray[Any]], classes: Sequence[str]
) -> list[dict[str, Any]]:
    """For each tenth {"stage", "mAP", "mcAP", "per_class": {name: {"AP", "cAP", "positives"}}}, of arrays (L, C).

    A class keeps all chunks in which it is off, and of each uninterrupted run of chunks in which it is on those whose
    middle lies in that tenth of the run, so that each chunk counts in exactly one. Ambiguous chunks are left out. A
    class with no chunk in a tenth is not in that tenth's means, which are NaN when none is.
    """
    on = np.concatenate([np.asarray(video) for video in targets]) > 0
    stages = np.concatenate([_stage_of_chunks(np.asarray(video) > 0) for video in targets])
    keep = counted(on, classes)
    stages = stages[keep]
    rows = np.concatenate(list(scores))[keep]
    return _per_stage(rows, on[keep], classes, lambda column, stage: stages[:, column] == stage)


def _stage_of_chunks(on: NDArray[np.bool_]) -> NDArray[np.int8]:
    """Which tenth (L, C) of its run each chunk of on (L, C) is in."""
    stages = np.zeros(on.shape, dtype=np.int8)
    for column in range(on.shape[1]):
        for start, stop in runs(on[:, column]):
            middle = np.arange(stop - start) + 0.5
            stages[start:stop, column] = middle * N_STAGES / (stop - start)
    return stages


def published_per_stage(
    scores: NDArray[np.floating], targets: NDArray[Any], classes: Sequence[str]
) -> list[dict[str, Any]]:
    """The tenths of the published evaluation, of scores and targets (N, C) of all videos one after the other.

    There the last chunk of a run is in no tenth, every run gives at least one chunk to each, bounds are cut to whole
    chunks, and runs join where one video's last action meets the next one's first, or where only ambiguous chunks lie
    between two, for these are left out first.
    """
    on = np.asarray(targets) > 0
    keep = counted(on, classes)
    on = on[keep]

    def in_stage(column: int, stage: int) -> NDArray[np.bool_]:
        inside = np.zeros(len(on), dtype=bool)
        for start, stop in runs(on[:, column]):
            length = stop - 1 - start
            first = start + length * stage // N_STAGES
            inside[first : max(first + 1, start + length * (stage + 1) // N_STAGES)] = True
        return inside

    return _per_stage(np.asarray(scores)[keep], on, classes, in_stage)


def _per_stage(
    scores: NDArray[np.floating],
    on: NDArray[np.bool_],
    classes: Sequence[str],
    in_stage: Callable[[int, int], NDArray[np.bool_]],
) -> list[dict[str, Any]]:
    """The figures of each tenth, where `in_stage` says which chunks (N,) in which a class (column) is on are in it."""
    per_class: list[dict[str, dict[str, Any]]] = [{} for _ in range(N_STAGES)]
    for column, name in scored_columns(on, classes):
        ranking = Ranking(scores[:, column], on[:, column])
        for stage in range(N_STAGES):
            keep = ~on[:, column] | in_stage(column, stage)
            weights = keep[ranking.order].astype(np.int64)
            positives = int(weights[ranking.positive].sum())
            if positives:
                per_class[stage][name] = {
                    "AP": ranking.average_precision(weights),
                    "cAP": ranking.average_precision(weights, calibrated=True),
                    "positives": positives,
                }
    return [
        {
            "stage": f"{100 * stage // N_STAGES}-{100 * (stage + 1) // N_STAGES}%",
            "mAP": mean_of(entries, "AP"),
            "mcAP": mean_of(entries, "cAP"),
            "per_class": entries,
        }
        for stage, entries in enumerate(per_class)
    ]

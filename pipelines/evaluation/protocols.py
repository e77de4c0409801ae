"""Scores by the protocol of other code than the model's own, beside the standard number, and why the two differ."""

from typing import Any

import numpy as np

from lstr.metrics.scoring_rule import EVERY_CHUNK, TOAD_RULE, ScoringRule
from lstr.pipelines.evaluation.scoring import Evaluation, counted, means_of

PROTOCOLS: dict[str, ScoringRule] = {"toad": TOAD_RULE}
"""By the name that a command takes"""
WHY = {
    "toad": (
        "scores by TOAD's protocol are of {chunks} chunks in which an action is on, out of {all}: its loader leaves "
        "background out of the videos that are tested, so no false alarm on background is ranked against an action, "
        "and the number does not compare with others'."
    )
}


def measure_protocol(evaluation: Evaluation, name: str) -> dict[str, Any]:
    """What scores are worth by a protocol: mAP, mcAP and per_class, with videos, chunks and `why` they differ.

    The means are None where the protocol scores no chunk.
    """
    split, rule = evaluation.split, PROTOCOLS[name]
    scores, targets = counted(split, evaluation.scores, rule)
    n_all = sum(map(len, counted(split, evaluation.scores, EVERY_CHUNK)[0]))
    n_chunks = sum(map(len, scores))
    none: dict[str, Any] = {"mAP": None, "mcAP": None, "per_class": {}}
    return {
        "name": name,
        **(means_of(scores, targets, split.labels.classes) if n_chunks else none),
        "videos": int(np.count_nonzero([len(rows) for rows in scores])),
        "chunks": n_chunks,
        "why": WHY[name].format(chunks=n_chunks, all=n_all),
    }


def with_protocol(document: dict[str, Any], evaluation: Evaluation, name: str) -> dict[str, Any]:
    """The document of an evaluation with `protocol`, and the means of that among its `conventions`."""
    measured = measure_protocol(evaluation, name)
    row = {key: measured[key] for key in ("mAP", "mcAP", "videos", "chunks")}
    return {**document, "conventions": {**document["conventions"], name: row}, "protocol": measured}

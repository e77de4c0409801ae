"""Which chunks the published evaluation of a kind of model scores: the numbers of papers are not over the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lstr.config import WindowConfig
from lstr.labels.label_set import AMBIGUOUS


@dataclass(frozen=True)
class ScoringRule:
    """Which chunks the published evaluation of a kind scores, and what it makes of ambiguous ones.

    A kind states it as `Model.scoring_rule`, and `of` adds the lengths of one model. The rest is the same in all of
    that code: one AP a class over the chunks of all videos together, and the mean over the actions.
    """

    code: str
    """The name of the published code that has it"""
    chunks: Literal["every", "long videos", "whole windows", "after the first"]
    """every: of every video. long videos: those of videos that fill a work memory. whole windows: those that a whole
    work memory leads up to, with all chunks that the model predicts and one more after them. after the first: all but
    the first of a video."""
    ambiguous: Literal["ignored", "left out alone", "left out oldest", "negative"]
    """ignored: chunks labelled ambiguous are in no metric. left out alone: neither are those with that label and no
    other. left out oldest: neither are those whose work memory begins with one of these. negative: all are. Save for
    `ignored`, the chunks that stay do not have the label, and scores are a softmax without that class."""

    work_length: int = 1
    """Chunks of the model's work memory"""
    n_ahead: int = 0
    """Chunks ahead of the newest that the model predicts"""

    def of(self, config: WindowConfig) -> ScoringRule:
        """Return the rule with the lengths of a model."""
        return replace(self, work_length=config.work_length, n_ahead=config.n_ahead)

    def chosen(self, targets: NDArray[Any], classes: Sequence[str]) -> NDArray[np.bool_]:
        """Return which chunks (L,) of a video with multi-hot targets (L, C) have a place in the evaluation.

        `ignored` ambiguous chunks have one, and no part in `lstr.metrics.per_frame`.
        """
        length = len(targets)
        chunk = np.arange(length)
        if self.chunks == "long videos":
            keep = np.full(length, length >= self.work_length)
        elif self.chunks == "whole windows":
            keep = (chunk >= self.work_length - 1) & (chunk < length - 1 - self.n_ahead)
        else:
            keep = chunk >= (self.chunks == "after the first")
        if AMBIGUOUS in classes and self.ambiguous.startswith("left out"):
            on = np.asarray(targets) > 0
            alone = on[:, classes.index(AMBIGUOUS)] & (on.sum(axis=1) == 1)
            if self.ambiguous == "left out oldest":
                alone = np.concatenate([np.zeros(self.work_length - 1, dtype=bool), alone])[:length]
            keep &= ~alone
        return keep

    def labelled(self, targets: NDArray[Any], classes: Sequence[str]) -> NDArray[Any]:
        """Return the targets (L, C) as the evaluation takes them: without the ambiguous label, unless it is ignored."""
        if self.ambiguous == "ignored" or AMBIGUOUS not in classes:
            return targets
        return np.where(np.arange(len(classes)) == classes.index(AMBIGUOUS), 0, targets)

    def scored(self, scores: NDArray[np.floating], classes: Sequence[str]) -> NDArray[np.floating]:
        """Probabilities (L, C) as the evaluation takes them: of all classes but the ambiguous, unless it is ignored."""
        others = self.labelled(scores, classes)
        if others is scores:
            return scores
        return others / np.maximum(others.sum(axis=1, keepdims=True), np.finfo(others.dtype).tiny)


# The rule of the default evaluation, which is no published one
EVERY_CHUNK = ScoringRule("", "every", "ignored")
# LSTR's, which the code that grew from it has too, and which stands in where a kind's own is not known.
LSTR_RULE = ScoringRule("LSTR", "long videos", "ignored")

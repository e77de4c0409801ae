"""The chunks that the published evaluation of each kind of model scores, because papers score different chunks."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lstr.config import WindowConfig
from lstr.labels.label_set import AMBIGUOUS


@dataclass(frozen=True)
class ScoringRule:
    """The chunks that the published evaluation of a kind scores, and how it treats ambiguous chunks.

    A kind has it as `Model.scoring_rule`, and `of` adds the lengths of a model. The other rules are equal in all
    published code: one AP per class over the chunks of all videos together, and the mean over the actions.
    """

    code: str  # name of the published code with this rule
    chunks: Literal["every", "long videos", "whole windows", "after the first"]
    """every: all chunks. long videos: all chunks of videos that fill a work memory. whole windows: chunks at the end of
    a complete work memory, followed by all chunks that the model predicts and one more. after the first: all chunks
    except the first of each video."""
    ambiguous: Literal["ignored", "exclude alone", "exclude oldest", "negative"]
    """ignored: ambiguous chunks are in no metric. exclude alone: chunks with only the ambiguous label are excluded.
    exclude oldest: chunks are excluded if the first chunk of their work memory has only this label. negative: no chunk
    is excluded. Except for `ignored`, the other chunks lose this label, and scores are a softmax without this class."""

    work_length: int = 1  # number of chunks in the model's work memory
    n_ahead: int = 0  # number of future chunks that the model predicts

    def of(self, config: WindowConfig) -> "ScoringRule":
        """Return the rule with the lengths of a model's configuration."""
        return replace(self, work_length=config.work_length, n_ahead=config.n_ahead)

    def chosen(self, targets: NDArray[Any], classes: Sequence[str]) -> NDArray[np.bool_]:
        """Return which chunks (L,) of a video with multi-hot targets (L, C) are part of the evaluation.

        With `ignored`, ambiguous chunks are included here, and `lstr.metrics.per_frame` excludes them.
        """
        length = len(targets)
        chunk = np.arange(length)
        if self.chunks == "long videos":
            keep = np.full(length, length >= self.work_length)
        elif self.chunks == "whole windows":
            keep = (chunk >= self.work_length - 1) & (chunk < length - 1 - self.n_ahead)
        else:
            keep = chunk >= (self.chunks == "after the first")
        if AMBIGUOUS in classes and self.ambiguous.startswith("exclude"):
            on = np.asarray(targets) > 0
            alone = on[:, classes.index(AMBIGUOUS)] & (on.sum(axis=1) == 1)
            if self.ambiguous == "exclude oldest":
                alone = np.concatenate([np.zeros(self.work_length - 1, dtype=bool), alone])[:length]
            keep &= ~alone
        return keep

    def labelled(self, targets: NDArray[Any], classes: Sequence[str]) -> NDArray[Any]:
        """Return the targets (L, C) for the evaluation: without the ambiguous label, except with `ignored`."""
        if self.ambiguous == "ignored" or AMBIGUOUS not in classes:
            return targets
        return np.where(np.arange(len(classes)) == classes.index(AMBIGUOUS), 0, targets)

    def scored(self, scores: NDArray[np.floating], classes: Sequence[str]) -> NDArray[np.floating]:
        """Return the scores (L, C) for the evaluation: a softmax without the ambiguous class, except with `ignored`."""
        others = self.labelled(scores, classes)
        if others is scores:
            return scores
        return others / np.maximum(others.sum(axis=1, keepdims=True), np.finfo(others.dtype).tiny)


EVERY_CHUNK = ScoringRule("", "every", "ignored")  # the rule of the default evaluation, which is not a published one
# LSTR's rule, also of code that is derived from it; the default for kinds with an unknown rule.
LSTR_RULE = ScoringRule("LSTR", "long videos", "ignored")

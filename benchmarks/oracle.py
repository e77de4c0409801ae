"""The best that can be called from synthetic features, by how far back one looks, with the generator's own knowledge.

The evidence of a chunk is normal around a mean that its state decides, which the oracle knows. States are topics (the
action that a video is about) times what happens: background, the action, an ambiguous chunk, a cue. How states follow
each other is counted on the training videos, and taken to have no memory: that alone is not Bayes, for real actions do
not end by chance. The oracle of n chunks knows nothing of what lies further back; the difference of two is what a
longer memory can gain, a number before any model is run.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from synthetic_features import ACTIONS, AMBIGUOUS_COLUMN, Generator, pair_of, runs_of

from lstr.labels.label_set import THUMOS_CLASSES

BACK, ACT, AMB, CUED = range(4)
N = len(ACTIONS)
TOGETHER = 20_000  # chunks that are followed at once


class Oracle:
    """Forward filtering over topics and what happens; made from the training labels."""

    def __init__(self, generator: Generator, labels: Mapping[str, np.ndarray]):
        counts, topics, changes = np.full((4, 4), 1e-3), np.full(N, 1.0), 0
        for i, targets in enumerate(labels.values()):
            columns = targets.argmax(axis=1)
            happening = np.select([np.isin(columns, ACTIONS), columns == AMBIGUOUS_COLUMN], [ACT, AMB], BACK)
            happening[generator.cues(columns, np.random.default_rng(i)) != 0] = CUED
            np.add.at(counts, (happening[:-1], happening[1:]), 1)
            actions = [column for _, _, column in runs_of(columns) if column in ACTIONS]
            np.add.at(topics, np.array(actions, int) - ACTIONS[0], 1)
            changes += int(np.count_nonzero(np.diff(actions)))
        self.step = counts / counts.sum(axis=1, keepdims=True)  # (4, 4)
        self.topics = topics / topics.sum()
        self.change = changes / counts[BACK].sum()  # of topic, in a chunk of background
        shares = counts.sum(axis=1) / counts.sum()
        self.prior = np.outer(self.topics, shares).astype(np.float32)  # (N, 4)
        self.means = self._means(generator)

    def _means(self, generator: Generator) -> np.ndarray:
        """Mean evidence of each state (N, 4, RANK)."""
        means = []
        for action in ACTIONS:
            columns = np.array([0, action, AMBIGUOUS_COLUMN, 0])
            means.append(generator.means(columns, np.array([0, 0, 0, pair_of(action)[1]])))
        return np.stack(means)

    def likelihoods(self, evidence: np.ndarray) -> np.ndarray:
        """Of each state for chunks (T, RANK), up to a factor of each chunk: (T, N, 4)."""
        logs = np.einsum("tr,nsr->tns", evidence, self.means, optimize=True) - (self.means**2).sum(-1) / 2
        return np.exp(logs - logs.max(axis=(1, 2), keepdims=True), dtype=np.float32)

    def follow(self, beliefs: np.ndarray, likelihoods: np.ndarray) -> np.ndarray:
        """Beliefs (B, N, 4) one chunk on, given what is likely there (B, N, 4)."""
        moved = beliefs @ self.step.astype(np.float32)
        leaving = self.change * moved[..., BACK]
        moved[..., BACK] += leaving.sum(1, keepdims=True) * self.topics.astype(np.float32) - leaving
        moved *= likelihoods
        return moved / moved.sum(axis=(1, 2), keepdims=True)

    def scores(self, evidence: Sequence[np.ndarray], n: int | None) -> list[np.ndarray]:
        """Probabilities (L, 22) of videos' chunks from the last n chunks alone, or from all so far where n is None."""
        likely = [self.likelihoods(rows) for rows in evidence]
        beliefs = self._all_so_far(likely) if n is None else [self._last(rows, n) for rows in likely]
        return [scores_of(rows) for rows in beliefs]

    def _all_so_far(self, likely: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Beliefs (L, N, 4) of all videos, followed side by side."""
        found: list[list[np.ndarray]] = [[] for _ in likely]
        now = np.broadcast_to(self.prior, (len(likely), N, 4))
        for t in range(max(map(len, likely))):
            on = [i for i, rows in enumerate(likely) if t < len(rows)]
            now = now.copy()
            now[on] = self.follow(now[on], np.stack([likely[i][t] for i in on]))
            for i in on:
                found[i].append(now[i])
        return [np.stack(rows) for rows in found]

    def _last(self, likely: np.ndarray, n: int) -> np.ndarray:
        """Beliefs (L, N, 4) of one video, each from its last n chunks, or from fewer where there are fewer."""
        found = []
        for first in range(0, len(likely), TOGETHER):
            ends = np.arange(first, min(first + TOGETHER, len(likely)))
            now = np.broadcast_to(self.prior, (len(ends), N, 4)).copy()
            for back in range(n - 1, -1, -1):
                at = ends - back
                there = at >= 0
                now[there] = self.follow(now[there], likely[at[there]])
            found.append(now)
        return np.concatenate(found)


def scores_of(beliefs: np.ndarray) -> np.ndarray:
    """Class probabilities (T, 22) of beliefs (T, N, 4); a cue is background."""
    scores = np.zeros((len(beliefs), len(THUMOS_CLASSES)), np.float32)
    scores[:, 0] = beliefs[..., BACK].sum(1) + beliefs[..., CUED].sum(1)
    scores[:, ACTIONS] = beliefs[..., ACT]
    scores[:, AMBIGUOUS_COLUMN] = beliefs[..., AMB].sum(1)
    return scores

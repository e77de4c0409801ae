"""A teller taught on scores of videos by models that lacked them: few weights, many chunks, the same each time."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import FEATURES_PER_SECOND
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, VideoLabels, targets
from lstr.labels.segment import Segment
from lstr.pipelines.thresholds.by_actions import Scored
from lstr.teller import INPUTS, LONGEST, Floats, Teller, inputs_of_video, logit

HIDDEN = 4
DECAY = 1e-4  # of the squared weights, beside the mean loss of a chunk
STEPS = 150
MOST_ROWS = 60_000
"""Chunks of actions that it is taught on, at most: of more a sample, in which those that may be told count"""
HARD = 0.05
"""A highest score of the last 2 s from which on an action may be told"""
OF_HARD = 2 / 3  # of MOST_ROWS
SEED = 0
HIGHEST = INPUTS.index("highest of 8")
LENGTH, SHARE = INPUTS.index("candidate's length"), INPUTS.index("candidate's share of a typical length")
LONE = 1.0  # second: what an action without a label is taken to last


class TellerData:
    """What tellers of some videos see, and should say; worked out once for all of them, but for typical lengths, which
    are those of the videos that a teller is taught on."""

    def __init__(self, videos: Sequence[Scored], classes: Sequence[str]):
        self.classes = tuple(classes)
        self.columns = [c for c, label in enumerate(classes) if label not in (BACKGROUND, AMBIGUOUS)]
        self._truth = [video.truth for video in videos]
        self._rows = [self._of(video) for video in videos]

    def _of(self, video: Scored) -> tuple[Floats, NDArray[np.bool_], NDArray[np.bool_]]:
        """Inputs (L, A, INPUTS), which actions are on (L, A), and the chunks that are not ambiguous (L,)."""
        labels = VideoLabels("", None, tuple(video.truth))
        known = tuple(dict.fromkeys((*self.classes, BACKGROUND, AMBIGUOUS)))
        rows = targets(labels, known, len(video.scores)) > 0
        clear = ~rows[:, known.index(AMBIGUOUS)]
        a_chunk = dict.fromkeys((self.classes[c] for c in self.columns), 1.0)
        return inputs_of_video(video.scores, self.classes, a_chunk), rows[:, self.columns], clear

    def _inputs(self, place: int, lengths: Mapping[str, float]) -> Floats:
        """Inputs (L, A, INPUTS) of the video at a place, where actions typically last so many chunks."""
        inputs = self._rows[place][0].copy()
        typical = np.array([lengths[self.classes[c]] for c in self.columns])
        inputs[..., SHARE] = np.minimum(np.rint(np.expm1(inputs[..., LENGTH])) / typical, LONGEST)
        return inputs

    def teach(self, places: Sequence[int]) -> Teller:
        """A teller of the videos at these places."""
        lengths = typical_lengths([self._truth[place] for place in places], self.classes)
        rows = [(self._inputs(place, lengths), *self._rows[place][1:]) for place in places]
        inputs = np.concatenate([inputs[clear].reshape(-1, len(INPUTS)) for inputs, _, clear in rows])
        wanted = np.concatenate([on[clear].ravel() for _, on, clear in rows])
        return Teller(lengths, *_fit(*_sample(inputs, wanted)))

    def told(self, teller: Teller, place: int, scores: NDArray[np.floating]) -> NDArray[np.float32]:
        """The scores (L, C) of the video at a place with the teller's probabilities in their place."""
        result = np.array(scores, dtype=np.float32)
        result[:, self.columns] = teller.probability(self._inputs(place, teller.lengths))
        return result


def typical_lengths(truth: Sequence[Sequence[Segment]], classes: Sequence[str]) -> dict[str, float]:
    """The median length of each action in chunks; of one without a label that of all, or of a second."""
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    lengths = {label: [s.end - s.start for video in truth for s in video if s.label == label] for label in actions}
    every = [length for some in lengths.values() for length in some] or [LONE]
    shortest = 1 / FEATURES_PER_SECOND
    return {
        label: FEATURES_PER_SECOND * max(shortest, float(np.median(some or every))) for label, some in lengths.items()
    }


def _sample(inputs: Floats, wanted: NDArray[np.bool_]) -> tuple[Floats, NDArray[np.bool_], Floats]:
    """Inputs (N, INPUTS), what is wanted (N,) and weights (N,), of MOST_ROWS where there are more."""
    if len(wanted) <= MOST_ROWS:
        return inputs, wanted, np.ones(len(wanted))
    random, hard = np.random.default_rng(SEED), wanted | (inputs[:, HIGHEST] > logit(np.array(HARD)))
    taken, weights = [], []
    for rows, most in ((np.flatnonzero(hard), OF_HARD), (np.flatnonzero(~hard), 1 - OF_HARD)):
        n = min(len(rows), round(most * MOST_ROWS))
        taken.append(random.choice(rows, n, replace=False))
        weights.append(np.full(n, len(rows) / max(1, n)))
    places = np.concatenate(taken)
    return inputs[places], wanted[places], np.concatenate(weights)


def _fit(inputs: Floats, wanted: NDArray[np.bool_], weights: Floats) -> tuple[Floats, Floats]:
    """The weights of the hidden layer and of the output with the least cross entropy."""
    from scipy.optimize import minimize
    from threadpoolctl import threadpool_limits  # of scikit-learn

    share = weights / weights.sum()
    mean = share @ inputs
    std = np.sqrt(share @ (inputs - mean) ** 2) + 1e-3
    rows = np.column_stack([(inputs - mean) / std, np.ones(len(inputs))])
    n_inputs, random = rows.shape[1], np.random.default_rng(SEED)
    edge = HIDDEN * n_inputs

    def loss(flat: Floats) -> tuple[float, Floats]:
        hidden, output = flat[:edge].reshape(HIDDEN, n_inputs), flat[edge:]
        inside = np.tanh(rows @ hidden.T)
        logits = inside @ output[:-1] + output[-1]
        value = float(share @ (np.logaddexp(0, logits) - wanted * logits))
        off = share * (1 / (1 + np.exp(-np.clip(logits, -30, 30))) - wanted)
        of_hidden = (np.outer(off, output[:-1]) * (1 - inside**2)).T @ rows
        slope = np.concatenate([of_hidden.ravel(), inside.T @ off, [off.sum()]])
        free = np.append(flat[:-1], 0.0)  # the last bias is not held down
        return value + DECAY * float(free @ free), slope + 2 * DECAY * free

    start = np.append(random.normal(0, 0.3, edge + HIDDEN), 0.0)
    with threadpool_limits(1):  # products this small take longer by several threads, much longer on a busy machine
        flat = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": STEPS}).x
    hidden = flat[:edge].reshape(HIDDEN, n_inputs).copy()
    hidden[:, -1] -= hidden[:, :-1] @ (mean / std)
    hidden[:, :-1] /= std
    return hidden, flat[edge:]

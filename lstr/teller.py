"""A learnt 'tell it or not': a small network over an action's recent scores that decides beside the hysteresis rule."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RECENT = 8
"""Chunks, 2 s, that means and highest scores look back on"""
LIKELY = 0.2
"""A score from which on an action is a candidate"""
EDGE = 1e-3
"""Scores nearer to 0 and 1 are taken for this"""
LONGEST = 3.0
"""Typical lengths after which a candidate counts as no longer"""
FORGET = 8.0
"""Chunks in which the end of a candidate is forgotten, but for 1/e"""
INPUTS = (
    "score",
    "mean of 2",
    "mean of 4",
    "mean of 8",
    "rise",
    "highest of 8",
    "rival",
    "rival's mean of 4",
    "background's mean of 4",
    "is a candidate",
    "candidate's length",
    "candidate's share of a typical length",
    "candidate's mean",
    "candidate's highest",
    "since a candidate",
)
"""What the network sees of each action at each chunk"""


@dataclass(frozen=True)
class Heard:
    """What a teller remembers of a stream; arrays of A actions."""

    recent: Floats
    """(RECENT, A + 1) scores, background's last, the newest at the end; zeros before the stream"""
    chunks: int
    """How many were heard"""
    length: Floats
    """(A,) chunks of the candidate that each action is; 0 where it is none"""
    total: Floats
    """(A,) the sum of the candidate's scores"""
    highest: Floats
    """(A,) the highest of the candidate's scores"""
    since: Floats
    """(A,) 1 where a candidate has just ended, fading to 0"""


@dataclass(frozen=True, eq=False)
class Teller:
    """Scores to the probability that an action is on and should be told, causally.

    The network is one for all actions: a hidden layer over INPUTS. Nothing it sees is of a later chunk.
    """

    lengths: Mapping[str, float]
    """Chunks that each action it tells of typically lasts"""
    hidden: Floats
    """(H, INPUTS + 1) with the bias last"""
    output: Floats
    """(H + 1,) with the bias last"""

    def probability(self, inputs: Floats) -> Floats:
        """The probabilities (..., A) of inputs (..., A, INPUTS)."""
        inside = np.tanh(inputs @ self.hidden[:, :-1].T + self.hidden[:, -1])
        logits = np.clip(inside @ self.output[:-1] + self.output[-1], -30, 30)
        return np.asarray(1 / (1 + np.exp(-logits)))

    def told(self, scores: NDArray[np.floating], classes: Sequence[str]) -> NDArray[np.float32]:
        """Scores (L, C) of a whole video with its probabilities in their place, as a stream gives them."""
        result = np.array(scores, dtype=np.float32)
        result[:, columns_of(self, classes)] = self.probability(inputs_of_video(scores, classes, self.lengths))
        return result

    def stored(self) -> dict[str, Any]:
        """The values that a checkpoint carries."""
        return {"lengths": dict(self.lengths), "hidden": self.hidden.tolist(), "output": self.output.tolist()}

    @staticmethod
    def from_stored(stored: Mapping[str, Any]) -> Teller:
        """The teller that a checkpoint carries."""
        arrays = (np.asarray(stored[name], dtype=np.float64) for name in ("hidden", "output"))
        return Teller(dict(stored["lengths"]), *arrays)


class Rule(Protocol):
    """What begins and ends an action on a curve: `lstr.timeline.Thresholds`, which imports this file."""

    def stored(self) -> dict[str, Any]: ...


OfClass = TypeVar("OfClass", bound=Rule)


@dataclass(frozen=True, eq=False)
class LearntRules(Mapping[str, OfClass]):
    """Rules by class, and beside them a teller, which decides in their place.

    As a mapping it is the rules of the scores themselves, for whatever shows or proposes by these.
    """

    rules: Mapping[str, OfClass]
    teller: Teller
    thresholds: Mapping[str, OfClass]
    """Rules of the teller's probabilities, for each action that it decides on"""

    def __getitem__(self, label: str) -> OfClass:
        return self.rules[label]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rules)

    def __len__(self) -> int:
        return len(self.rules)

    def ruled(self, others: Mapping[str, OfClass]) -> LearntRules[OfClass]:
        """The same, but for actions that other rules of the scores decide on."""
        thresholds = {label: rule for label, rule in self.thresholds.items() if label not in others}
        return LearntRules({**self.rules, **others}, self.teller, thresholds)

    def stored(self) -> dict[str, Any]:
        """The values that a checkpoint carries beside the rules."""
        thresholds = {label: rule.stored() for label, rule in self.thresholds.items()}
        return {**self.teller.stored(), "thresholds": thresholds}


class Listener:
    """A stream as a teller hears it; `heard` is all that it remembers, and may be kept and put back."""

    def __init__(self, teller: Teller, classes: Sequence[str]):
        self._teller, self._columns = teller, columns_of(teller, classes)
        self._typical = np.array([teller.lengths[classes[c]] for c in self._columns])
        self.heard = nothing_heard(len(self._columns))

    def push(self, scores: NDArray[np.floating]) -> NDArray[np.floating]:
        """The scores (C,) of a chunk with the teller's probabilities in the place of those that it tells of."""
        told = np.array(scores, dtype=np.float64)
        self.heard = listen(self.heard, told[self._columns])
        told[self._columns] = self._teller.probability(inputs_of(self.heard, self._typical))
        return told

    def begin(self) -> None:
        """Forget all, as where a stream has lost chunks."""
        self.heard = nothing_heard(len(self._columns))


def columns_of(teller: Teller, classes: Sequence[str]) -> list[int]:
    """The places among the classes of the actions that a teller tells of."""
    return [c for c, label in enumerate(classes) if label in teller.lengths]


def nothing_heard(n_actions: int) -> Heard:
    """What is remembered of a stream that begins."""
    zeros = np.zeros(n_actions)
    return Heard(np.zeros((RECENT, n_actions + 1)), 0, zeros, zeros, zeros, zeros)


def listen(heard: Heard, scores: Floats) -> Heard:
    """What is remembered after a chunk with the actions' scores (A,)."""
    row = np.append(scores, max(0.0, 1 - scores.sum()))
    on = scores >= LIKELY
    ended = ~on & (heard.length > 0)
    return Heard(
        np.concatenate([heard.recent[1:], row[None]]),
        heard.chunks + 1,
        np.where(on, heard.length + 1, 0.0),
        np.where(on, heard.total + scores, 0.0),
        np.where(on, np.maximum(heard.highest, scores), 0.0),
        np.where(ended, 1.0, heard.since * math.exp(-1 / FORGET)),
    )


def inputs_of(heard: Heard, typical: Floats) -> Floats:
    """What the network sees of each action (A, INPUTS); `typical` (A,) are lengths in chunks."""
    n = min(heard.chunks, RECENT)
    recent = heard.recent[:, :-1]
    means = {k: heard.recent[-k:].sum(axis=0) / max(1, min(n, k)) for k in (2, 4, RECENT)}
    now, four = recent[-1], means[4][:-1]
    before = recent[-4:-1].sum(axis=0) / max(1, min(n - 1, 3))
    number = np.maximum(heard.length, 1)
    return np.stack(
        [
            logit(now),
            logit(means[2][:-1]),
            logit(four),
            logit(means[RECENT][:-1]),
            now - before,
            logit(recent.max(axis=0)),
            logit(_rival(now)),
            logit(_rival(four)),
            np.full(len(now), logit(means[4][-1:])[0]),
            (heard.length > 0).astype(np.float64),
            np.log1p(heard.length),
            np.minimum(heard.length / typical, LONGEST),
            heard.total / number,
            heard.highest,
            heard.since,
        ],
        axis=1,
    )


def inputs_of_video(scores: NDArray[np.floating], classes: Sequence[str], lengths: Mapping[str, float]) -> Floats:
    """What the network sees of each chunk and action (L, A, INPUTS) of a video with scores (L, C)."""
    columns = [c for c, label in enumerate(classes) if label in lengths]
    typical = np.array([lengths[classes[c]] for c in columns])
    heard = nothing_heard(len(columns))
    rows = []
    for row in np.asarray(scores, dtype=np.float64)[:, columns]:
        heard = listen(heard, row)
        rows.append(inputs_of(heard, typical))
    return np.stack(rows) if rows else np.zeros((0, len(columns), len(INPUTS)))


def logit(p: Floats) -> Floats:
    """The log odds of probabilities, those near 0 and 1 aside."""
    inside = np.clip(p, EDGE, 1 - EDGE)
    return np.asarray(np.log(inside / (1 - inside)))


def _rival(scores: Floats) -> Floats:
    """The highest of the others' (A,); 0 where there is none."""
    if len(scores) < 2:
        return np.zeros(len(scores))
    second, first = np.partition(scores, -2)[-2:]
    result = np.full(len(scores), first)
    result[int(scores.argmax())] = second
    return result

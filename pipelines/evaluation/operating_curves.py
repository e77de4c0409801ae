"""How many actions are found for how many false alarms: scores decided with many thresholds, and the best of them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, runs
from lstr.labels.segment import Segment
from lstr.metrics.actions import find, is_ambiguous, labelled_spans, spans_of
from lstr.pipelines.evaluation.thresholds_by_actions import GAPS, LENGTHS, are_apart
from lstr.pipelines.evaluation.thresholds_by_chunks import curves_of, detect_spans
from lstr.timeline import DEFAULT, Thresholds

# Scores tried as `on`: those that a person would type
LEVELS = tuple(round(0.02 * k, 2) for k in range(1, 50))
# `off` as a share of `on`
OFF_SHARE = DEFAULT.off / DEFAULT.on
# With fewer labels than this a class has no threshold of its own
FEW_LABELS = 5
# Share of the actions it can find that a class keeps, where the videos are too short to show the number aimed at
KEPT = 0.5

# There, by how many more labels a high `on` is drawn down to the default one
PRIOR_LABELS = 10


@dataclass(frozen=True)
class Sweep:
    """Labels found and false alarms of each class (C,) at each of LEVELS, in some hours of video."""

    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    found: NDArray[np.int64]
    """(C, len(LEVELS)), as `false_alarms`"""
    false_alarms: NDArray[np.int64]
    hours: float


def sweep(
    scores: Sequence[np.ndarray],
    truth: Sequence[Sequence[Segment]],
    classes: Sequence[str],
    rules: Thresholds | Mapping[str, Thresholds] = DEFAULT,
    clock: Clock = CLOCK,
) -> Sweep:
    """Decide scores (L, C) of each video with every level; lengths and gaps stay as `rules` has them."""
    actions = tuple(label for label in classes if label not in (BACKGROUND, AMBIGUOUS))
    columns = [classes.index(label) for label in actions]
    labels = np.zeros(len(actions), dtype=np.int64)
    found, false = (np.zeros((len(actions), len(LEVELS)), dtype=np.int64) for _ in range(2))
    for rows, segments in zip(scores, truth, strict=True):
        ambiguous, seconds = spans_of(segments, AMBIGUOUS), clock.at(len(rows))
        for c, label in enumerate(actions):
            own = rules if isinstance(rules, Thresholds) else rules.get(label, DEFAULT)
            curve = curves_of(rows, columns, own.highest)[:, c]
            labelled = labelled_spans(segments, label, seconds)
            labels[c] += len(labelled)
            for k, on in enumerate(LEVELS):
                if not len(curve) or curve.max() < on:
                    break
                detected = detect_spans(curve, at_level(on, own), clock)
                pairs = find(labelled, detected)
                alone = np.delete(detected, pairs[:, 1], axis=0)
                found[c, k] += len(pairs)
                false[c, k] += np.count_nonzero(~is_ambiguous(alone, ambiguous))
    return Sweep(actions, labels, found, false, clock.length(sum(map(len, scores))) / 3600)


def at_level(on: float, rules: Thresholds = DEFAULT) -> Thresholds:
    """The same rules with another `on`, and `off` at its usual share of it."""
    return replace(rules, on=on, off=round(on * OFF_SHARE, 4))


def describe_curves(swept: Sweep) -> dict[str, Any]:
    """Recall against false alarms an hour as JSON: a point for each level, of all classes together and of each.

    In a point of `together` every class has the same `on`. What has nothing to divide by is None.
    """

    def points(labels: int, found: NDArray[np.int64], false: NDArray[np.int64]) -> list[dict[str, Any]]:
        return [
            {
                "on": on,
                "off": at_level(on).off,
                "recall": float(found[k] / labels) if labels else None,
                "false_alarms_per_hour": float(false[k] / swept.hours) if swept.hours else None,
            }
            for k, on in enumerate(LEVELS)
        ]

    return {
        "together": points(int(swept.labels.sum()), swept.found.sum(axis=0), swept.false_alarms.sum(axis=0)),
        "per_class": {
            label: points(int(swept.labels[c]), swept.found[c], swept.false_alarms[c])
            for c, label in enumerate(swept.classes)
        },
    }


def choose_levels(swept: Sweep, per_hour: float) -> dict[str, float]:
    """The `on` of each class with which most labels are found for at most so many false alarms an hour, all classes
    together; where even the fewest are more, those.

    Classes with fewer than FEW_LABELS labels share one `on`. Of neighbouring levels that give the same, the middle
    one is chosen. Where the videos are too short for a single false alarm (`per_hour` times hours is below 1), no class
    is silenced for the sake of one: it keeps at least half of the labels that it finds at its best level, and its `on`
    above the default one is drawn to that, the more the fewer labels it has.
    """
    own = [c for c, labels in enumerate(swept.labels) if labels >= FEW_LABELS]
    rest = [c for c in range(len(swept.classes)) if c not in own]
    groups = [[c] for c in own] + ([rest] if rest else [])
    budget = per_hour * swept.hours
    short = budget < 1
    options = []
    for group in groups:
        found, false = swept.found[group].sum(axis=0), swept.false_alarms[group].sum(axis=0)
        least = math.ceil(KEPT * found.max()) if short else 0
        options.append(_efficient(found, false, least))
    chosen = _fill(options, math.floor(budget + 1e-9))
    result: dict[str, float] = {}
    for group, k in zip(groups, chosen, strict=True):
        labels = int(swept.labels[group].sum())
        drawn = (labels * LEVELS[k] + PRIOR_LABELS * DEFAULT.on) / (labels + PRIOR_LABELS)
        result |= {swept.classes[c]: round(min(drawn, LEVELS[k]), 2) if short else LEVELS[k] for c in group}
    return {label: result[label] for label in swept.classes}


def choose_within(
    scores: Sequence[np.ndarray],
    truth: Sequence[Sequence[Segment]],
    classes: Sequence[str],
    per_hour: float,
    clock: Clock = CLOCK,
) -> dict[str, Thresholds]:
    """The thresholds of each class with which most labels are found for at most so many false alarms an hour.

    For each minimum length and gap, one for all classes, `choose_levels` gives each class its `on`. Of those that find
    at least half of what the best finds, the one with fewest false alarms beyond the number is taken, then the one that
    finds most, then the one that delays least. Where actions never happen together only the highest of them is on.
    """
    highest = are_apart(truth, clock)
    tried: list[tuple[int, int, float, dict[str, Thresholds]]] = []
    for length, gap in product(LENGTHS, GAPS):
        base = Thresholds(min_length=length, merge_gap=gap, highest=highest)
        swept = sweep(scores, truth, classes, base, clock)
        rules = {label: at_level(on, base) for label, on in choose_levels(swept, per_hour).items()}
        places = [min(range(len(LEVELS)), key=lambda k: abs(LEVELS[k] - rules[label].on)) for label in swept.classes]
        found = sum(int(swept.found[c, k]) for c, k in enumerate(places))
        false = sum(int(swept.false_alarms[c, k]) for c, k in enumerate(places))
        delays = base.delays(clock)
        beyond = max(0, false - math.floor(per_hour * swept.hours + 1e-9))
        tried.append((beyond, -found, delays["started"] + delays["ended"] / 2, rules))
    most = max(-found for _, found, _, _ in tried)
    return min((one for one in tried if -one[1] >= KEPT * most), key=lambda one: one[:3])[3]


def _efficient(found: NDArray[np.int64], false: NDArray[np.int64], least: int) -> list[tuple[int, int, int]]:
    """(false alarms, labels found, level) of the levels worth a choice: more false alarms find more labels."""
    efficient: list[tuple[int, int, int]] = []
    allowed = found >= least
    for alarms in sorted({*false[allowed].tolist()}):
        most = int(found[allowed & (false == alarms)].max())
        if not efficient or most > efficient[-1][1]:
            first, stop = max(runs((false == alarms) & (found == most)), key=lambda run: run[1] - run[0])
            efficient.append((alarms, most, (first + stop - 1) // 2))  # the middle of the longest run of levels
    return efficient


def _fill(options: Sequence[Sequence[tuple[int, int, int]]], budget: int) -> list[int]:
    """The level of each group with which most is found within a budget of false alarms (a knapsack, exactly)."""
    fewest, most = sum(one[0][0] for one in options), sum(one[-1][0] for one in options)
    size = min(max(budget, fewest), most) + 1
    best = np.full(size, -1, dtype=np.int64)  # labels found for exactly so many false alarms; -1: not to be had
    best[0] = 0
    taken = []
    for one in options:
        better, pick = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.int64)
        for place, (alarms, found, _) in enumerate(one):
            before = best[: max(0, size - alarms)]
            value = np.full(size, -1, dtype=np.int64)
            value[size - len(before) :] = np.where(before >= 0, before + found, -1)
            pick[value > better], better = place, np.maximum(value, better)
        best = better
        taken.append(pick)
    left, levels = int(best.argmax()), []  # the first of the best: the fewest false alarms
    for one, pick in zip(reversed(options), reversed(taken), strict=True):
        alarms, _, level = one[pick[left]]
        levels.append(level)
        left -= alarms
    return levels[::-1]

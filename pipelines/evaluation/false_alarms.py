"""How many actions are found for how many false alarms: scores decided with many thresholds, and the best of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, runs
from lstr.metrics.actions import length_text
from lstr.metrics.intervals import interval_text, rate_interval
from lstr.pipelines.evaluation.thresholds import DETECTIONS, FOUND, GAPS, LABELS, LENGTHS, Scored, are_apart, count
from lstr.timeline import DEFAULT, Thresholds

# Start thresholds that are tried: those that a person would type
LEVELS = tuple(round(0.02 * k, 2) for k in range(1, 50))
# The end threshold as a share of the start threshold
OFF_SHARE = DEFAULT.off / DEFAULT.on
# With fewer labels than this a class has no threshold of its own
FEW_LABELS = 5
# Share of the actions it can find that a class keeps, if the videos are too short to show the rate aimed at
KEPT = 0.5
# Then a high start threshold is drawn down to the default one as by this many labels
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
    videos: Sequence[Scored],
    classes: Sequence[str],
    rules: Thresholds | Mapping[str, Thresholds] = DEFAULT,
    clock: Clock = CLOCK,
) -> Sweep:
    """Decide the scores of each video with every level; lengths and gaps stay as in `rules`."""
    actions = tuple(label for label in classes if label not in (BACKGROUND, AMBIGUOUS))
    own = {label: rules if isinstance(rules, Thresholds) else rules.get(label, DEFAULT) for label in actions}
    tried = {label: [at_level(on, own[label]) for on in LEVELS] for label in actions}
    counts = count(videos, classes, tried, clock)
    labels, detections, found = (counts[..., which].T for which in (LABELS, DETECTIONS, FOUND))
    hours = clock.length(sum(len(video.scores) for video in videos)) / 3600
    return Sweep(actions, labels.max(axis=1, initial=0), found, detections - found, hours)


def at_level(on: float, rules: Thresholds = DEFAULT) -> Thresholds:
    """Return the same rules with another start threshold, and the end threshold at its usual share of it."""
    return replace(rules, on=on, off=round(on * OFF_SHARE, 4))


def describe_curves(swept: Sweep) -> dict[str, Any]:
    """Return recall against false alarms per hour as JSON: a point for each level, of all classes and of each.

    In a point of `together` every class has the same start threshold. A figure with nothing to divide by is None.
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


def choose_within(
    videos: Sequence[Scored], classes: Sequence[str], per_hour: float, clock: Clock = CLOCK
) -> dict[str, Thresholds]:
    """Return the thresholds of each class that find the most labels with at most this many false alarms per hour.

    For each minimum length and gap, the same for all classes, `choose_levels` gives each class its start threshold. Of
    those that find at least half of what the best finds, the one with the fewest false alarms beyond the number is
    taken, then the one that finds most, then the one that delays least. If actions never happen together, only the
    highest of them is active.
    """
    highest = are_apart([video.truth for video in videos], clock)
    tried: list[tuple[int, int, float, dict[str, Thresholds]]] = []
    for length, gap in product(LENGTHS, GAPS):
        base = Thresholds(min_length=length, merge_gap=gap, highest=highest)
        swept = sweep(videos, classes, base, clock)
        rules = {label: at_level(on, base) for label, on in choose_levels(swept, per_hour).items()}
        places = [min(range(len(LEVELS)), key=lambda k: abs(LEVELS[k] - rules[label].on)) for label in swept.classes]
        found = sum(int(swept.found[c, k]) for c, k in enumerate(places))
        false = sum(int(swept.false_alarms[c, k]) for c, k in enumerate(places))
        delays = base.delays(clock)
        beyond = max(0, false - math.floor(per_hour * swept.hours + 1e-9))
        tried.append((beyond, -found, delays["started"] + delays["ended"] / 2, rules))
    most = max(-found for _, found, _, _ in tried)
    return min((one for one in tried if -one[1] >= KEPT * most), key=lambda one: one[:3])[3]


def choose_levels(swept: Sweep, per_hour: float) -> dict[str, float]:
    """Return the start threshold of each class that finds the most labels within a rate of false alarms.

    The rate is of all classes together; if even the fewest false alarms are more, those are taken. Classes with fewer
    than FEW_LABELS labels share one threshold. Of neighbouring levels that give the same, the middle one is chosen. If
    the videos are too short for a single false alarm (`per_hour` times hours is below 1), no class is silenced because
    of one: it keeps at least half of the labels that it finds at its best level, and its threshold is drawn down to the
    default one, the more the fewer labels it has.
    """
    own = [c for c, labels in enumerate(swept.labels) if labels >= FEW_LABELS]
    rest = [c for c in range(len(swept.classes)) if c not in own]
    groups = [[c] for c in own] + ([rest] if rest else [])
    budget = per_hour * swept.hours
    is_short = budget < 1
    options = []
    for group in groups:
        found, false = swept.found[group].sum(axis=0), swept.false_alarms[group].sum(axis=0)
        options.append(_efficient(found, false, math.ceil(KEPT * found.max()) if is_short else 0))
    result: dict[str, float] = {}
    for group, k in zip(groups, _fill(options, math.floor(budget + 1e-9)), strict=True):
        labels = int(swept.labels[group].sum())
        drawn = (labels * LEVELS[k] + PRIOR_LABELS * DEFAULT.on) / (labels + PRIOR_LABELS)
        result |= {swept.classes[c]: round(min(drawn, LEVELS[k]), 2) if is_short else LEVELS[k] for c in group}
    return {label: result[label] for label in swept.classes}


def _efficient(found: NDArray[np.int64], false: NDArray[np.int64], least: int) -> list[tuple[int, int, int]]:
    """Return (false alarms, labels found, level) of the levels worth a choice: more false alarms find more labels."""
    efficient: list[tuple[int, int, int]] = []
    allowed = found >= least
    for alarms in sorted({*false[allowed].tolist()}):
        most = int(found[allowed & (false == alarms)].max())
        if not efficient or most > efficient[-1][1]:
            first, stop = max(runs((false == alarms) & (found == most)), key=lambda run: run[1] - run[0])
            efficient.append((alarms, most, (first + stop - 1) // 2))  # the middle of the longest run of levels
    return efficient


def _fill(options: Sequence[Sequence[tuple[int, int, int]]], budget: int) -> list[int]:
    """Return the level of each group that finds the most within a budget of false alarms (a knapsack, exactly)."""
    fewest, most = sum(one[0][0] for one in options), sum(one[-1][0] for one in options)
    size = min(max(budget, fewest), most) + 1
    best = np.full(size, -1, dtype=np.int64)  # labels found for exactly this many false alarms; -1: not possible
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


def doubts(events: dict[str, Any], false_alarms: float) -> Iterator[str]:
    """Yield warnings about thresholds that aim at a rate of false alarms, by what they gave on their videos."""
    hours, rate = events["hours"], events["together"]["false_alarms_per_hour"]
    if rate is not None and rate > false_alarms:
        yield f"{rate:.3g} false alarms an hour remain on these videos; the aim was {false_alarms:g}."
    edges, none_in_an_hour = rate_interval(round((rate or 0) * hours), hours), rate_interval(0, 1)
    if edges and none_in_an_hour and edges[1] > false_alarms:
        yield (
            f"{length_text(hours)} of video cannot show a rate of {false_alarms:g} an hour: after what was counted in "
            f"it, {interval_text(edges)} an hour are possible. Choose on more video, also without actions: "
            f"{none_in_an_hour[1] / false_alarms:.2g} hours without a false alarm would show it."
        )
    for label, one in events["per_class"].items():
        if one["labels"] and not one["found"]:
            yield f"{label!r} is not found any more."

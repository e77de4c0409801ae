"""Choose thresholds with many detected actions and few false alarms, robustly even for few labelled events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, actions_of, runs
from lstr.labels.segment import Segment
from lstr.metrics.actions import Spans, find, is_ambiguous, labelled_spans, spans_of
from lstr.timeline import DEFAULT, Thresholds, is_highest

# The grid: start thresholds, end thresholds relative to them, minimum lengths and gaps in seconds. A minimum length
# delays reports by one chunk less than itself.
LEVELS = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
SHARES = (0.9, 0.7, 0.5)
LENGTHS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5)
GAPS = (0.0, 0.5, 1.0)
Axes = tuple[Sequence[float], ...]
GRID: Axes = (LEVELS, SHARES, LENGTHS, GAPS)
# The grid for videos that the networks were trained on
SEEN_GRID: Axes = (tuple(level for level in LEVELS if level <= DEFAULT.on), SHARES, LENGTHS[:3], GAPS)
# When a class chooses its start threshold, all other classes together have the weight of at most this many labels. With
# 20, the action that is hardest to detect was lost at thresholds for the other actions (`few-videos.json`).
PRIOR_LABELS = 5
F1_TOLERANCE = 0.01  # rules with an F1 this close to the best count as equal, if networks were trained on the videos
TIED = 1e-9
NEIGHBOURS = (0.25, 0.5, 0.25)  # weights for averaging with neighbours; at an edge the value replaces a missing one
# With fewer labels, actions may be separate in time only by chance
FEWEST_LABELS = 20
# How much F1 a second of mean delay is worth. Chosen on some videos and tested on the others, with three seeds of the
# RNN, F1 is .90 and the median delay 1.6 s on UT-Interaction, instead of .89 and 1.9 s with a price of .05. On UR Fall
# both prices give the same.
DELAY_PRICE = 0.1
LABELS, DETECTIONS, FOUND, DELAY = range(4)


@dataclass(frozen=True)
class Scored:
    """A video's scores (L, C) and labelled segments."""

    scores: NDArray[np.float32]
    truth: Sequence[Segment]


class Rule(NamedTuple):
    """Chosen thresholds, and their F1 on the videos they were chosen on; None without labels."""

    thresholds: Thresholds  # the rule for all classes together
    f1: float | None
    # For the checkpoint: the same rule with separate start and end thresholds per class.
    by_class: Mapping[str, Thresholds]


def choose_rule(
    videos: Sequence[Scored],
    classes: Sequence[str],
    seen: bool = False,
    clock: Clock = CLOCK,
    price: float = DELAY_PRICE,
) -> Rule:
    """Return the thresholds with the highest event F1 (`lstr.metrics.actions.find`) minus the price of the mean delay.

    The best rule of a grid would overfit few events. Therefore each rule's value is averaged with its neighbours in all
    four values, over all classes together. Then each class chooses a start threshold by its own counts and by the
    counts of the other classes, which have the weight of at most PRIOR_LABELS labels. Among equal rules, the one with
    the smallest delay is chosen, then the one closest to the default. If actions never overlap (`are_apart`), only the
    action with the highest score is active.

    Args:
        videos: The videos.
        classes: The columns of their scores.
        seen: Whether the feature networks were trained on the videos. Their scores are then higher and more even than
            on new videos, which favours too high thresholds and too short lengths. Therefore no threshold above the
            default and no separate thresholds per class are tried, and among similar rules the longest length is taken.
            Delays have no price.
        clock: The clock of the scores.
        price: The F1 that a second of mean delay is worth.
    """
    highest, axes = are_apart([video.truth for video in videos], clock), SEEN_GRID if seen else GRID
    counted = count(videos, classes, _rules(axes, highest), clock)
    return _choose(counted, classes, axes, highest, 0.0 if seen else price, seen, clock)


def choose_without_each(
    groups: Sequence[Sequence[Scored]], classes: Sequence[str], price: float = DELAY_PRICE
) -> tuple[Rule, list[Rule]]:
    """Return the rule that `choose_rule` chooses on all videos, and for each group the rule of the other groups.

    A rule that was chosen without a video is a fair test on it, as on a new video.
    """
    together = are_apart([video.truth for videos in groups for video in videos])
    others = [[video.truth for other in groups if other is not videos for video in other] for videos in groups]
    without = [are_apart(truth) if truth else together for truth in others]
    tried = {highest: _rules(GRID, highest) for highest in {together, *without}}
    counts = {highest: [count(videos, classes, rules) for videos in groups] for highest, rules in tried.items()}
    total = {highest: np.sum(own, axis=0) for highest, own in counts.items()}
    chosen = [
        _choose(total[highest] - counts[highest][at], classes, GRID, highest, price)
        for at, highest in enumerate(without)
    ]
    return _choose(total[together], classes, GRID, together, price), chosen


def are_apart(truth: Sequence[Sequence[Segment]], clock: Clock = CLOCK) -> bool:
    """Return whether the labels are evidence that different actions never overlap by a chunk or more."""
    labelled = [sorted((s for s in video if s.label != AMBIGUOUS), key=lambda s: s.start) for video in truth]
    labels = [segment.label for video in labelled for segment in video]
    if len(labels) < FEWEST_LABELS or len({*labels}) < 2:
        return False
    for video in labelled:
        ends: dict[str, float] = {}
        for segment in video:
            others = [end for label, end in ends.items() if label != segment.label]
            if min(max(others, default=-np.inf), segment.end) - segment.start >= clock.seconds:
                return False
            ends[segment.label] = max(ends.get(segment.label, -np.inf), segment.end)
    return True


def _rules(axes: Axes, highest: bool) -> list[Thresholds]:
    """Return all rules of a grid; the last axis varies fastest."""
    return [Thresholds(on, round(on * share, 4), length, gap, highest) for on, share, length, gap in product(*axes)]


def _choose(
    counted: NDArray[np.int64],
    classes: Sequence[str],
    axes: Axes,
    highest: bool,
    price: float,
    seen: bool = False,
    clock: Clock = CLOCK,
) -> Rule:
    """Return the rule of `choose_rule`, from the counts (rules, actions, 4) of each rule of the grid."""
    actions = actions_of(classes)
    if not counted[..., LABELS].any():
        return Rule(DEFAULT, None, {label: DEFAULT for label in actions})
    levels, rules = axes[0], _rules(axes, highest)
    counts = counted.reshape(*map(len, axes), len(actions), 4)

    def value_of(counts: NDArray[Any]) -> NDArray[np.float64]:
        return f1_of(counts) - price * clock.length(counts[..., DELAY] / np.maximum(counts[..., FOUND], TIED))

    from scipy.ndimage import correlate1d  # here, because a detection needs no scipy

    smooth = value_of(counts.sum(axis=-2))
    for axis in range(len(axes)):
        smooth = correlate1d(smooth, NEIGHBOURS, axis, mode="nearest")

    def cost(at: int) -> tuple[float, ...]:
        rule, delays = rules[at], rules[at].delays(clock)
        longest = -rule.min_length if seen else 0.0
        share = abs(rule.off / rule.on - DEFAULT.off / DEFAULT.on)
        return longest, delays["started"] + delays["ended"] / 2, abs(rule.on - DEFAULT.on), share

    near = np.flatnonzero(smooth.ravel() >= smooth.max() - (F1_TOLERANCE if seen else TIED)).tolist()
    best = min(near, key=cost)
    place, share, length, gap = (int(i) for i in np.unravel_index(best, smooth.shape))
    line = counts[:, share, length, gap]  # (levels, actions, 4), with the other three values of the best rule
    places = [place] * len(actions)
    for c in range(len(actions)) if not seen else ():
        own, others = line[:, c], line.sum(axis=1) - line[:, c]
        weight = min(1.0, PRIOR_LABELS / max(1, others[0, LABELS]))
        value = correlate1d(value_of(own + weight * others), NEIGHBOURS, mode="nearest")
        places[c] = min(np.flatnonzero(value >= value.max() - TIED).tolist(), key=lambda k: abs(k - place))
    ratio = rules[best].off / rules[best].on
    by_class = {
        label: replace(rules[best], on=levels[k], off=round(levels[k] * ratio, 4))
        for label, k in zip(actions, places, strict=True)
    }
    total = sum(line[k, c] for c, k in enumerate(places))
    return Rule(rules[best], float(f1_of(total)), by_class)


def count(
    videos: Sequence[Scored],
    classes: Sequence[str],
    rules: Sequence[Thresholds] | Mapping[str, Sequence[Thresholds]],
    clock: Clock = CLOCK,
) -> NDArray[np.int64]:
    """Return the numbers of labels, detections and detected labels, and the chunks of delay, in all videos.

    The result (rules, actions, 4) has a row for each rule. The delay is the sum over detected labels, from their start
    until it is reported.

    `rules` are for all actions, or by action with the same number for each. Ambiguous detections are not counted.
    """
    actions = actions_of(classes)
    of_action = rules if isinstance(rules, Mapping) else dict.fromkeys(actions, rules)
    counts = np.zeros((max(map(len, of_action.values()), default=0), len(actions), 4), dtype=np.int64)
    columns = [classes.index(label) for label in actions]
    for video in videos:
        ambiguous = spans_of(video.truth, AMBIGUOUS)
        curves = {one: curves_of(video.scores, columns, one) for one in (False, True)}
        most = {one: curves[one].max(axis=0, initial=-1.0) for one in curves}
        for c, label in enumerate(actions):
            truth = labelled_spans(video.truth, label, clock.at(len(video.scores)))
            counts[:, c, LABELS] += len(truth)
            for r, rule in enumerate(of_action[label]):
                if not len(video.scores) or most[rule.highest][c] < rule.on:
                    continue
                detected = detect_spans(curves[rule.highest][:, c], rule, clock)
                found = find(truth, detected)
                alone = np.delete(detected, found[:, 1], axis=0)
                counts[r, c, DETECTIONS] += len(detected) - np.count_nonzero(is_ambiguous(alone, ambiguous))
                counts[r, c, FOUND] += len(found)
                if rule.backdate and len(found):  # a backdated start is not when the detection began
                    detected = detect_spans(curves[rule.highest][:, c], replace(rule, backdate=0.0), clock)
                late = detected[found[:, 1], 0] - truth[found[:, 0], 0]
                counts[r, c, DELAY] += round(late.sum() / clock.seconds) + len(found) * rule.min_chunks(clock)
    return counts


def f1_of(counts: NDArray[np.integer | np.floating]) -> NDArray[np.float64]:
    """Return the F1 of counts (..., 4)."""
    whole = counts[..., LABELS] + counts[..., DETECTIONS]
    return 2 * counts[..., FOUND] / np.maximum(whole, TIED)


def curves_of(scores: np.ndarray, actions: Sequence[int], highest: bool) -> np.ndarray:
    """Return the curves (L, A) of the actions (columns) of scores; with `highest`, -1 if another score is higher."""
    return np.where(is_highest(scores, actions), scores[:, actions], -1.0) if highest else scores[:, actions]


def detect_spans(curve: np.ndarray, rules: Thresholds, clock: Clock = CLOCK) -> Spans:
    """Return the segments (N, 2) in seconds that `Timeline` detects in a curve (L,) of `curves_of`, vectorised.

    Starts are backdated at most to the end of the previous detection of the same class, also with `highest`, because
    other classes are not available here.
    """
    if not len(curve):
        return np.zeros((0, 2))
    exact = curve.astype(np.float64)  # the timeline also compares in float64
    # active from a score of at least `on` until one below `off`; -1: unchanged
    switch = np.where(exact >= rules.on, 1, np.where(exact < rules.off, 0, -1))
    switch[0] = exact[0] >= rules.on
    last = np.maximum.accumulate(np.where(switch >= 0, np.arange(len(exact)), 0))
    found = np.array(runs(switch[last] == 1), dtype=np.float64).reshape(-1, 2)
    if (gap := clock.whole_chunks(rules.merge_gap)) and len(found):
        apart = np.flatnonzero(found[1:, 0] - found[:-1, 1] > gap)
        found = np.stack([found[np.append(0, apart + 1), 0], found[np.append(apart, len(found) - 1), 1]], axis=1)
    kept = (found[:, 1] - found[:, 0] >= rules.min_chunks(clock)) | (found[:, 1] == len(curve))  # or active at the end
    found = found[kept]
    if (backdate := clock.whole_chunks(rules.backdate)) and len(found):
        found[:, 0] = np.maximum(found[:, 0] - backdate, np.append(0, found[:-1, 1]))
    spans: Spans = clock.at(found)
    return spans

"""Thresholds that find most labelled actions with fewest false alarms, chosen so that few events do not mislead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, runs
from lstr.labels.segment import Segment
from lstr.metrics.actions import Spans, find, is_ambiguous, labelled_spans, spans_of
from lstr.timeline import DEFAULT, Thresholds, is_highest

# The grid that is tried: start thresholds, end thresholds as shares of them, minimum lengths and gaps in seconds.
# Each length delays what is reported by one chunk less than itself.
LEVELS = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
SHARES = (0.9, 0.7, 0.5)
LENGTHS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5)
GAPS = (0.0, 0.5, 1.0)
Axes = tuple[Sequence[float], ...]
GRID: Axes = (LEVELS, SHARES, LENGTHS, GAPS)
# The grid for videos that the networks have seen
SEEN_GRID: Axes = (tuple(level for level in LEVELS if level <= DEFAULT.on), SHARES, LENGTHS[:3], GAPS)
# How many labels of its own weigh for a class as much as all others together, when it chooses its start threshold. With
# 20 the action that is hardest to detect was lost at levels that suit the others (`few-videos.json`).
PRIOR_LABELS = 5
F1_TOLERANCE = 0.01  # of F1: rules this near the best are as good, if networks have seen the videos
TIED = 1e-9
# With fewer labels than this it is chance that no two actions happen together
FEWEST_LABELS = 20
LABELS, DETECTIONS, FOUND = range(3)


@dataclass(frozen=True)
class Scored:
    """A video's scores (L, C) and labelled segments."""

    scores: NDArray[np.float32]
    truth: Sequence[Segment]


@dataclass(frozen=True)
class Rule:
    """The thresholds that were chosen, and their F1 on the videos they were chosen on, if there were labels."""

    # The rule of all classes together.
    thresholds: Thresholds
    f1: float | None
    # What a checkpoint stores: the same rule with each class's own start and end thresholds.
    by_class: Mapping[str, Thresholds] = field(default_factory=dict)


def choose_rule(
    videos: Sequence[Scored],
    classes: Sequence[str],
    seen: bool = False,
    clock: Clock = CLOCK,
) -> Rule:
    """Return the thresholds of the highest F1 of found actions (`lstr.metrics.actions.find`).

    The best rule of a grid overfits a few events. So the mean of each rule's F1 with those of its neighbours in all
    four values is compared, over all classes together. Each class then takes its own start threshold, by its own
    counts and those of all others, which weigh at most as much as PRIOR_LABELS labels. Of equal rules the one that
    delays least is taken, and then the one nearest to the default. If actions never happen together (see
    `are_apart`), only the highest of them is active.

    Args:
        videos: The videos.
        classes: The columns of their scores.
        seen: Whether the feature networks have seen the videos. These then score higher and more evenly than new ones,
            and ask for levels that are too high and lengths that are too short: no level above the default is tried,
            none of a class alone, and of rules that are as good the longest length is taken.
        clock: That of the scores.
    """
    highest, axes = are_apart([video.truth for video in videos], clock), SEEN_GRID if seen else GRID
    return _choose(count(videos, classes, _rules(axes, highest), clock), classes, axes, highest, seen, clock)


def choose_without_each(groups: Sequence[Sequence[Scored]], classes: Sequence[str]) -> tuple[Rule, list[Rule]]:
    """Return the rule that `choose_rule` chooses on all videos, and for each group of them that of all others.

    Decisions on a video by a rule that was chosen without it are as good as those on a new video.
    """
    together = are_apart([video.truth for videos in groups for video in videos])
    others = [[video.truth for other in groups if other is not videos for video in other] for videos in groups]
    without = [are_apart(truth) if truth else together for truth in others]
    tried = {highest: _rules(GRID, highest) for highest in {together, *without}}
    counts = {highest: [count(videos, classes, rules) for videos in groups] for highest, rules in tried.items()}
    total = {highest: np.sum(own, axis=0) for highest, own in counts.items()}
    chosen = [
        _choose(total[highest] - counts[highest][at], classes, GRID, highest) for at, highest in enumerate(without)
    ]
    return _choose(total[together], classes, GRID, together), chosen


def are_apart(truth: Sequence[Sequence[Segment]], clock: Clock = CLOCK) -> bool:
    """Return whether the labels of videos show that different actions never overlap by a chunk or more."""
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
    """Return all rules of a grid, the last axis the fastest."""
    return [Thresholds(on, round(on * share, 4), length, gap, highest) for on, share, length, gap in product(*axes)]


def _choose(
    counted: NDArray[np.int64],
    classes: Sequence[str],
    axes: Axes,
    highest: bool,
    seen: bool = False,
    clock: Clock = CLOCK,
) -> Rule:
    """Return the rule of `choose_rule`, from the counts (rules, actions, 3) of each rule of the grid."""
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    if not counted[..., LABELS].any():
        return Rule(DEFAULT, None, {label: DEFAULT for label in actions})
    levels, rules = axes[0], _rules(axes, highest)
    counts = counted.reshape(*map(len, axes), len(actions), 3)
    smooth = f1_of(counts.sum(axis=-2))
    for axis in range(len(axes)):
        smooth = _smooth(smooth, axis)

    def cost(at: int) -> tuple[float, ...]:
        rule, delays = rules[at], rules[at].delays(clock)
        longest = -rule.min_length if seen else 0.0
        share = abs(rule.off / rule.on - DEFAULT.off / DEFAULT.on)
        return longest, delays["started"] + delays["ended"] / 2, abs(rule.on - DEFAULT.on), share

    near = np.flatnonzero(smooth.ravel() >= smooth.max() - (F1_TOLERANCE if seen else TIED)).tolist()
    best = min(near, key=cost)
    place, share, length, gap = (int(i) for i in np.unravel_index(best, smooth.shape))
    line = counts[:, share, length, gap]  # (levels, actions, 3), with the other three values of the best
    places = [place] * len(actions)
    for c in range(len(actions)) if not seen else ():
        own, others = line[:, c], line.sum(axis=1) - line[:, c]
        weight = min(1.0, PRIOR_LABELS / max(1, others[0, LABELS]))
        value = _smooth(f1_of(own + weight * others), 0)
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
    """Return the labels, detections and found labels (rules, actions, 3) in all videos, for each of the rules.

    `rules` are the same for all actions, or by action, the same number for each. Ambiguous detections are not counted.
    """
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    of_action = rules if isinstance(rules, Mapping) else dict.fromkeys(actions, rules)
    counts = np.zeros((max(map(len, of_action.values()), default=0), len(actions), 3), dtype=np.int64)
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
    return counts


def f1_of(counts: NDArray[np.integer | np.floating]) -> NDArray[np.float64]:
    """Return the F1 of counts (..., 3)."""
    whole = counts[..., LABELS] + counts[..., DETECTIONS]
    return 2 * counts[..., FOUND] / np.maximum(whole, TIED)


def _smooth(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Return means with both neighbours along an axis, a value counting twice, and at an edge for its neighbour too."""
    moved = np.moveaxis(values, axis, 0)
    padded = np.concatenate([moved[:1], moved, moved[-1:]])
    return np.moveaxis((padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4, 0, axis)


def hysteresis(curve: np.ndarray, on: float, off: float) -> NDArray[np.bool_]:
    """Return which chunks (L,) are active: from one at `on` to before one below `off`; a video begins inactive."""
    switch = np.where(curve >= on, 1, np.where(curve < off, 0, -1))  # -1: as before
    switch[0] = curve[0] >= on
    last = np.maximum.accumulate(np.where(switch >= 0, np.arange(len(curve)), 0))
    return switch[last] == 1


def curves_of(scores: np.ndarray, actions: Sequence[int], highest: bool) -> np.ndarray:
    """Return the curves (L, A) of the actions (columns) of scores; with `highest`, -1 if another scores higher."""
    return np.where(is_highest(scores, actions), scores[:, actions], -1.0) if highest else scores[:, actions]


def detect_spans(curve: np.ndarray, rules: Thresholds, clock: Clock = CLOCK) -> Spans:
    """Return the segments (N, 2) in seconds that `Timeline` makes of a curve (L,) of `curves_of`, all at once.

    Starts are backdated at most to the end of the class's own previous detection, also with `highest`, because there is
    no other class here.
    """
    if not len(curve):
        return np.zeros((0, 2))
    exact = curve.astype(np.float64)  # as the timeline compares scores with thresholds
    found = np.array(runs(hysteresis(exact, rules.on, rules.off)), dtype=np.float64).reshape(-1, 2)
    if (gap := rules.gap_chunks(clock)) and len(found):
        apart = np.flatnonzero(found[1:, 0] - found[:-1, 1] > gap)
        found = np.stack([found[np.append(0, apart + 1), 0], found[np.append(apart, len(found) - 1), 1]], axis=1)
    kept = (found[:, 1] - found[:, 0] >= rules.min_chunks(clock)) | (found[:, 1] == len(curve))  # or active at the end
    found = found[kept]
    if (backdate := rules.backdate_chunks(clock)) and len(found):
        found[:, 0] = np.maximum(found[:, 0] - backdate, np.append(0, found[:-1, 1]))
    spans: Spans = clock.at(found)
    return spans

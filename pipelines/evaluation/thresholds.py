"""Thresholds that find most labelled actions with fewest false alarms, chosen so that few events do not mislead."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, runs
from lstr.labels.segment import Segment
from lstr.metrics.actions import Spans, find, is_ambiguous, labelled_spans, spans_of
from lstr.timeline import DEFAULT, Thresholds, is_highest

LEVELS = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9)
SHARES = (0.9, 0.7, 0.5)  # of `on`, tried as `off`
LENGTHS = (0.0, 0.5, 0.75, 1.0, 1.25, 1.5)  # seconds; each delays what is reported by as much less a chunk
GAPS = (0.0, 0.5, 1.0)
# How many labels of its own weigh for a class as much as all others together, where it chooses its `on`. With 20 the
# action that is hardest to tell was lost at levels that suit the others (`few-videos.json`).
PRIOR_LABELS = 5
SEEN_AS_GOOD = 0.01  # of F1: what is this near the best is as good, where networks have seen the videos
SEEN_LENGTHS = LENGTHS[:3]
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
    """The thresholds that were chosen, and their F1 on the videos they were chosen on, where there were labels."""

    thresholds: Thresholds
    """The rule of all classes together."""
    f1: float | None
    by_class: Mapping[str, Thresholds] = field(default_factory=dict)
    """What a checkpoint carries: the same rule with each class's own `on` and `off`."""


@dataclass(frozen=True)
class Grid:
    """The rules that are tried: each `on`, share of it as `off`, minimum length and gap, all of one `highest`."""

    axes: tuple[Sequence[float], ...]
    highest: bool = False

    @cached_property
    def rules(self) -> list[Thresholds]:
        """All of them, the last axis the fastest."""
        return [
            Thresholds(on, round(on * share, 4), length, gap, self.highest)
            for on, share, length, gap in product(*self.axes)
        ]


GRID = Grid((LEVELS, SHARES, LENGTHS, GAPS))
SEEN_GRID = Grid((tuple(level for level in LEVELS if level <= DEFAULT.on), SHARES, SEEN_LENGTHS, GAPS))


def choose_rule(
    videos: Sequence[Scored],
    classes: Sequence[str],
    seen: bool = False,
    clock: Clock = CLOCK,
) -> Rule:
    """The thresholds of the highest F1 of found actions (`lstr.metrics.actions.find`).

    The best of a grid fits its few events: what is compared is the mean of each rule's F1 with those of its neighbours
    in all four values, over all classes together, so that no single score decides. Each class then takes its own `on`,
    by its own counts and those of all others, which weigh no more than PRIOR_LABELS of its own. Of equal rules the one
    that delays least is taken, and then the nearest to the default. seen: whether the feature networks have seen the
    videos, which then score higher and more evenly than new ones and ask for levels that are too high and lengths that
    are too short: no level above the default is tried, none of a class alone, and of rules that are as good the longest
    length is taken. Where actions never happen together (see `are_apart`) only the highest of them is on.
    """
    grid = replace(SEEN_GRID if seen else GRID, highest=are_apart([video.truth for video in videos], clock))
    return _chosen(count(videos, classes, grid.rules, clock), classes, grid, seen, clock)


def choose_without_each(groups: Sequence[Sequence[Scored]], classes: Sequence[str]) -> tuple[Rule, list[Rule]]:
    """The rule that `choose_rule` chooses on all videos, and for each group of them that of all others.

    What is decided of a video by a rule that was chosen without it is as good as that of a new video.
    """
    every = [video.truth for videos in groups for video in videos]
    others = [[video.truth for other in groups if other is not videos for video in other] for videos in groups]
    of_all = replace(GRID, highest=are_apart(every))
    of_each = [replace(GRID, highest=are_apart(truth) if truth else of_all.highest) for truth in others]
    counts = {one.highest: [count(videos, classes, one.rules) for videos in groups] for one in {of_all, *of_each}}
    total = {highest: np.sum(own, axis=0) for highest, own in counts.items()}
    without = [total[one.highest] - counts[one.highest][at] for at, one in enumerate(of_each)]
    chosen = [_chosen(own, classes, one) for own, one in zip(without, of_each, strict=True)]
    return _chosen(total[of_all.highest], classes, of_all), chosen


def are_apart(truth: Sequence[Sequence[Segment]], clock: Clock = CLOCK) -> bool:
    """Whether labels of each video show that different actions never happen together, for as much as a chunk."""
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


def _chosen(
    counted: NDArray[np.int64], classes: Sequence[str], grid: Grid, seen: bool = False, clock: Clock = CLOCK
) -> Rule:
    """The rule of `choose_rule`, from what each rule of the grid gives (rules, actions, 3)."""
    actions = [label for label in classes if label not in (BACKGROUND, AMBIGUOUS)]
    if not counted[..., LABELS].any():
        return Rule(DEFAULT, None, {label: DEFAULT for label in actions})
    levels, rules = grid.axes[0], grid.rules
    counts = counted.reshape(*map(len, grid.axes), len(actions), 3)
    smooth = f1_of(counts.sum(axis=-2))
    for axis in range(len(grid.axes)):
        smooth = _smooth(smooth, axis)
    flat = smooth.ravel()

    def cost(at: int) -> tuple[float, ...]:
        rule, delays = rules[at], rules[at].delays(clock)
        longest = -rule.min_length if seen else 0.0
        share = abs(rule.off / rule.on - DEFAULT.off / DEFAULT.on)
        return longest, delays["started"] + delays["ended"] / 2, abs(rule.on - DEFAULT.on), share

    near = np.flatnonzero(flat >= flat.max() - (SEEN_AS_GOOD if seen else TIED)).tolist()
    best = min(near, key=cost)
    place, share, length, gap = (int(i) for i in np.unravel_index(best, smooth.shape))
    line = counts[:, share, length, gap]  # (levels, actions, 3), with the other three values of the best
    places = [place if seen else _level(line[:, c], line.sum(axis=1) - line[:, c], place) for c in range(len(actions))]
    ratio = rules[best].off / rules[best].on
    own = [replace(rules[best], on=levels[k], off=round(levels[k] * ratio, 4)) for k in places]
    together = sum(line[k, c] for c, k in enumerate(places))
    return Rule(rules[best], float(f1_of(together)), dict(zip(actions, own, strict=True)))


def _level(own: NDArray[np.int64], others: NDArray[np.int64], shared: int) -> int:
    """Which `on` is one class's, from its counts and those of all others (levels, 3); of equal ones the nearest to the
    shared one."""
    weight = min(1.0, PRIOR_LABELS / max(1, others[0, LABELS]))
    value = _smooth(f1_of(own + weight * others), 0)
    return min(np.flatnonzero(value >= value.max() - TIED).tolist(), key=lambda k: abs(k - shared))


def count(
    videos: Sequence[Scored],
    classes: Sequence[str],
    rules: Sequence[Thresholds] | Mapping[str, Sequence[Thresholds]],
    clock: Clock = CLOCK,
) -> NDArray[np.int64]:
    """Return the labels, detections and found labels (rules, actions, 3) in all videos, for each of the rules.

    `rules` are the same for all actions, or as many for each by its name. Ambiguous detections are not counted.
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
    """F1 of counts (..., 3)."""
    whole = counts[..., LABELS] + counts[..., DETECTIONS]
    return 2 * counts[..., FOUND] / np.maximum(whole, TIED)


def _smooth(values: NDArray[np.float64], axis: int) -> NDArray[np.float64]:
    """Means with both neighbours along an axis, a value counting twice; at an edge it stands for its neighbour too."""
    moved = np.moveaxis(values, axis, 0)
    padded = np.concatenate([moved[:1], moved, moved[-1:]])
    return np.moveaxis((padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4, 0, axis)


def hysteresis(curve: np.ndarray, on: float, off: float) -> NDArray[np.bool_]:
    """Chunks (L,) that are on: from one at `on` to before one below `off`; a video begins off."""
    switch = np.where(curve >= on, 1, np.where(curve < off, 0, -1))  # -1: as before
    switch[0] = curve[0] >= on
    last = np.maximum.accumulate(np.where(switch >= 0, np.arange(len(curve)), 0))
    return switch[last] == 1


def curves_of(scores: np.ndarray, actions: Sequence[int], highest: bool) -> np.ndarray:
    """The curves (L, A) of the actions (columns) of scores (L, C); with `highest` -1 where another scores higher."""
    return np.where(is_highest(scores, actions), scores[:, actions], -1.0) if highest else scores[:, actions]


def detect_spans(curve: np.ndarray, rules: Thresholds, clock: Clock = CLOCK) -> Spans:
    """The segments (N, 2) in seconds that `Timeline` makes of a curve (L,) of `curves_of`, all at once.

    Starts are backdated as far as the class's own detection before, also with `highest`: there is no other class here.
    """
    if not len(curve):
        return np.zeros((0, 2))
    exact = curve.astype(np.float64)  # as the timeline compares scores with thresholds
    found = np.array(runs(hysteresis(exact, rules.on, rules.off)), dtype=np.float64).reshape(-1, 2)
    if (gap := rules.gap_chunks(clock)) and len(found):
        apart = np.flatnonzero(found[1:, 0] - found[:-1, 1] > gap)
        found = np.stack([found[np.append(0, apart + 1), 0], found[np.append(apart, len(found) - 1), 1]], axis=1)
    kept = (found[:, 1] - found[:, 0] >= rules.min_chunks(clock)) | (found[:, 1] == len(curve))  # or on at the end
    found = found[kept]
    if (backdate := rules.backdate_chunks(clock)) and len(found):
        found[:, 0] = np.maximum(found[:, 0] - backdate, np.append(0, found[:-1, 1]))
    spans: Spans = clock.at(found)
    return spans

"""Choose the thresholds of a checkpoint on scored videos: for the highest F1, or for a rate of false alarms."""

import json
import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import actions_of, runs
from lstr.loaded_checkpoint import Checkpoint
from lstr.metrics.actions import labelled_spans, largest_pairs, length_text, measure_events, overlaps, spans_of
from lstr.metrics.intervals import interval_text, rate_interval
from lstr.pipelines.evaluation.scoring import detect_events
from lstr.pipelines.evaluation.thresholds import (
    DELAY,
    DELAY_PRICE,
    DETECTIONS,
    FOUND,
    GAPS,
    LABELS,
    LENGTHS,
    Rule,
    Scored,
    are_apart,
    choose_rule,
    choose_without_each,
    count,
    f1_of,
)
from lstr.pipelines.model_files.model_file import is_model, open_model
from lstr.pipelines.progress import Notice
from lstr.timeline import DEFAULT, Thresholds

# Start thresholds to try: round values
LEVELS = tuple(round(0.02 * k, 2) for k in range(1, 50))
# Ratio of end threshold to start threshold
OFF_SHARE = DEFAULT.off / DEFAULT.on
# Classes with fewer labels share a threshold
FEW_LABELS = 5
# If the videos are too short to measure the target rate, a class keeps at least this share of its detectable actions
MIN_SHARE = 0.5
# Then the default start threshold has the weight of this many labels against a higher one
DEFAULT_LABELS = 10
# Minimum IoU of a detection and a label for measuring its delay
LEAST_IOU = 0.1
# Weight of a delay of 0, in labels, against the delays of an action
PRIOR_LABELS = 1

# Thresholds for training on a single recording, without other videos to choose them on. Scores of such a model on new
# videos are too low for the default thresholds. Chosen on models of four single videos and tested on three others: F1
# is .57 and .46 instead of .30 and .42 on UT-Interaction, and .78 instead of .70 on UR Fall.
SINGLE_RECORDING = Thresholds(on=0.35, off=0.175, min_length=0.5, merge_gap=0.5)


class Sweep(NamedTuple):
    """Detected labels and false alarms of each class (C,) at each of LEVELS, and the hours of video."""

    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    found: NDArray[np.int64]  # (C, len(LEVELS)), as `false_alarms`
    false_alarms: NDArray[np.int64]
    hours: float


def sweep(
    videos: Sequence[Scored],
    classes: Sequence[str],
    rules: Thresholds | Mapping[str, Thresholds] = DEFAULT,
    clock: Clock = CLOCK,
) -> Sweep:
    """Run detection on each video with every level; minimum lengths and gaps come from `rules`."""
    actions = actions_of(classes)
    own = {label: rules if isinstance(rules, Thresholds) else rules.get(label, DEFAULT) for label in actions}
    tried = {label: [at_level(on, own[label]) for on in LEVELS] for label in actions}
    counts = count(videos, classes, tried, clock)
    labels, detections, found = (counts[..., which].T for which in (LABELS, DETECTIONS, FOUND))
    hours = clock.length(sum(len(video.scores) for video in videos)) / 3600
    return Sweep(tuple(actions), labels.max(axis=1, initial=0), found, detections - found, hours)


def at_level(on: float, rules: Thresholds = DEFAULT) -> Thresholds:
    """Return the same rules with another start threshold, and an end threshold of OFF_SHARE times it."""
    return replace(rules, on=on, off=round(on * OFF_SHARE, 4))


def describe_curves(swept: Sweep) -> dict[str, Any]:
    """Return recall against false alarms per hour as JSON: a point for each level, for all classes and for each class.

    In a point of `together` every class has the same start threshold. Undefined values are None.
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


def describe_delays(
    videos: Sequence[Scored],
    classes: Sequence[str],
    rules: Thresholds | Mapping[str, Thresholds] = DEFAULT,
    clock: Clock = CLOCK,
) -> list[dict[str, Any]]:
    """Return the highest event F1 by mean delay as JSON: points with rising F1, all classes together.

    A point has one start threshold and one minimum length for all classes; gaps come from `rules`. `delay` is in
    seconds from the start of a label until it is reported.
    """
    actions, tried = actions_of(classes), [*product(LEVELS[4::5], LENGTHS)]
    own = {label: rules if isinstance(rules, Thresholds) else rules.get(label, DEFAULT) for label in actions}
    by_action = {label: [replace(at_level(on, own[label]), min_length=s) for on, s in tried] for label in actions}
    counts = count(videos, classes, by_action, clock).sum(axis=1)
    f1, delays = f1_of(counts), clock.length(counts[:, DELAY] / np.maximum(counts[:, FOUND], 1))
    points: list[dict[str, Any]] = []
    for k in np.lexsort((-f1, delays)).tolist():
        if counts[k, FOUND] and f1[k] > (points[-1]["f1"] if points else 0.0):
            on, length = tried[k]
            points.append({"on": on, "min_length": length, "f1": float(f1[k]), "delay": float(delays[k])})
    return points


def choose_for_rate(
    videos: Sequence[Scored], classes: Sequence[str], per_hour: float, clock: Clock = CLOCK
) -> dict[str, Thresholds]:
    """Return the thresholds of each class that detect the most labels with at most this many false alarms per hour.

    For each pair of a minimum length and a gap, which all classes share, `choose_levels` chooses the start thresholds.
    Pairs that detect less than half of the best result are dropped. Among the others, the order of preference is:
    fewest false alarms above the limit, most detected labels, smallest delay. If actions never overlap, only the action
    with the highest score is active.
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
    return min((one for one in tried if -one[1] >= MIN_SHARE * most), key=lambda one: one[:3])[3]


def choose_levels(swept: Sweep, per_hour: float) -> dict[str, float]:
    """Return the start thresholds that detect the most labels within a rate of false alarms, by class.

    The rate is for all classes together; if it cannot be reached, the thresholds with the fewest false alarms are
    chosen. Classes with fewer than FEW_LABELS labels share one threshold. Among neighbouring levels with equal results,
    the middle one is chosen. If the videos are too short for a single false alarm (`per_hour` times hours is below 1),
    one false alarm must not disable a class: the class keeps at least half of the labels that it detects at its best
    level, and its threshold is moved towards the default one, more strongly for fewer labels.
    """
    own = [c for c, labels in enumerate(swept.labels) if labels >= FEW_LABELS]
    rest = [c for c in range(len(swept.classes)) if c not in own]
    groups = [[c] for c in own] + ([rest] if rest else [])
    budget = per_hour * swept.hours
    is_short = budget < 1
    # by group, (false alarms, detected labels, level) of levels on the Pareto front
    options: list[list[tuple[int, int, int]]] = []
    for group in groups:
        found, false = swept.found[group].sum(axis=0), swept.false_alarms[group].sum(axis=0)
        allowed = found >= (math.ceil(MIN_SHARE * found.max()) if is_short else 0)
        options.append([])
        for alarms in sorted({*false[allowed].tolist()}):
            most = int(found[allowed & (false == alarms)].max())
            if not options[-1] or most > options[-1][-1][1]:
                first, stop = max(runs((false == alarms) & (found == most)), key=lambda run: run[1] - run[0])
                # the middle of the longest run of equal levels is the most robust
                options[-1].append((alarms, most, (first + stop - 1) // 2))
    # an exact knapsack: the levels that detect the most labels within the budget
    limit = max(math.floor(budget + 1e-9), sum(one[0][0] for one in options))
    best: dict[int, tuple[int, tuple[int, ...]]] = {0: (0, ())}  # by false alarms: detected labels, level of each group
    for one in options:
        before, best = best, {}
        for alarms, gained, k in one:
            for total, (found, levels) in before.items():
                if total + alarms <= limit and found + gained > best.get(total + alarms, (-1,))[0]:
                    best[total + alarms] = found + gained, (*levels, k)
    fewest = min(best, key=lambda total: (-best[total][0], total))  # of the totals with the most detected labels
    result: dict[str, float] = {}
    for group, k in zip(groups, best[fewest][1], strict=True):
        labels = int(swept.labels[group].sum())
        drawn = (labels * LEVELS[k] + DEFAULT_LABELS * DEFAULT.on) / (labels + DEFAULT_LABELS)
        result |= {swept.classes[c]: round(min(drawn, LEVELS[k]), 2) if is_short else LEVELS[k] for c in group}
    return {label: result[label] for label in swept.classes}


def doubts(events: dict[str, Any], false_alarms: float) -> Iterator[str]:
    """Yield warnings about thresholds for a rate of false alarms, based on their results on the same videos."""
    hours, rate = events["hours"], events["together"]["false_alarms_per_hour"]
    if rate is not None and rate > false_alarms:
        yield f"{rate:.3g} false alarms per hour remain on these videos; the aim was {false_alarms:g}."
    edges, none_in_an_hour = rate_interval(round((rate or 0) * hours), hours), rate_interval(0, 1)
    if edges and none_in_an_hour and edges[1] > false_alarms:
        yield (
            f"{length_text(hours)} of video cannot show a rate of {false_alarms:g} per hour: its count allows "
            f"{interval_text(edges)} per hour. Choose on more video, also without actions: "
            f"{none_in_an_hour[1] / false_alarms:.2g} hours without a false alarm would be enough."
        )
    for label, one in events["per_class"].items():
        if one["labels"] and not one["found"]:
            yield f"{label!r} is not found."


def backdated(
    rules: Mapping[str, Thresholds], videos: Sequence[Scored], classes: Sequence[str], clock: Clock = CLOCK
) -> dict[str, Thresholds]:
    """Return the rules with a `backdate` for each action.

    It is the median delay of detection starts relative to label starts, in whole chunks, moved towards 0 if there are
    few labels; 0 if detections are early. The scores should come from models that were not trained on the videos,
    because trained models detect them earlier.
    """
    plain = {label: replace(rule, backdate=0.0) for label, rule in rules.items()}
    late: dict[str, list[float]] = {label: [] for label in actions_of(classes)}
    for video in videos:
        found = detect_events(video.scores, classes, plain, video.truth, clock)
        for label, seconds in late.items():
            truth, detected = labelled_spans(video.truth, label, found.seconds), spans_of(found.detections, label)
            pairs = largest_pairs(truth, detected, overlaps(truth, detected) >= LEAST_IOU)
            seconds += (detected[pairs[:, 1], 0] - truth[pairs[:, 0], 0]).tolist()
    for label, seconds in late.items():
        if seconds and label in plain:
            drawn = float(np.median(seconds)) * len(seconds) / (len(seconds) + PRIOR_LABELS)
            chunks = max(0, round(drawn / clock.seconds))
            plain[label] = replace(plain[label], backdate=float(clock.length(chunks)))
    return plain


def choose_validated_thresholds(
    scored: Mapping[str, Scored],
    groups: Sequence[Sequence[str]],
    loaded: Checkpoint,
    false_alarms: float | None = None,
    price: float = DELAY_PRICE,
) -> Generator[Notice, None, tuple[float | None, dict[str, Mapping[str, Thresholds]]]]:
    """Choose thresholds on videos that networks and models were not trained on, and for each video without it.

    Return their F1 (None for a target rate), and by id the thresholds that were chosen without each video.

    Args:
        scored: The videos by id.
        groups: Ids of videos that are excluded together; a single group gets no separate thresholds.
        loaded: The checkpoint, which gets the thresholds.
        false_alarms: The target rate per hour; None for the highest F1.
        price: The F1 that a second of mean delay is worth.
    """
    classes = loaded.classes
    remaining = [[scored[i] for i in scored if i not in group] for group in groups]
    rule, without = choose_without_each([[scored[i] for i in group] for group in groups], classes, price)
    f1 = yield from store_thresholds(rule, [*scored.values()], loaded, false_alarms)
    rules: dict[str, Mapping[str, Thresholds]] = {}
    for group, own, chosen in zip(groups, remaining, without, strict=True) if len(groups) > 1 else ():
        by_class = chosen.by_class
        if false_alarms is not None and own:
            by_class = choose_for_rate(own, classes, false_alarms)
        rules |= dict.fromkeys(group, backdated(by_class, own, classes))
    return f1, rules


def choose_training_thresholds(
    scored: Sequence[Scored], loaded: Checkpoint, false_alarms: float | None = None
) -> Generator[Notice, None, float | None]:
    """Choose thresholds on videos that the networks were trained on; use SINGLE_RECORDING without videos.

    Return their F1; None for a target rate, and without videos.
    """
    if scored:
        rule = choose_rule(scored, loaded.classes, seen=True)
        return (yield from store_thresholds(rule, scored, loaded, false_alarms))
    if false_alarms is not None:
        yield Notice("no video is available to count false alarms on: the thresholds are not chosen for a rate.")
    actions = actions_of(loaded.classes)
    write_thresholds(loaded, dict.fromkeys(actions, SINGLE_RECORDING))
    return None


def store_thresholds(
    rule: Rule, scored: Sequence[Scored], loaded: Checkpoint, false_alarms: float | None
) -> Generator[Notice, None, float | None]:
    """Write the thresholds of a rule into a checkpoint, or for a rate of false alarms; return their F1, or None.

    Warn if they may exceed the rate.
    """
    if false_alarms is None:
        write_thresholds(loaded, backdated(rule.by_class, scored, loaded.classes))
        return rule.f1
    rules = backdated(choose_for_rate(scored, loaded.classes, false_alarms), scored, loaded.classes)
    found = [detect_events(video.scores, loaded.classes, rules, video.truth) for video in scored]
    yield from map(Notice, doubts(measure_events(found, loaded.classes), false_alarms))
    write_thresholds(loaded, rules)
    return None


def write_thresholds(loaded: Checkpoint, thresholds: Mapping[str, Thresholds]) -> Path:
    """Store thresholds in a checkpoint or model file atomically, without other changes; return its path.

    A published file is not changed; the result is written to NAME.thresholds.pt next to it. Raises CheckpointError.
    """
    # Imported here, because these import torch, which a detection may not need.
    from lstr import checkpoint
    from lstr.pipelines.model_files.packing import change_model

    stored = {label: rules.stored() for label, rules in thresholds.items()}
    if is_model(loaded.path):
        return change_model(open_model(loaded.path), loaded.path, {"thresholds": stored}).path
    extra = {**loaded.extra, "thresholds": stored}
    if loaded.format == checkpoint.FORMAT:
        content = checkpoint.read(loaded.path)
        checkpoint.write_atomically(loaded.path, {**content, "extra": json.dumps(extra)})
        return loaded.path
    path = loaded.path.with_name(f"{loaded.path.stem}.thresholds.pt")
    checkpoint.save(path, loaded.model, loaded.classes, loaded.recipe, loaded.metrics, extra, loaded.calibration)
    return path

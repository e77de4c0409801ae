"""One rule for all classes, by which most labelled actions are found with fewest false alarms."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
from numpy.typing import NDArray

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.labels.segment import Segment
from lstr.metrics.actions import find, labelled_spans
from lstr.pipelines.thresholds.by_chunks import detect_spans
from lstr.timeline import CHUNK_SECONDS, DEFAULT, Thresholds

LEVELS = (0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8)
SHARES = (0.7, 0.5)  # of `on`, tried as `off`
LENGTHS = (0.0, 0.5, 0.75)  # seconds; each but the first delays what is reported by as much less a chunk
GAPS = (0.0, 0.5)
AS_GOOD = 0.03  # of F1: what is this near the best is as good
SEEN_AS_GOOD = 0.01  # the same where networks have seen the videos, which brings all rules near to 1


@dataclass(frozen=True)
class Scored:
    """A video's scores (L, C) and labelled segments."""

    scores: NDArray[np.float32]
    truth: Sequence[Segment]


@dataclass(frozen=True)
class Rule:
    """The thresholds that were chosen, and their F1 on the videos they were chosen on, where there were labels."""

    thresholds: Thresholds
    f1: float | None


def choose_rule(videos: Sequence[Scored], classes: Sequence[str], seen: bool = False) -> Rule:
    """The thresholds of the highest F1 of found actions (`lstr.metrics.actions.find`) over all classes together.

    One rule for all classes, for each has few examples; each F1 is the mean over neighbouring levels, so that no
    single score decides. Of rules that are as good the one that delays least is taken, and then the nearest to the
    default. seen: whether the feature networks have seen the videos, which then score higher and more evenly than new
    ones and ask for levels that are too high and lengths that are too short: no level above the default is tried, and
    of rules that are as good the longest length is taken.
    """
    if not any(segment.label not in (BACKGROUND, AMBIGUOUS) for video in videos for segment in video.truth):
        return Rule(DEFAULT, None)
    found: list[tuple[float, float, Thresholds]] = []
    levels = [level for level in LEVELS if level <= DEFAULT.on] if seen else LEVELS
    for share, length, gap in product(SHARES, LENGTHS, GAPS):
        rules = [Thresholds(level, round(level * share, 4), length, gap) for level in levels]
        scores = np.array([f1_of(videos, classes, rule) for rule in rules])
        padded = np.pad(scores, 1, mode="edge")
        smooth = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
        found += [(float(s), float(exact), rule) for s, exact, rule in zip(smooth, scores, rules, strict=True)]
    best = max(score for score, _, _ in found)
    fitting = [entry for entry in found if entry[0] >= best - (SEEN_AS_GOOD if seen else AS_GOOD)]
    _, exact, rule = min(fitting, key=lambda entry: (_cost(entry[2], seen), abs(entry[2].on - DEFAULT.on), -entry[0]))
    return Rule(rule, exact)


def _cost(rule: Thresholds, seen: bool) -> tuple[float, float]:
    return -rule.min_length if seen else 0.0, rule.delays()["started"] + rule.delays()["ended"] / 2


def f1_of(videos: Iterable[Scored], classes: Sequence[str], rule: Thresholds) -> float:
    """F1 of found actions over all classes and videos."""
    n_labels = n_detections = n_found = 0
    for video in videos:
        for column, label in enumerate(classes):
            if label in (BACKGROUND, AMBIGUOUS):
                continue
            truth = labelled_spans(video.truth, label, len(video.scores) * CHUNK_SECONDS)
            detected = detect_spans(video.scores[:, column], rule)
            n_labels, n_detections = n_labels + len(truth), n_detections + len(detected)
            if len(truth) and len(detected):
                n_found += len(find(truth, detected))
    return 2 * n_found / max(1, n_labels + n_detections)


def by_class(rule: Thresholds, classes: Sequence[str]) -> dict[str, Thresholds]:
    """The rule as a checkpoint carries it."""
    return {label: replace(rule) for label in classes if label not in (BACKGROUND, AMBIGUOUS)}

"""How long actions have usually lasted when they are told, so that their starts are told as early as they were."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lstr.chunk import CLOCK, Clock
from lstr.labels.label_set import AMBIGUOUS, BACKGROUND
from lstr.metrics.actions import labelled_spans, largest_pairs, overlaps, spans_of
from lstr.pipelines.evaluation.analysis import detect_events
from lstr.pipelines.evaluation.thresholds_by_actions import Scored
from lstr.timeline import Thresholds

# Overlap from which on a detection is of a label, for how late it begins
LEAST_IOU = 0.1
# How many labels that are told at once weigh beside an action's own
PRIOR_LABELS = 1


def backdated(
    rules: Mapping[str, Thresholds], videos: Sequence[Scored], classes: Sequence[str], clock: Clock = CLOCK
) -> dict[str, Thresholds]:
    """The rules with what suits each action as `backdate`, by the videos' scores and labels.

    It is the median of the seconds from the start of a label to that of its detection, drawn to none where there are
    few, in whole chunks; none where detections come early. The scores should be of what has not seen the videos: what
    knows them is early.
    """
    plain = _changed(rules, {})
    late: dict[str, list[float]] = {label: [] for label in classes if label not in (BACKGROUND, AMBIGUOUS)}
    for video in videos:
        found = detect_events(video.scores, classes, plain, video.truth, clock)
        for label, seconds in late.items():
            truth, detected = labelled_spans(video.truth, label, found.seconds), spans_of(found.detections, label)
            pairs = largest_pairs(truth, detected, overlaps(truth, detected) >= LEAST_IOU)
            seconds += (detected[pairs[:, 1], 0] - truth[pairs[:, 0], 0]).tolist()
    return _changed(rules, {label: _usual(seconds, clock) for label, seconds in late.items()})


def _usual(late: Sequence[float], clock: Clock) -> float:
    """What suits an action whose detections began so many seconds late."""
    if not late:
        return 0.0
    drawn = float(np.median(late)) * len(late) / (len(late) + PRIOR_LABELS)
    return float(clock.length(max(0, round(drawn / clock.seconds))))


def _changed(rules: Mapping[str, Thresholds], backdates: Mapping[str, float]) -> dict[str, Thresholds]:
    """The rules backdated by these alone."""
    return {label: replace(rule, backdate=backdates.get(label, 0.0)) for label, rule in rules.items()}

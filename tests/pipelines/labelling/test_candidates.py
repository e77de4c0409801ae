"""Detections and near misses of a score curve."""

import numpy as np
import pytest

from lstr.pipelines.labelling.proposals import find_candidates
from lstr.timeline import Thresholds, Timeline, segments_in

CLASSES = ("Background", "kick", "hug", "Ambiguous")


def scored(kick, hug=()) -> np.ndarray:
    scores = np.zeros((len(kick), 4))
    scores[:, 1] = kick
    scores[: len(hug), 2] = hug
    scores[:, 0] = 1 - scores[:, 1]
    return scores


def spans(scores, rules) -> list[tuple]:
    return [(one.label, one.start * 4, one.end * 4, one.peak) for one in find_candidates(scores, CLASSES, rules)]


def test_what_the_model_detects_and_what_it_nearly_does():
    rules = {"kick": Thresholds(0.6, 0.4), "hug": Thresholds(0.2, 0.1)}
    scores = scored([0, 0.7, 0.5, 0.1, 0, 0.35, 0.31, 0, 0.2], [0, 0, 0, 0.15, 0.05, 0, 0, 0.3])
    assert spans(scores, rules) == [
        ("kick", 1, 3, 0.7), ("kick", 5, 7, 0.35), ("hug", 7, 8, 0.3), ("hug", 3, 4, 0.15),
    ]  # fmt: skip
    assert [one.threshold for one in find_candidates(scores, CLASSES, rules)] == [0.6, 0.6, 0.2, 0.2]


def test_the_rise_and_fall_of_a_detection_are_no_near_misses():
    rules = Thresholds(0.6, 0.5)
    assert spans(scored([0.31, 0.4, 0.9, 0.45, 0.35, 0]), rules) == [("kick", 2, 3, 0.9)]
    again = scored([0.9, 0.35, 0.45, 0.31, 0])
    assert spans(again, rules) == [("kick", 0, 1, 0.9), ("kick", 1, 4, 0.45)], "another bump right behind it is one"


def test_of_actions_that_never_happen_together_the_highest_alone_is_proposed():
    scores = scored([0.5, 0.5, 0.3, 0.3], [0.4, 0.4, 0.4, 0.4])
    assert spans(scores, Thresholds(0.5, 0.4, highest=True)) == [("kick", 0, 2, 0.5), ("hug", 2, 4, 0.4)]


@pytest.mark.parametrize("seed", range(4))
def test_detections_are_those_of_the_timeline_and_near_misses_lie_beside(seed):
    rng = np.random.default_rng(seed)
    scores = np.clip(np.cumsum(rng.normal(0, 0.15, (400, 4)), axis=0) % 1.6, 0, 1)
    rules = Thresholds(0.7, 0.5, min_length=0.5, merge_gap=0.25, highest=bool(seed % 2))
    timeline = Timeline(CLASSES, rules)
    events = [event for at, row in enumerate(scores) for event in timeline.push((at + 1) / 4, row)]
    detected = {(one.label, one.start, one.end) for one in segments_in([*events, *timeline.finish(100)])}
    found = find_candidates(scores, CLASSES, rules)
    assert detected and detected <= {(one.label, one.start, one.end) for one in found}
    near = [one for one in found if (one.label, one.start, one.end) not in detected]
    assert near and all(0.35 <= one.peak for one in near)
    for label in ("kick", "hug"):
        in_order = sorted((one.start, one.end) for one in found if one.label == label)
        assert all(end <= start for (_, end), (start, _) in zip(in_order, in_order[1:], strict=False))


def test_nothing_comes_of_nothing():
    assert find_candidates(np.zeros((0, 4)), CLASSES, Thresholds()) == []
    assert find_candidates(np.zeros((20, 4)), CLASSES, Thresholds()) == []

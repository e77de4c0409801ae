"""Instances told as they end, beside a second implementation by loops, and what is special."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lstr.labels.segment import Segment
from lstr.metrics.actions import VideoEvents
from lstr.metrics.ranked import IOUS, measure_instances
from tests.support.drawn import CLASSES, cut, drawn_segments, plain_iou


def measure(*videos, **more):
    return measure_instances([VideoEvents(*video, seconds=20.0) for video in videos], CLASSES, **more)


# The second implementation: one list of detections over all videos, a lock on each label, precision and recall by hand.


def plain_average_precision(videos, label: str, least: float) -> float:
    labels = {(v, t) for v, (truth, _) in enumerate(videos) for t, one in enumerate(truth) if one.label == label}
    told = [(one.score, v, one) for v, (_, said) in enumerate(videos) for one in said if one.label == label]
    told.sort(key=lambda entry: -entry[0])
    locked, outcome = set(), []
    for score, v, one in told:
        of_video = [t for w, t in labels if w == v]
        by_overlap = sorted(of_video, key=lambda t: (-plain_iou(videos[v][0][t], one), t))
        right = False
        for t in by_overlap:
            if plain_iou(videos[v][0][t], one) < least:
                break
            if (v, t) not in locked:
                locked.add((v, t))
                right = True
                break
        outcome.append((score, right))
    recall, precision = [], []
    for score in sorted({score for score, _ in outcome}, reverse=True):
        above = [right for other, right in outcome if other >= score]
        recall.append(sum(above) / len(labels))
        precision.append(sum(above) / len(above))
    area, before = 0.0, 0.0
    for at, here in enumerate(recall):
        area += (here - before) * max(precision[at:])
        before = here
    return area


labelled = drawn_segments("hug", "point", least=0.25)
said = st.builds(lambda one, score: Segment(one.start, one.end, one.label, score / 5), labelled, st.integers(0, 5))
video = st.tuples(st.lists(labelled, max_size=5), st.lists(said, max_size=7))


@settings(max_examples=60)
@given(st.lists(video, min_size=1, max_size=4))
def test_every_figure_is_that_of_the_second_implementation(videos):
    found = measure(*videos)
    present = [label for label in ("hug", "point") if any(s.label == label for truth, _ in videos for s in truth)]
    assert list(found["per_class"]) == present
    of_class = {label: [plain_average_precision(videos, label, least) for least in IOUS] for label in present}
    for label, values in of_class.items():
        assert found["per_class"][label]["AP"] == pytest.approx(values)
        assert found["per_class"][label]["mean"] == pytest.approx(np.mean(values))
    expected = np.mean(list(of_class.values()), axis=0) if present else [math.nan] * len(IOUS)
    assert found["mAP"] == pytest.approx(list(expected), nan_ok=True)


def test_how_late_instances_are_told():
    truth = cut((1, 3), (5, 7), (9, 11))
    told = [Segment(1, 3.5, "hug", 0.9), Segment(5, 6, "hug", 0.6), Segment(15, 16, "hug", 0.9)]
    found = measure_instances([VideoEvents(truth, told, 20.0, told=[4.0, 6.5, 16.5])], CLASSES)
    assert found["late"] == found["per_class"]["hug"]["late"] == {"p50": 0.25, "p95": pytest.approx(0.25 + 0.45 * 1.5)}
    assert measure((truth, told))["late"] == {"p50": None, "p95": None}


def test_what_is_mostly_ambiguous_is_left_out_unless_it_finds_a_label():
    truth = [Segment(0, 2, "hug"), Segment(10, 14, "Ambiguous")]
    told = [Segment(0, 2, "hug", 0.5), Segment(10, 14, "hug", 0.9), Segment(13, 16, "hug", 0.9)]
    assert measure((truth, told[:2]))["mean"] == 1.0
    assert measure((truth, told))["mean"] == 0.5  # the last is ambiguous in a third of it


def test_no_score_no_video_and_labels_behind_the_end():
    assert math.isnan(measure_instances([], CLASSES)["mean"])
    assert measure((cut((0, 2)), cut((0, 2))))["mean"] == 1.0  # told without a score
    entry = measure((cut((8, 30), (25, 26)), [Segment(8, 20, "hug", 0.9)]))["per_class"]["hug"]
    assert (entry["labels"], entry["said"], entry["mean"]) == (1, 1, 1.0)

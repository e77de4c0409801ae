"""What one model catches and another misses, on scores and detections made by hand."""

import numpy as np
import pytest

from lstr.labels.label_set import AMBIGUOUS, BACKGROUND, Labels, VideoLabels
from lstr.labels.segment import Segment
from lstr.pipelines.comparison.differences import Moment, find_differences
from lstr.pipelines.evaluation.held_out import HeldOut
from lstr.pipelines.evaluation.verdict import FEWEST

CLASSES = (BACKGROUND, "fall", "sit")
NAMES = ("model 1", "model 2")


def held_out(detections: dict[str, list], classes=CLASSES, chunks: int = 40) -> HeldOut:
    """Detections (label, start, end) by video, and scores that are 1 where they are."""
    scores = {i: np.zeros((chunks, len(classes)), np.float32) for i in detections}
    for i, found in detections.items():
        for label, start, end in found:
            scores[i][int(4 * start) : int(4 * end), classes.index(label)] = 1
    return HeldOut(classes, scores, {i: tuple(Segment(a, b, c, 1.0) for c, a, b in f) for i, f in detections.items()})


def labels(videos: dict[str, list], classes=CLASSES) -> Labels:
    segments = {i: tuple(Segment(a, b, label) for label, a, b in found) for i, found in videos.items()}
    return Labels(classes, {i: VideoLabels("training", 10.0, some) for i, some in segments.items()})


def test_each_change_is_named_with_its_moment():
    truth = labels({"a": [("fall", 1, 3), ("sit", 5, 7)], "b": [("fall", 2, 4)]})
    old = held_out({"a": [("fall", 1, 3), ("sit", 8, 9)], "b": [("sit", 6, 7)]})
    new = held_out({"a": [("sit", 5, 7)], "b": [("fall", 2, 4), ("sit", 6.5, 7.5), ("fall", 8, 9)]})
    found = find_differences(NAMES, old, new, truth)
    assert found.caught == [Moment("a", "sit", 5, 7), Moment("b", "fall", 2, 4)]
    assert found.missed == [Moment("a", "fall", 1, 3)]
    assert found.gone == [Moment("a", "sit", 8, 9)], "that of b is there still, a little later"
    assert found.come == [Moment("b", "fall", 8, 9)]
    assert found.actions["fall"] == {"labels": 2, "found_old": 1, "found_new": 1, "false_old": 0, "false_new": 1}
    assert found.actions["sit"] == {"labels": 1, "found_old": 0, "found_new": 1, "false_old": 2, "false_new": 1}
    assert "cannot be told from fewer than" in found.verdict["sentence"] and list(found.videos) == ["a", "b"]


def test_what_is_more_than_chance_is_said():
    some = [f"v{at}" for at in range(FEWEST + 2)]
    truth = labels({i: [("fall", 1, 3)] for i in some})
    old, new = held_out({i: [("fall", 5, 6)] for i in some}), held_out({i: [("fall", 1, 3)] for i in some})
    verdict = find_differences(NAMES, old, new, truth).verdict
    assert verdict["better"] == "model 2" and "by more than chance" in verdict["sentence"]
    assert verdict["mAP"]["interval"][0] > 0 and verdict["mAP"]["new"] == 1


def test_only_videos_and_actions_of_both_count():
    truth = labels({"a": [("fall", 1, 3), ("wave", 5, 6)], "b": [("fall", 1, 3)]}, (*CLASSES, "wave", AMBIGUOUS))
    old = held_out({"a": [("fall", 1, 3)], "c": []})
    new = held_out({"a": [("fall", 1, 3), ("wave", 5, 6)], "b": []}, (BACKGROUND, "sit", "fall", "wave", AMBIGUOUS))
    found = find_differences(NAMES, old, new, truth)
    assert (list(found.videos), found.left_out) == (["a"], ["wave"])
    assert not (found.caught or found.missed or found.gone or found.come)
    assert found.verdict["mAP"]["difference"] == 0 and found.actions["fall"]["found_new"] == 1


def test_an_action_that_was_renamed_is_the_same():
    truth = labels({"a": [("tumble", 1, 3)]}, (BACKGROUND, "tumble", "sit"))
    old, new = held_out({"a": [("fall", 1, 3)]}), held_out({"a": []}, (BACKGROUND, "tumble", "sit"))
    found = find_differences(NAMES, old, new, truth, {"fall": "tumble"})
    assert found.missed == [Moment("a", "tumble", 1, 3)] and not found.left_out


def test_labels_that_say_nothing_of_a_stretch_make_no_false_alarm():
    truth = labels({"a": [("fall", 1, 3), (AMBIGUOUS, 5, 10)]}, (*CLASSES, AMBIGUOUS))
    old, new = held_out({"a": [("fall", 1, 3)]}), held_out({"a": [("fall", 1, 3), ("fall", 6, 8)]})
    assert not find_differences(NAMES, old, new, truth).come


@pytest.mark.parametrize("old", [{"b": []}, {}])
def test_nothing_to_compare(old):
    assert find_differences(NAMES, held_out(old), held_out({"a": []}), labels({"a": [("fall", 1, 2)]})) is None


def test_it_is_json(tmp_path):
    import json

    found = find_differences(NAMES, held_out({"a": []}), held_out({"a": []}), labels({"a": []}))
    document = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert document["verdict"]["mAP"]["new"] is None and document["videos"] == ["a"]

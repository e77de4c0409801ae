"""Kinds of errors of events, made by hand, and beside a second implementation on a grid of quarter seconds."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.metrics.actions import VideoEvents, measure_events
from lstr.metrics.event_errors import OF_DETECTIONS, OF_LABELS, judge_events, measure_errors
from tests.support.drawn import CLASSES, cut, drawn_segments


def kinds(truth, detections, label="hug"):
    """The names of the kinds of a class's labels and detections; '' of one that is left out."""
    one = judge_events(VideoEvents(truth, detections, 60.0), CLASSES)[label]
    return [OF_LABELS[k] for k in one.labels], [OF_DETECTIONS[k] if k >= 0 else "" for k in one.detected]


@pytest.mark.parametrize(
    ("truth", "detections", "expected"),
    [
        (cut((2, 4)), cut((2, 4.6)), (["edges"], ["edges"])),
        (cut((2, 4)), cut((4, 6)), (["deleted"], ["inserted"])),  # they touch
        (cut((2, 3)), cut((1.2, 1.8)), (["edges"], ["edges"])),  # found by its start, though they do not overlap
        (cut((3, 3)), cut((2, 6)), (["edges"], ["edges"])),  # what lasts no time lies in the other
        (cut((2, 4)) + cut((20, 24), label="Ambiguous"), cut((21, 24), (2, 4)), (["correct"], ["", "correct"])),
    ],
)
def test_kinds_made_by_hand(truth, detections, expected):
    assert kinds(truth, detections) == expected


def test_a_wrong_action_overlaps_what_has_none_of_its_own():
    truth, both = cut((2, 6)), [*cut((2, 6)), *cut((2, 6), label="point")]
    assert kinds(both, both[1:]) == (["deleted"], []), "the pointing is itself, not the hug"
    assert kinds(truth, both, "point") == ([], ["wrong_action"]), "said of a hug, which is found as well"
    assert kinds(truth, both) == (["correct"], ["correct"])


def test_edges_are_early_and_late():
    truth = cut((2, 4), (10, 12), (20, 22))
    found = measure_errors([VideoEvents(truth, cut((3, 4), (9, 12), (20.25, 24)), 60.0)], CLASSES)["together"]
    assert found["start"] == {"early": 1, "late": 1, "median": 0.25}
    assert found["end"] == {"early": 0, "late": 1, "median": 0.0}
    assert measure_errors([], CLASSES)["together"]["start"] == {"early": 0, "late": 0, "median": None}


def plain_kinds(truth, detections):
    """The second implementation: sets of cells of a grid, without what is found by its start alone."""

    def cells(segment):
        return set(range(round(4 * segment.start), round(4 * segment.end)))

    def partners(one, others):
        return [other for other in others if other.label == one.label and cells(one) & cells(other)]

    def kind(one, ours, theirs, names):
        correct, off, pieces, as_one, both = names
        near = partners(one, theirs)
        in_pieces, merged = (len(near) > 1, any(len(partners(other, ours)) > 1 for other in near))
        if in_pieces or merged:
            return both if in_pieces and merged else pieces if in_pieces else as_one
        return off if max(abs(one.start - near[0].start), abs(one.end - near[0].end)) > 0.5 else correct

    lone = [d for d in detections if not partners(d, truth)]
    of_labels = []
    for label in truth:
        if partners(label, detections):
            of_labels.append(kind(label, truth, detections, OF_LABELS[:5]))
        else:
            of_labels.append("wrong_action" if any(cells(label) & cells(d) for d in lone) else "deleted")
    of_detections = []
    names = ("correct", "edges", "merging", "fragment", "fragment_merging")  # seen from the other side
    for detection in detections:
        if detection not in lone:
            of_detections.append(kind(detection, detections, truth, names))
        else:
            met = any(cells(detection) & cells(label) for label in truth)
            of_detections.append("wrong_action" if met else "inserted")
    return Counter(of_labels), Counter(of_detections)


segments = st.lists(drawn_segments("hug", "point", least=0.25), max_size=5)


@given(st.lists(st.tuples(segments, segments), max_size=3))
def test_kinds_are_those_of_the_second_implementation_and_add_up(drawn):
    videos = [VideoEvents(*one, seconds=30.0) for one in drawn]
    errors, counted = measure_errors(videos, CLASSES), measure_events(videos, CLASSES)
    for label, one in (*errors["per_class"].items(), ("", errors["together"])):
        figures = counted["per_class"][label] if label else counted["together"]
        sums = {of: sum(one[of].values()) for of in ("labels", "missed", "detections", "false_alarms")}
        assert sums == {of: figures[of] for of in sums}
        assert one["false_alarms"]["correct"] == one["missed"]["correct"] == 0
        assert one["missed"]["deleted"] == one["labels"]["deleted"], "what is found is never nothing"
        assert one["false_alarms"]["inserted"] == one["detections"]["inserted"]
    if not any(map(_found_apart, videos)):
        kinds = [plain_kinds(truth, detected) for truth, detected in drawn]
        assert +Counter(errors["together"]["labels"]) == sum((of_labels for of_labels, _ in kinds), Counter())
        assert +Counter(errors["together"]["detections"]) == sum((of for _, of in kinds), Counter())


def _found_apart(video: VideoEvents) -> bool:
    """Whether a detection may find a label by its start that it does not overlap."""
    return any(
        a.label == b.label and abs(a.start - b.start) <= 1 and min(a.end, b.end) <= max(a.start, b.start)
        for a in video.truth
        for b in video.detections
    )

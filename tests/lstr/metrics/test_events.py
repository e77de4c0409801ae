"""Events against labels: metrics, kinds of errors and agreement, beside second implementations."""

import warnings
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from lstr.metrics.actions import VideoEvents, find, measure_events, overlaps, sentence, spans_of
from lstr.metrics.event_errors import (
    OF_DETECTIONS,
    OF_LABELS,
    judge_events,
    measure_errors,
    measure_kappa,
    without_ambiguous,
)
from lstr.metrics.intervals import draw, rate_interval
from tests.support.drawn import CLASSES, cut, drawn_segments, plain_iou


def measure(truth, detections, seconds=60.0, **more):
    return measure_events([VideoEvents(truth, detections, seconds, **more)], CLASSES)


def plain_pairs(truth, detections, fits) -> int:
    few, many = sorted((truth, detections), key=len)
    return max(
        sum(fits(a, b) or fits(b, a) for a, b in zip(few, chosen, strict=True))
        for chosen in permutations(many, len(few))
    )


segment = drawn_segments("hug", "point")
video = st.tuples(st.lists(segment, max_size=5), st.lists(segment, max_size=5))
RULES = {
    ("iou", "0.3"): lambda a, b: plain_iou(a, b) >= 0.3,
    ("iou", "0.5"): lambda a, b: plain_iou(a, b) >= 0.5,
    ("onset", "0.5"): lambda a, b: abs(a.start - b.start) <= 0.5,
    ("onset", "1.0"): lambda a, b: abs(a.start - b.start) <= 1,
    ("onset", "2.0"): lambda a, b: abs(a.start - b.start) <= 2,
    ("onset", "5.0"): lambda a, b: abs(a.start - b.start) <= 5,
    ("edges", "0.5"): lambda a, b: max(abs(a.start - b.start), abs(a.end - b.end)) <= 0.5,
    ("edges", "2.0"): lambda a, b: max(abs(a.start - b.start), abs(a.end - b.end)) <= 2,
    ("found", ""): lambda a, b: plain_iou(a, b) >= 0.3 or abs(a.start - b.start) <= 1,
}


@given(st.lists(video, min_size=1, max_size=3))
def test_every_rule_pairs_as_many_as_the_best_of_all_assignments(drawn):
    document = measure_events([VideoEvents(*one, seconds=10.0) for one in drawn], CLASSES)
    for (kind, limit), fits in RULES.items():
        pairs, labels, detections = {"hug": 0, "point": 0}, {"hug": 0, "point": 0}, {"hug": 0, "point": 0}
        for truth, detected in drawn:
            for label in pairs:
                ours, theirs = [[s for s in some if s.label == label] for some in (truth, detected)]
                pairs[label] += plain_pairs(ours, theirs, fits)
                labels[label] += len(ours)
                detections[label] += len(theirs)
        for label, entry in (*document["per_class"].items(), ("", document["together"])):
            p, n, d = (sum(some.values()) if not label else some[label] for some in (pairs, labels, detections))
            if kind == "found":
                assert (entry["found"], entry["missed"], entry["false_alarms"]) == (p, n - p, d - p)
                assert (entry["labels"], entry["detections"]) == (n, d)
                continue
            expected = (p / d if d else None, p / n if n else None, 2 * p / (n + d) if n + d else None)
            assert tuple(entry[kind][limit][name] for name in ("precision", "recall", "f1")) == expected


@given(video)
def test_false_seconds_are_counted_by_the_millisecond(drawn):
    """Every time is a multiple of 250 ms, so the state within each quarter is that of its middle."""
    document = measure(*drawn)
    for label in ("hug", "point"):
        ours, theirs = [[s for s in some if s.label == label] for some in drawn]
        within = [
            any(s.start < t < s.end for s in theirs) and not any(s.start < t < s.end for s in ours)
            for t in np.arange(0.125, 10, 0.25)
        ]
        assert document["per_class"][label]["false_seconds"] == pytest.approx(0.25 * sum(within))


@given(*[st.lists(drawn_segments("hug"), min_size=1, max_size=4)] * 2)
def test_overlaps_and_pairs(a, b):
    ious = overlaps(spans_of(a, "hug"), spans_of(b, "hug"))
    assert ious == pytest.approx(np.array([[plain_iou(s, t) for t in b] for s in a]))
    pairs = find(spans_of(a, "hug"), spans_of(b, "hug"))
    assert len({t for t, _ in pairs}) == len({d for _, d in pairs}) == len(pairs)
    assert all(RULES["found", ""](a[t], b[d]) for t, d in pairs)
    apart = sum(abs(a[t].start - b[d].start) for t, d in pairs)
    for ways in combinations(range(len(a)), len(pairs)):
        for chosen in permutations(range(len(b)), len(pairs)):
            if all(RULES["found", ""](a[t], b[d]) for t, d in zip(ways, chosen, strict=True)):
                assert apart <= sum(abs(a[t].start - b[d].start) for t, d in zip(ways, chosen, strict=True)) + 1e-9


def test_edges_of_tolerances_belong_to_them_whatever_the_binary_fractions():
    # in binary 2.2 is more than 1 after 1.2
    assert measure(cut((1.2, 1.3)), cut((2.2, 9)))["together"]["onset"]["1.0"]["recall"] == 1
    assert measure(cut((1.2, 1.3)), cut((2.21, 9)))["together"]["found"] == 0
    assert measure(cut((0, 0.3 * 7)), cut((0, 7)))["together"]["iou"]["0.3"]["f1"] == 1


def test_delays_are_from_the_label_to_the_announcement():
    truth = cut((10, 12), (20, 22), (40, 41))
    entry = measure(truth, cut((10.5, 12), (19, 22)), announced=[11.0, 19.25])["together"]
    assert entry["delay"]["p50"] == pytest.approx((1.0 - 0.75) / 2)
    assert entry["delay"]["p95"] == pytest.approx(-0.75 + 0.95 * 1.75)


def test_nothing_is_divided_by_nothing():
    assert measure([], cut((30, 31)))["per_class"]["hug"]["false_alarms_per_hour"] == 60
    nothing = measure_events([], CLASSES)
    assert nothing["hours"] == 0 and nothing["together"]["false_alarms_per_hour"] is None
    empty = measure_events([VideoEvents(cut((0, 1)), [], 0.0)], CLASSES, draw(1, 10))["together"]
    assert empty["labels"] == 0 and len(empty["interval"]) == 12 and set(empty["interval"].values()) == {None}


def test_background_other_classes_and_what_lies_behind_the_end_do_not_count():
    truth = [*cut((1, 2)), *cut((0, 60), label="Background"), *cut((3, 4), label="wave"), *cut((60, 61), (70, 80))]
    document = measure(truth, [*cut((1, 2)), *cut((5, 6), label="Background"), *cut((5, 6), label="wave")])
    assert document["per_class"].keys() == {"hug", "point"}
    assert (document["together"]["labels"], document["together"]["detections"]) == (1, 1)
    assert measure(cut((58, 90)), cut((55, 60)))["together"]["iou"]["0.3"]["recall"] == 1, "a label ends with its video"


def test_what_is_mostly_ambiguous_is_no_false_alarm():
    truth = [*cut((1, 3)), *cut((20, 22), label="Ambiguous")]
    entry = measure(truth, cut((1, 3), (20, 24), (21.5, 30)))["together"]
    assert (entry["found"], entry["false_alarms"], entry["detections"]) == (1, 1, 2)
    assert entry["iou"]["0.5"]["precision"] == 0.5 and entry["false_seconds"] == 8
    moments = measure(truth, cut((10, 10), (21, 21)))["together"]
    assert (moments["false_alarms"], moments["detections"]) == (1, 1), "none is excused for what is ambiguous elsewhere"


def test_the_rate_has_the_interval_of_its_count():
    videos = [VideoEvents(cut((1, 3)), cut((t, t + 1)), 60.0) for t in (1, 20, 40)]
    rate = rate_interval(2, 3 / 60)
    assert measure_events(videos, CLASSES)["together"]["interval"] == {"false_alarms_per_hour": rate}
    assert measure_events(videos, CLASSES, draw(3, 9))["together"]["interval"]["false_alarms_per_hour"] == rate


def test_the_sentence_has_the_figures():
    together = {"found": 50, "labels": 60, "false_alarms": 6, "delay": {"p50": 0.31}}
    entries = {label: {"found": found, "labels": 10} for label, found in (("hug", 10), ("point", 2))}
    text = sentence({"hours": 2.0, "together": together, "per_class": entries})
    assert all(figure in text for figure in ("50", "60", "3.0", "1.1", "6.5", "0.3 s", "hug (10 of 10)", "2 of 10"))


def kinds(truth, detections, label="hug"):
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


sides = st.tuples(*[st.lists(drawn_segments("hug", "point", "Ambiguous"), max_size=4)] * 2)


def plain_frames(segments, seconds):
    """The actions of each quarter second, as text; ? where it is ambiguous."""
    frames = []
    for k in range(round(4 * seconds)):
        on = {s.label for s in segments if s.start < (k + 1) / 4 and s.end > k / 4}
        frames.append("?" if "Ambiguous" in on else " ".join(sorted(on)))
    return frames


@given(st.lists(sides, max_size=3))
def test_kappa_is_that_of_scikit_learn(drawn):
    found = measure_kappa([VideoEvents(*one, seconds=7.0) for one in drawn], CLASSES)
    frames = [(plain_frames(truth, 7.0), plain_frames(others, 7.0)) for truth, others in drawn]
    pairs = [pair for sides in frames for pair in zip(*sides, strict=True) if "?" not in pair]
    assert found["chunks"] == len(pairs)
    if not pairs:
        assert found["together"] is None
        return
    one, other = zip(*pairs, strict=True)
    assert same_kappa(found["together"], one, other)
    for label in ("hug", "point"):
        assert same_kappa(found["per_class"][label], *([label in f.split() for f in side] for side in (one, other)))


def same_kappa(found, one, other) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of nothing to divide by, which is None here
        expected = cohen_kappa_score(list(one), list(other))
    return found is None if np.isnan(expected) else found == pytest.approx(expected)


def test_events_that_are_ambiguous_to_the_other_side_are_dropped():
    unsure = cut((10, 20), label="Ambiguous")
    one, other = [*cut((2, 4), (30, 30)), *unsure], cut((2, 4), (9, 12), (9, 10.5), (15, 15), (30, 30))
    kept = without_ambiguous(VideoEvents(one, other, 40.0))
    assert (kept.truth, kept.detections) == (one, cut((2, 4), (9, 10.5), (30, 30)))
    kept = without_ambiguous(VideoEvents(other, one, 40.0))
    assert (kept.truth, kept.detections) == (cut((2, 4), (9, 10.5), (30, 30)), one)
    near = VideoEvents([*cut((2, 4)), *cut((4, 8), label="Ambiguous")], cut((2, 7)), 10.0)
    assert without_ambiguous(near) == near, "the other has an event of the action there"

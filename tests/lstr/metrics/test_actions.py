"""Event metrics, beside a second implementation that tries every assignment."""

from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lstr.metrics.actions import VideoEvents, find, measure_events, overlaps, sentence, spans_of
from lstr.metrics.intervals import draw, rate_interval
from tests.support.drawn import CLASSES, cut, drawn_segments, plain_iou


def measure(truth, detections, seconds=60.0, **more):
    return measure_events([VideoEvents(truth, detections, seconds, **more)], CLASSES)


def plain_pairs(truth, detections, fits) -> int:
    """The most pairs of any assignment."""
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


@pytest.mark.parametrize(
    "found, labels, false, hours, delay, figures",
    [
        (50, 60, 6, 2.0, 0.31, ("50", "60", "3.0", "1.1", "6.5", "0.3 s", "hug", "10 of 10", "point", "2 of 10")),
        (1, 1, 0, 2.0, None, ("1 of 1", "2.0 hours", "1.5")),
        (0, 0, 1, 0.01, None, ("36 s", "100", "2.5", "560")),
        (1, 2, 3, 0.5, -0.26, ("30 minutes", "1.2", "18", "0.3 s early")),
    ],
)
def test_the_sentence_has_the_figures(found, labels, false, hours, delay, figures):
    together = {"found": found, "labels": labels, "false_alarms": false, "delay": {"p50": delay}}
    of_class = {"hug": (10, 10), "push": (9, 9), "point": (2, 10), "idle": (0, 0)}
    entries = {label: {"found": f, "labels": n} for label, (f, n) in of_class.items()}
    text = sentence({"hours": hours, "together": together, "per_class": entries})
    assert [figure for figure in figures if figure not in text] == []

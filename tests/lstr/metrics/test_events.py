"""Events against labels: metrics, types of errors and agreement, against second implementations."""

import warnings
from collections import Counter
from itertools import combinations, permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def within(seconds: str, *edges: str):
    return lambda a, b: max(abs(getattr(a, edge) - getattr(b, edge)) for edge in edges) <= float(seconds)


segment = drawn_segments("hug", "point")
video = st.tuples(st.lists(segment, max_size=5), st.lists(segment, max_size=5))
RULES = {
    ("iou", "0.3"): lambda a, b: plain_iou(a, b) >= 0.3,
    ("iou", "0.5"): lambda a, b: plain_iou(a, b) >= 0.5,
    **{("onset", seconds): within(seconds, "start") for seconds in ("0.5", "1.0", "2.0", "5.0")},
    **{("edges", seconds): within(seconds, "start", "end") for seconds in ("0.5", "2.0")},
    ("found", ""): lambda a, b: plain_iou(a, b) >= 0.3 or abs(a.start - b.start) <= 1,
}


@given(st.lists(video, min_size=1, max_size=3))
def test_every_rule_pairs_as_many_as_the_best_assignment(drawn):
    document = measure_events([VideoEvents(*pair, seconds=10.0) for pair in drawn], CLASSES)
    for (name, limit), fits in RULES.items():
        counts = {label: np.zeros(3, int) for label in ("hug", "point")}  # pairs, labels, detections
        for truth, detected in drawn:
            for label in counts:
                ours, theirs = [[s for s in side if s.label == label] for side in (truth, detected)]
                counts[label] += plain_pairs(ours, theirs, fits), len(ours), len(theirs)
        for label, entry in (*document["per_class"].items(), ("", document["together"])):
            p, n, d = map(int, counts[label] if label else sum(counts.values()))
            if name == "found":
                assert (entry["found"], entry["missed"], entry["false_alarms"]) == (p, n - p, d - p)
                assert (entry["labels"], entry["detections"]) == (n, d)
                continue
            expected = (p / d if d else None, p / n if n else None, 2 * p / (n + d) if n + d else None)
            assert tuple(entry[name][limit][figure] for figure in ("precision", "recall", "f1")) == expected


@given(video)
def test_false_seconds_equal_those_of_a_grid(drawn):
    """Every time is a multiple of 250 ms, so the state is constant in each quarter."""
    document = measure(*drawn)
    for label in ("hug", "point"):
        ours, theirs = [[s for s in side if s.label == label] for side in drawn]
        false = [
            any(s.start < t < s.end for s in theirs) and not any(s.start < t < s.end for s in ours)
            for t in np.arange(0.125, 10, 0.25)
        ]
        assert document["per_class"][label]["false_seconds"] == pytest.approx(0.25 * sum(false))


@given(*[st.lists(drawn_segments("hug"), min_size=1, max_size=4)] * 2)
def test_pairs_have_the_nearest_starts_of_all_assignments(a, b):
    ious = overlaps(spans_of(a, "hug"), spans_of(b, "hug"))
    assert ious == pytest.approx(np.array([[plain_iou(s, t) for t in b] for s in a]))
    pairs = find(spans_of(a, "hug"), spans_of(b, "hug"))
    assert len({t for t, _ in pairs}) == len({d for _, d in pairs}) == len(pairs)
    assert all(RULES["found", ""](a[t], b[d]) for t, d in pairs)
    distance = sum(abs(a[t].start - b[d].start) for t, d in pairs)
    for labels in combinations(a, len(pairs)):
        for chosen in permutations(b, len(pairs)):
            assignment = list(zip(labels, chosen, strict=True))
            if all(RULES["found", ""](s, t) for s, t in assignment):
                assert distance <= sum(abs(s.start - t.start) for s, t in assignment) + 1e-9


def test_tolerances_include_their_limits_in_spite_of_binary_fractions():
    # in binary 2.2 is more than 1 after 1.2
    assert measure(cut((1.2, 1.3)), cut((2.2, 9)))["together"]["onset"]["1.0"]["recall"] == 1
    assert measure(cut((1.2, 1.3)), cut((2.21, 9)))["together"]["found"] == 0
    assert measure(cut((0, 0.3 * 7)), cut((0, 7)))["together"]["iou"]["0.3"]["f1"] == 1


def test_delays_are_from_the_label_to_the_announcement():
    truth = cut((10, 12), (20, 22), (40, 41))
    delay = measure(truth, cut((10.5, 12), (19, 22)), announced=[11.0, 19.25])["together"]["delay"]
    assert delay["p50"] == pytest.approx((1.0 - 0.75) / 2) and delay["p95"] == pytest.approx(-0.75 + 0.95 * 1.75)


def test_no_labels_and_no_videos():
    assert measure([], cut((30, 31)))["per_class"]["hug"]["false_alarms_per_hour"] == 60
    nothing = measure_events([], CLASSES)
    assert nothing["hours"] == 0 and nothing["together"]["false_alarms_per_hour"] is None
    empty = measure_events([VideoEvents(cut((0, 1)), [], 0.0)], CLASSES, draw(1, 10))["together"]
    assert empty["labels"] == 0 and len(empty["interval"]) == 12 and set(empty["interval"].values()) == {None}


def test_background_unknown_classes_and_times_after_the_end_do_not_count():
    truth = [*cut((1, 2)), *cut((0, 60), label="Background"), *cut((3, 4), label="wave"), *cut((60, 61), (70, 80))]
    document = measure(truth, [*cut((1, 2)), *cut((5, 6), label="Background"), *cut((5, 6), label="wave")])
    assert document["per_class"].keys() == {"hug", "point"}
    assert (document["together"]["labels"], document["together"]["detections"]) == (1, 1)
    assert measure(cut((58, 90)), cut((55, 60)))["together"]["iou"]["0.3"]["recall"] == 1, "a label ends with its video"


def test_a_mostly_ambiguous_detection_is_not_a_false_alarm():
    truth = [*cut((1, 3)), *cut((20, 22), label="Ambiguous")]
    detections = cut((1, 3), (20, 24), (21.5, 30))
    entry = measure(truth, detections)["together"]
    errors = measure_errors([VideoEvents(truth, detections, 60.0)], CLASSES)["together"]["detections"]
    assert +Counter(errors) == {"correct": 1, "inserted": 1}
    assert (entry["found"], entry["false_alarms"], entry["detections"]) == (1, 1, 2)
    assert entry["iou"]["0.5"]["precision"] == 0.5 and entry["false_seconds"] == 8
    moments = measure(truth, cut((10, 10), (21, 21)))["together"]
    assert (moments["false_alarms"], moments["detections"]) == (1, 1)


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


@pytest.mark.parametrize(("truth", "detected"), [((2, 3), (1.2, 1.8)), ((3, 3), (2, 6))])
def test_a_label_without_an_overlap_or_a_length_has_a_detection_with_other_edges(truth, detected):
    judged = judge_events(VideoEvents(cut(truth), cut(detected), 60.0), CLASSES)["hug"]
    assert OF_LABELS[judged.labels[0]] == OF_DETECTIONS[judged.detected[0]] == "edges"


def test_edges_are_early_or_late():
    truth = cut((2, 4), (10, 12), (20, 22))
    errors = measure_errors([VideoEvents(truth, cut((3, 4), (9, 12), (20.25, 24)), 60.0)], CLASSES)["together"]
    assert errors["start"] == {"early": 1, "late": 1, "median": 0.25}
    assert errors["end"] == {"early": 0, "late": 1, "median": 0.0}
    assert measure_errors([], CLASSES)["together"]["start"] == {"early": 0, "late": 0, "median": None}


def plain_errors(truth, detections):
    """The second implementation: sets of cells of a grid, without labels that are found by their start only."""

    def cells(segment):
        return set(range(round(4 * segment.start), round(4 * segment.end)))

    def partners(event, side):
        return [other for other in side if other.label == event.label and cells(event) & cells(other)]

    def kind(event, ours, theirs, names):
        correct, off, pieces, merged, both = names
        near = partners(event, theirs)
        in_pieces, is_merged = len(near) > 1, any(len(partners(other, ours)) > 1 for other in near)
        if in_pieces or is_merged:
            return both if in_pieces and is_merged else pieces if in_pieces else merged
        return off if max(abs(event.start - near[0].start), abs(event.end - near[0].end)) > 0.5 else correct

    def unpaired(event, side, missing):
        return "wrong_action" if any(cells(event) & cells(other) for other in side) else missing

    lone = [d for d in detections if not partners(d, truth)]
    names = ("correct", "edges", "merging", "fragment", "fragment_merging")  # from the side of the detections
    of_labels = [
        kind(t, truth, detections, OF_LABELS[:5]) if partners(t, detections) else unpaired(t, lone, "deleted")
        for t in truth
    ]
    of_detections = [
        unpaired(d, truth, "inserted") if d in lone else kind(d, detections, truth, names) for d in detections
    ]
    return Counter(of_labels), Counter(of_detections)


segments = st.lists(drawn_segments("hug", "point", least=0.25), max_size=5)


@given(st.lists(st.tuples(segments, segments), max_size=3))
def test_types_of_errors_add_up_and_equal_those_of_the_second_implementation(drawn):
    videos = [VideoEvents(*pair, seconds=30.0) for pair in drawn]
    errors, counted = measure_errors(videos, CLASSES), measure_events(videos, CLASSES)
    for label, entry in (*errors["per_class"].items(), ("", errors["together"])):
        figures = counted["per_class"][label] if label else counted["together"]
        sums = {side: sum(entry[side].values()) for side in ("labels", "missed", "detections", "false_alarms")}
        assert sums == {side: figures[side] for side in sums}
        assert entry["false_alarms"]["correct"] == entry["missed"]["correct"] == 0
        assert entry["missed"]["deleted"] == entry["labels"]["deleted"]
        assert entry["false_alarms"]["inserted"] == entry["detections"]["inserted"]
    pairs = [(a, b) for truth, detected in drawn for a in truth for b in detected if a.label == b.label]
    if not any(abs(a.start - b.start) <= 1 and min(a.end, b.end) <= max(a.start, b.start) for a, b in pairs):
        plain = [plain_errors(*pair) for pair in drawn]
        for side, counts in (("labels", 0), ("detections", 1)):
            assert +Counter(errors["together"][side]) == sum((pair[counts] for pair in plain), Counter())


sides = st.tuples(*[st.lists(drawn_segments("hug", "point", "Ambiguous"), max_size=4)] * 2)


def plain_frames(segments):
    """The actions of each quarter of 7 seconds, as text; ? where it is ambiguous."""
    labels = [{s.label for s in segments if s.start < (k + 1) / 4 and s.end > k / 4} for k in range(28)]
    return ["?" if "Ambiguous" in frame else " ".join(sorted(frame)) for frame in labels]


@given(st.lists(sides, max_size=3))
def test_kappa_equals_that_of_scikit_learn(drawn):
    kappa = measure_kappa([VideoEvents(*pair, seconds=7.0) for pair in drawn], CLASSES)
    frames = [zip(*map(plain_frames, pair), strict=True) for pair in drawn]
    pairs = [pair for video in frames for pair in video if "?" not in pair]
    assert kappa["chunks"] == len(pairs)
    if not pairs:
        assert kappa["together"] is None
        return
    first, second = zip(*pairs, strict=True)
    assert is_kappa_of(kappa["together"], first, second)
    for label in ("hug", "point"):
        assert is_kappa_of(kappa["per_class"][label], *([label in f.split() for f in side] for side in (first, second)))


def is_kappa_of(kappa, first, second) -> bool:
    from sklearn.metrics import cohen_kappa_score  # takes a second, and each process of a test run collects all

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a division by 0, which is None here
        expected = cohen_kappa_score(list(first), list(second))
    return kappa is None if np.isnan(expected) else kappa == pytest.approx(expected)


def test_events_that_are_ambiguous_to_the_other_side_are_dropped():
    unsure = cut((10, 20), label="Ambiguous")
    first, second = [*cut((2, 4), (30, 30)), *unsure], cut((2, 4), (9, 12), (9, 10.5), (15, 15), (30, 30))
    expected = cut((2, 4), (9, 10.5), (30, 30))
    assert without_ambiguous(VideoEvents(first, second, 40.0)) == VideoEvents(first, expected, 40.0)
    assert without_ambiguous(VideoEvents(second, first, 40.0)) == VideoEvents(expected, first, 40.0)
    near = VideoEvents([*cut((2, 4)), *cut((4, 8), label="Ambiguous")], cut((2, 7)), 10.0)
    assert without_ambiguous(near) == near, "the other side has an event of the same action there"

"""The choice of thresholds with the highest F1 on drawn actions, and detection as in the timeline."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from lstr.chunk import CHUNK_SECONDS
from lstr.labels.segment import Segment
from lstr.pipelines.evaluation.thresholds import (
    Scored,
    are_apart,
    choose_rule,
    choose_without_each,
    count,
    curves_of,
    detect_spans,
    f1_of,
)
from lstr.timeline import DEFAULT, Thresholds, Timeline, segments_in

CLASSES = ("Background", "hug", "kick")


@given(
    arrays.arrays(
        np.float32, st.tuples(st.integers(0, 60), st.just(3)), elements=st.sampled_from([0.1, 0.3, 0.4, 0.5, 0.7, 0.9])
    ),
    st.sampled_from([0.3, 0.5, 0.7]),
    st.sampled_from([1.0, 0.7, 0.5]),
    st.sampled_from([0.0, 0.25, 0.5, 0.75]),
    st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    st.booleans(),
    st.sampled_from([0.0, 0.25, 1.1]),
)
def test_detected_spans_equal_the_timeline(scores, on, share, length, gap, highest, backdate):
    """Without backdating for `highest`: there, detections of other classes limit a backdated start."""
    rule = Thresholds(on, on * share, length, gap, highest, 0.0 if highest else backdate)
    timeline = Timeline(CLASSES, rule)
    events = [e for k, row in enumerate(scores) for e in timeline.push((k + 1) * CHUNK_SECONDS, row)]
    segments = segments_in(events + timeline.finish(len(scores) * CHUNK_SECONDS))
    curves = curves_of(scores, [1, 2], highest)
    for column, label in enumerate(CLASSES[1:]):
        expected = [[s.start, s.end] for s in segments if s.label == label]
        assert detect_spans(curves[:, column], rule).tolist() == expected


def two_minutes(*peaks: tuple, background: float = 0.05) -> Scored:
    """Return two minutes with peaks (offset, chunks, class, score, is labelled) every ten seconds."""
    rng = np.random.default_rng(0)
    scores = rng.uniform(0, background, (480, 3)).astype(np.float32)
    truth = []
    for start in range(20, 440, 40):
        for offset, length, c, score, is_labelled in peaks:
            chunks = slice(start + offset, start + offset + length)
            scores[chunks, c] = score
            truth += [Segment(chunks.start / 4, chunks.stop / 4, CLASSES[c])] * is_labelled
    return Scored(scores, truth)


HUGS = two_minutes((0, 8, 1, 0.6, True), background=0.2)


def test_a_minimum_length_excludes_single_chunks():
    videos = [two_minutes((0, 8, 1, 0.6, True), (20, 1, 1, 0.9, False), background=0.2)] * 2
    rule = choose_rule(videos, CLASSES)
    assert rule.f1 == 1.0 and rule.thresholds.min_length >= 0.5
    assert f1_of(count(videos, CLASSES[:2], [DEFAULT])).item() < 0.8


def test_the_fastest_of_equal_rules_is_chosen():
    rule = choose_rule([HUGS], CLASSES)
    assert rule.thresholds.delays() == {"started": 0.0, "ended": 0.0} and rule.thresholds.on == DEFAULT.on


def test_the_default_is_chosen_without_labels():
    rule = choose_rule([Scored(np.zeros((8, 3), np.float32), [])], CLASSES)
    assert rule.thresholds == DEFAULT and rule.f1 is None and rule.by_class == {"hug": DEFAULT, "kick": DEFAULT}


def test_training_videos_of_the_networks_do_not_raise_the_level():
    """Actions score .96, and peaks of one chunk .7: a higher level excludes them, or a minimum length."""
    video = Scored(HUGS.scores * np.float32(1.6), HUGS.truth)
    for chunk in (4, 5, 6):
        video.scores[chunk:480:40, 1] = 0.7
    assert choose_rule([video], CLASSES).thresholds.on > 0.7
    thresholds = choose_rule([video], CLASSES, seen=True).thresholds
    assert thresholds.on <= DEFAULT.on and thresholds.min_length == 0.75


def test_a_class_has_its_own_level_if_it_has_enough_labels():
    """Kicks score .35 and hugs .9, with unlabelled peaks of .5: no common level separates both."""
    hugs = ((0, 8, 1, 0.9, True), (20, 8, 1, 0.5, False))
    rule = choose_rule([two_minutes(*hugs, (0, 8, 2, 0.35, True))] * 3, CLASSES)
    assert rule.f1 == 1.0 and rule.by_class["kick"].on <= 0.35 < 0.5 < rule.by_class["hug"].on
    video = two_minutes(*hugs)
    video.scores[20:28, 2] = 0.35
    one_kick = Scored(video.scores, [*video.truth, Segment(5, 7, "kick")])
    assert choose_rule([one_kick], CLASSES).by_class["kick"].on > 0.35


def test_ambiguous_detections_are_not_counted():
    scores = np.zeros((40, 2), np.float32)
    scores[8:16, 1] = scores[24:32, 1] = 0.9
    truth = [Segment(2, 4, "hug"), Segment(6, 8, "Ambiguous")]
    assert count([Scored(scores, truth)], CLASSES[:2], [DEFAULT]).tolist() == [[[1, 1, 1]]]
    assert count([Scored(scores, truth[:1])], CLASSES[:2], [DEFAULT]).tolist() == [[[1, 2, 1]]]


def actions(n: int, *more: Segment) -> list[Segment]:
    """Return n actions of 2 s in a row, of two classes in turn, and more."""
    return [Segment(3 * k, 3 * k + 2, ("hug", "kick")[k % 2]) for k in range(n)] + list(more)


@pytest.mark.parametrize(
    ("videos", "expected"),
    [
        ([actions(10), actions(10)], True),
        ([actions(19)], False),  # too few labels
        ([[Segment(3 * k, 3 * k + 2, "hug") for k in range(30)]], False),  # a single class
        ([actions(20, Segment(1.9, 3, "kick"))], True),  # overlaps by less than a chunk
        ([actions(20), actions(2, Segment(1.5, 2.5, "kick"))], False),
        ([[Segment(0, 90, "sit"), *actions(20)]], False),  # a long action that began much earlier
        ([actions(20, Segment(0, 90, "Ambiguous"))], True),
        ([actions(20, Segment(0.5, 1.5, "hug"))], True),  # overlaps its own class
    ],
)
def test_actions_that_never_overlap(videos, expected):
    assert are_apart(videos) is expected


def test_only_the_highest_action_is_active_if_actions_never_overlap():
    """The other action scores .1 less, and more than the right one elsewhere: no threshold separates them."""
    truth = actions(24)
    scores = np.full((300, 3), 0.05, np.float32)
    for k, segment in enumerate(truth):
        chunks, high = slice(int(segment.start * 4), int(segment.end * 4)), (0.55, 0.75, 0.95)[k % 3]
        scores[chunks, 1:] = (high, high - 0.1) if segment.label == "hug" else (high - 0.1, high)
    rule = choose_rule([Scored(scores, truth)], CLASSES)
    assert rule.f1 == 1.0 and all(own.highest for own in rule.by_class.values())
    overlapping = [*truth, Segment(70, 72, "hug"), Segment(70, 72, "kick")]
    rule = choose_rule([Scored(scores, overlapping)], CLASSES)
    assert rule.f1 < 0.9 and not rule.thresholds.highest
    rule, without_each = choose_without_each([[Scored(scores, truth)]] * 2, CLASSES)
    assert rule.thresholds.highest and all(own.thresholds.highest for own in without_each)

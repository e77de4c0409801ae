"""The rule that is chosen finds planted actions, and its spans are those of the timeline."""

import numpy as np
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

CLASSES = ("Background", "hug")


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
def test_spans_are_those_of_the_timeline(scores, on, share, length, gap, highest, backdate):
    """Only one class's own detections bound a backdated start where the highest alone is on."""
    rule = Thresholds(on, on * share, length, gap, highest, 0.0 if highest else backdate)
    timeline = Timeline(("Background", "hug", "kick"), rule)
    events = [e for k, row in enumerate(scores) for e in timeline.push((k + 1) * CHUNK_SECONDS, row)]
    segments = segments_in(events + timeline.finish(len(scores) * CHUNK_SECONDS))
    curves = curves_of(scores, [1, 2], highest)
    for column, label in enumerate(("hug", "kick")):
        expected = [[s.start, s.end] for s in segments if s.label == label]
        assert detect_spans(curves[:, column], rule).tolist() == expected


def scored(rng, flicker: bool) -> Scored:
    """Two minutes with an action of 2 s every 10 s at a score of .6; and where it flickers single chunks of .9."""
    scores = rng.uniform(0, 0.2, (480, 2)).astype(np.float32)
    truth = []
    for start in range(20, 440, 40):
        scores[start : start + 8, 1] = 0.6
        truth.append(Segment(start / 4, start / 4 + 2, "hug"))
        if flicker:
            scores[start + 20, 1] = 0.9
    return Scored(scores, truth)


def test_what_flickers_is_told_by_its_length():
    videos = [scored(np.random.default_rng(seed), flicker=True) for seed in range(2)]
    rule = choose_rule(videos, CLASSES)
    assert rule.f1 == 1.0 and rule.thresholds.min_length >= 0.5
    assert f1_of(count(videos, CLASSES, [DEFAULT])).item() < 0.8


def test_of_rules_that_are_as_good_the_quickest_is_taken_and_without_a_label_the_default():
    rule = choose_rule([scored(np.random.default_rng(0), flicker=False)], CLASSES)
    assert rule.thresholds.delays() == {"started": 0.0, "ended": 0.0} and rule.thresholds.on == DEFAULT.on
    rule = choose_rule([Scored(np.zeros((8, 2), np.float32), [])], CLASSES)
    assert rule.thresholds == DEFAULT and rule.f1 is None and rule.by_class == {"hug": DEFAULT}


def test_videos_that_networks_have_seen_ask_for_no_higher_level():
    videos = [scored(np.random.default_rng(0), flicker=False)]
    videos[0].scores[:, 1] *= 1.6  # an action at .96, and all else up to .32
    for chunk in (4, 5, 6):  # what a level above .7 would leave out, and no length does
        videos[0].scores[chunk:480:40, 1] = 0.7
    assert choose_rule(videos, CLASSES).thresholds.on > 0.7
    seen = choose_rule(videos, CLASSES, seen=True).thresholds
    assert seen.on <= DEFAULT.on and seen.min_length == 0.75


def test_a_class_takes_its_own_level_where_it_has_the_labels_for_it():
    """Kicks score .35 and hugs .9, with peaks of .5 where no hug is: one level cannot serve both."""
    classes = ("Background", "hug", "kick")

    def video(n_kicks: int) -> Scored:
        scores, truth = np.full((480, 3), 0.05, np.float32), []
        for k, start in enumerate(range(20, 440, 40)):
            scores[start : start + 8, 1], scores[start + 20 : start + 28, 1] = 0.9, 0.5
            truth.append(Segment(start / 4, start / 4 + 2, "hug"))
            if k < n_kicks:
                scores[start : start + 8, 2] = 0.35
                truth.append(Segment(start / 4, start / 4 + 2, "kick"))
        return Scored(scores, truth)

    own = choose_rule([video(11)] * 3, classes)
    assert own.f1 == 1.0 and own.by_class["kick"].on <= 0.35 < 0.5 < own.by_class["hug"].on
    assert choose_rule([video(1)], classes).by_class["kick"].on > 0.35, "one label is no reason"


def test_what_is_mostly_ambiguous_is_not_counted():
    scores = np.zeros((40, 2), np.float32)
    scores[8:16, 1] = scores[24:32, 1] = 0.9
    truth = [Segment(2, 4, "hug"), Segment(6, 8, "Ambiguous")]
    assert count([Scored(scores, truth)], CLASSES, [DEFAULT]).tolist() == [[[1, 1, 1]]]
    assert count([Scored(scores, truth[:1])], CLASSES, [DEFAULT]).tolist() == [[[1, 2, 1]]]


def labelled(n: int, *more: Segment) -> list[Segment]:
    """So many actions of 2 s, one after the other, of two names in turn."""
    return [Segment(3 * k, 3 * k + 2, ("hug", "kick")[k % 2]) for k in range(n)] + list(more)


def test_actions_are_apart_where_enough_labels_show_it():
    assert are_apart([labelled(10), labelled(10)])
    assert not are_apart([labelled(19)]), "so few may be apart by chance"
    assert not are_apart([[Segment(3 * k, 3 * k + 2, "hug") for k in range(30)]]), "there is nothing to be apart from"
    assert are_apart([labelled(20, Segment(1.9, 3, "kick"))]), "edges overlap by less than a chunk"
    assert not are_apart([labelled(20), labelled(2, Segment(1.5, 2.5, "kick"))])
    assert not are_apart([[Segment(0, 90, "sit"), *labelled(20)]]), "what began long ago is still on"
    assert are_apart([labelled(20, Segment(0, 90, "Ambiguous"))])
    assert are_apart([labelled(20, Segment(0.5, 1.5, "hug"))]), "one action with itself is not another"


def test_where_actions_are_apart_only_the_highest_is_on():
    """The other action scores a little less, and more than the right one elsewhere: no threshold tells them apart."""
    truth = labelled(24)
    scores = np.full((300, 3), 0.05, np.float32)
    for k, segment in enumerate(truth):
        chunks, high = slice(int(segment.start * 4), int(segment.end * 4)), (0.55, 0.75, 0.95)[k % 3]
        scores[chunks, 1:] = (high, high - 0.1) if segment.label == "hug" else (high - 0.1, high)
    classes = ("Background", "hug", "kick")
    rule = choose_rule([Scored(scores, truth)], classes)
    assert rule.f1 == 1.0 and all(one.highest for one in rule.by_class.values())
    together = choose_rule([Scored(scores, [*truth, Segment(70, 72, "hug"), Segment(70, 72, "kick")])], classes)
    assert together.f1 < 0.9 and not together.thresholds.highest
    whole, each = choose_without_each([[Scored(scores, truth)]] * 2, classes)
    assert whole.thresholds.highest and all(one.thresholds.highest for one in each)

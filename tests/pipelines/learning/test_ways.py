"""Which models a way is made of, and which way is taken; no model that measures a fold has learnt from it."""

import pytest

from lstr.labels.label_set import Labels
from lstr.pipelines.learning.pace import RUN_STARTING, affordable, crossing_seconds
from lstr.pipelines.learning.parts import LabelParts
from lstr.pipelines.learning.ways import (
    AS_GOOD,
    OVER_STREAMS,
    Candidate,
    Run,
    Way,
    best_of,
    candidates_of,
    measured_runs,
    share_of,
    streams_among,
    ways_again,
    ways_of,
)

LABELS = Labels((), {})
A, B, C = (Candidate(name, "rnn-small") for name in "abc")


@pytest.mark.parametrize("n_folds", [2, 3, 5])
def test_what_measures_a_fold_lacks_it_and_what_is_packed_has_learnt_from_all(n_folds):
    folds = range(1, n_folds + 1)
    for way in ways_of([A, B, C], n_folds):
        for fold in folds:
            runs = way.runs(frozenset({fold}), folds)
            assert runs and all(fold in run.held and len(run.held) < n_folds for run in runs)
        packed = way.runs(frozenset(), folds)
        for other in folds:
            assert any(other not in run.held for run in packed)


def test_networks_that_stay_as_they_begin_have_seen_no_video():
    """The features of every video are as those of a new one, whatever folds are measured."""
    for streams in (("rgb",), ("rgb", "change")):
        for unseen in (True, False):
            found = candidates_of({}, 500, streams, [], unseen)
            assert found and not any(one.seen for one in found)


def test_an_average_over_folds_is_measured_by_models_that_lack_two():
    ways = [way for way in ways_of([A, B], 3) if way.candidates == (A,)]
    assert [way.name for way in ways] == ["a", "a, average over folds"] and len(ways_of([A], 3)) == 1
    assert ways[1].runs(frozenset({1}), [1, 2, 3]) == [Run("a", (1, 2)), Run("a", (1, 3))]
    assert [run.name for run in ways[1].runs(frozenset(), [1, 2, 3])] == ["without_1", "without_2", "without_3"]
    assert len(measured_runs(ways, [1, 2, 3])) == 6 and len(measured_runs(ways_of([A], 2), [1, 2])) == 2
    assert share_of(Run("a", (1, 3)), 3) == pytest.approx(1 / 3) and share_of(Run("a", ()), 3) == 1


@pytest.mark.parametrize(
    "lead, over_folds, taken",
    [(0.5, 0, "both"), (1.5, 0, "a"), (0.5, 0.5, "both"), (0, 1.5, "over folds"), (1.5, 2, "a")],
)
def test_an_average_is_taken_unless_it_is_worse_by_more_than_chance_gives(lead, over_folds, taken):
    """In units of AS_GOOD: how far a model is ahead of an average, and an average over folds of both."""
    ways = [Way("a", (A,)), Way("b", (B,)), Way("over folds", (A,), True), Way("both", (A, B))]
    mAP = {"a": 0.6 + lead * AS_GOOD, "b": 0.3, "both": 0.6, "over folds": 0.6 + over_folds * AS_GOOD}
    assert best_of(ways, mAP).name == taken


def test_the_best_stream_and_what_sees_all_count_twice_where_all_are_averaged():
    ways = ways_of(candidates_of({"train.epochs": "3"}, 1000, ("grey", "flow"), unseen=False), 1)
    mAP = {**dict.fromkeys((way.name for way in ways), 0.5), "rnn-small-grey": 0.4, "rnn-small-flow": 0.6}
    twice, streams, joined = ways_again(ways, mAP)
    assert (
        twice.name == "rnn-small-flow, by two seeds" and streams.name == f"{OVER_STREAMS}, rnn-small-flow by two seeds"
    )
    assert [one.name for one in streams.candidates] == ["rnn-small-grey", "rnn-small-flow", "rnn-small-flow-2"]
    assert joined.name == f"{OVER_STREAMS} and rnn-small-seen, rnn-small-flow and rnn-small-seen by two seeds"
    assert [one.name for one in joined.candidates[:3]] == ["rnn-small-grey", "rnn-small-flow", "rnn-small-seen"]
    assert [one.name for one in joined.candidates[3:]] == ["rnn-small-flow-2", "rnn-small-seen-2"]
    level = {way.name: 0.5 for way in ways} | {"rnn-small-flow": 0.505}
    assert [way.name for way in ways_again(ways, level)] == [streams.name, joined.name]
    (only,) = ways_again([Way("a", (A,))], {"a": 0.5})
    assert only.name == "a, by two seeds"


def test_a_model_that_the_settings_name_is_the_only_one():
    assert {one.preset for one in candidates_of({"model.kind": "lstr"}, 1000)} == {"lstr-small"}
    assert [one.preset for one in candidates_of({"train.seed": "1"}, 1000)] == ["rnn-small", "rnn-small", "trn-small"]


def test_without_features_of_networks_that_lack_each_video_all_see_those_of_networks_that_know_them():
    candidates = candidates_of({}, 1000, ("grey", "difference"), unseen=False)
    assert [one.name for one in candidates] == ["rnn-small-seen", "rnn-small-grey", "rnn-small-difference", "trn"]
    assert all(one.seen for one in candidates)


def test_what_stays_as_it_begins_has_seen_nothing_and_is_joined_by_no_model_of_seen_features():
    streams = ("grey", "difference", "change")
    found = candidates_of({}, 1000, streams, ("grey", "difference"), unseen=False)
    assert [(one.name, one.seen, one.streams) for one in found] == [
        ("rnn-small-seen", True, ("grey", "difference")),
        ("rnn-small-grey", True, ("grey",)),
        ("rnn-small-difference", True, ("difference",)),
        ("rnn-small-change", False, ("change",)),
        ("trn", True, ("grey", "difference")),
    ]
    alone = candidates_of({}, 1000, streams[1:], ("difference",), unseen=False)
    assert [one.name for one in alone] == ["rnn-small-difference", "rnn-small-change", "trn"]
    assert streams_among(found) == found[1:4]


def test_only_what_the_time_allows_is_tried():
    candidates = candidates_of({}, 1000)
    seconds = {"rnn-small": 4.0, "rnn-small-seen": 4.0, "trn": 40.0}
    for budget, networks, n, seeds in (
        (None, 1.0, 2, 1),
        (None, 1000.0, 3, 2),
        (2000.0, 1.0, 3, 2),
        (1500.0, 1.0, 2, 2),
        (300.0, 1000.0, 2, 1),
        (170.0, 1.0, 1, 2),
        (60.0, 1.0, 1, 1),
    ):
        taken, twice = affordable(candidates, seconds, LabelParts(LABELS, "", 3, 3), budget, networks)
        assert (len(taken), 1 + twice) == (n, seeds), (budget, networks)


def test_a_fold_that_is_measured_costs_models_of_what_it_leaves():
    """Of three folds one is held out: models of two thirds of the videos, and of all, by two seeds."""
    (seen,) = candidates_of({"train.epochs": "3"}, 1000, unseen=False)
    cost = crossing_seconds((seen,), {seen.name: 6.0}, LabelParts(LABELS, "", 3, 1), twice=False)
    assert cost == pytest.approx(2 * RUN_STARTING + 6 * 2 / 3 + 6)
    again = crossing_seconds((seen,), {seen.name: 6.0}, LabelParts(LABELS, "", 3, 1), twice=True)
    assert again == pytest.approx(2 * cost)
